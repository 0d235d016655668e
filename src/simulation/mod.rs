//! Actors exchanging messages on a virtual clock.
//!
//! Nothing here knows what is simulated. A domain defines its vocabulary once as a [`Protocol`] (one closed message
//! enum and one record that actors write observations into), its actors as plain structs with the [`Actor`] trait, and
//! assembles them into a [`Simulation`].
//!
//! # Life of a run
//!
//! 1. *Assembly.* [`Simulation::reserve`] hands out a typed [`Address`] for every actor path, [`Simulation::install`]
//!    puts the actor there. Addresses may be passed around before their actors exist, so cycles are no problem.
//! 2. *Start.* [`Actor::start`] of every actor, in the order of their addresses, at time zero.
//! 3. *Events*, one at a time, in the total order below, until none is left, a limit is reached or an actor fails.
//! 4. *Finish.* [`Actor::finish`] of every actor, at the time of the last event (or at the time limit).
//!
//! Actors may join while a run is under way ([`Context::reserve`], [`Context::install`]).
//!
//! # Order of events
//!
//! - Messages sent with [`Context::send`] arrive within the same instant, first in first out, before anything else
//!   happens: they are the consequences of the event in hand.
//! - Everything else is ordered by `(time, class, tie)`. The [`Class`] says what comes first at one instant (a domain
//!   names its classes in one place). Within a class, messages scheduled with [`Context::send_at`] come first, in the
//!   order of sending; then wakes, by ascending actor number.
//!
//! # Time and wakes
//!
//! Every actor has at most one pending wake. [`Context::wake_at`] replaces it, so a plan that changes leaves no stale
//! timer behind.
//!
//! # Randomness
//!
//! [`Context::rng`] is the actor's own stream, derived from the root seed and the actor's *path*. Adding an actor, or a
//! draw in one of them, disturbs no other.
//!
//! # Failure
//!
//! A run ends with a [`SimulationError`] when an actor calls [`Context::fail`], when one instant sees more deliveries
//! than [`Limits::deliveries_per_instant`] (a message loop), or when it is interrupted from outside. Bugs of the
//! framework's user (waking in the past, an address without an actor) panic with the culprit's path.
//!
//! # Example
//!
//! ```
//! use spica::simulation::{Actor, Address, Class, Context, Limits, Protocol, SimDuration, Simulation};
//!
//! #[derive(Clone, Copy, Debug)]
//! struct Ball(u32);
//!
//! struct Tennis;
//! impl Protocol for Tennis {
//!     type Message = Ball;
//!     type Parcel = ();
//!     type Record = Vec<(f64, u32)>;
//! }
//!
//! struct Player {
//!     other: Address<Ball>,
//! }
//!
//! impl Actor<Tennis> for Player {
//!     type Inbox = Ball;
//!     fn receive(&mut self, Ball(hits): Ball, ctx: &mut Context<'_, Tennis>) {
//!         let now = ctx.now();
//!         ctx.record().push((now.as_ms(), hits));
//!         if hits < 3 {
//!             ctx.send_at(now + SimDuration::from_ns(500_000), Class(0), self.other, Ball(hits + 1));
//!         }
//!     }
//! }
//!
//! let mut game = Simulation::<Tennis>::new(1, Vec::new());
//! let (left, right) = (game.reserve("left"), game.reserve("right"));
//! game.install(left, Player { other: right });
//! game.install(right, Player { other: left });
//! game.post(left, Ball(1));
//! let end = game.run(&Limits::default()).unwrap();
//! assert_eq!(end.as_ms(), 1.0);
//! assert_eq!(game.into_record(), [(0.0, 1), (0.5, 2), (1.0, 3)]);
//! ```

mod actor;
mod agenda;
mod context;
mod parcels;
mod random;
mod run;
mod time;
mod wake_table;

pub use actor::{Actor, ActorId, Address, ParcelId, Protocol};
pub use agenda::Class;
pub use context::Context;
pub use random::{ActorRng, stream};
pub use run::{Limits, Simulation, SimulationError};
pub use time::{InvalidDuration, Shown, SimDuration, SimTime};
