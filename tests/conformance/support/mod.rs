//! What the conformance harnesses share: cases as data, the two arms, and how they are compared.

pub(crate) mod arms;
pub(crate) mod case;
pub(crate) mod figure;
pub(crate) mod scenario;
