//! How long a forward pass takes.
