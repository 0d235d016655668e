//! Every message that passes between the simulated actors.

use serde::Serialize;

use super::fleet::FleetState;
use super::predictor::{Forecast, Window};
use super::recorder::Recorder;
use super::worker::WorkerPasses;
use crate::engine::TokenStamps;
use crate::simulation::{Address, ParcelId, Protocol};
use crate::workload::RequestId;
use crate::workload::prefix::SegmentId;

/// The vocabulary of a simulated fleet.
#[derive(Debug)]
pub struct Serving;

impl Protocol for Serving {
    type Message = Message;
    type Parcel = Parcel;
    type Record = Recorder;
}

/// Number of a worker rank within its pool: `worker * dp_size + rank`, so without attention data parallelism the number
/// of the worker. Numbers are never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct WorkerId(pub u32);

/// Anything that may pass between actors.
#[derive(Clone, Copy, Debug, Serialize)]
pub enum Message {
    /// To the client.
    Client(ClientMessage),
    /// To the router.
    Router(RouterMessage),
    /// To a worker.
    Worker(WorkerMessage),
    /// To the link between two pools.
    Link(LinkMessage),
    /// To the fleet.
    Fleet(FleetMessage),
    /// To the planner.
    Planner(PlannerMessage),
    /// To the load predictor.
    Predictor(PredictorMessage),
}

/// What is too large for a message.
#[derive(Clone, Debug)]
pub enum Parcel {
    /// Which workers there are.
    Fleet(FleetState),
    /// The latest passes of a worker.
    Passes(WorkerPasses),
    /// A request that ended.
    Ended(EndedRequest),
    /// KV blocks on their way.
    Transfer(TransferOrder),
    /// Traffic to learn from.
    Window(Window),
    /// What comes next; `None` without an answer.
    Forecast(Option<Forecast>),
}

/// KV blocks to be moved between two pools.
#[derive(Clone, Copy, Debug)]
pub struct TransferOrder {
    /// The worker that fetches them.
    pub to: Address<WorkerMessage>,
    /// For which of its ranks.
    pub rank: WorkerId,
    /// For which request.
    pub request: RequestId,
    /// Tokens whose KV travels.
    pub tokens: u32,
}

/// A request that ended on a worker.
#[derive(Clone, Copy, Debug)]
pub struct EndedRequest {
    /// Which.
    pub request: RequestId,
    /// Whether it ran to its end.
    pub completed: bool,
    /// When its tokens left.
    pub stamps: TokenStamps,
}

/// What the client hears.
#[derive(Clone, Copy, Debug, Serialize)]
pub enum ClientMessage {
    /// A request ran to its end or was rejected.
    Ended(RequestId),
}

/// What the router hears.
#[derive(Clone, Copy, Debug, Serialize)]
pub enum RouterMessage {
    /// A request asks for a worker.
    Arrived(RequestId),
    /// A worker sent the first token of a request, so its prompt is computed.
    FirstToken(WorkerId, RequestId),
    /// A request left a worker.
    Ended(WorkerId, RequestId),
    /// A prompt is computed for which blocks were set aside beforehand.
    PromptComputed(RequestId),
    /// The blocks of a prompt have been fetched: whoever computed it may give them up.
    HandedOff(RequestId),
    /// From now on so many blocks of a segment can be found in a worker's cache.
    KvExtent {
        /// Whose cache.
        worker: WorkerId,
        /// Which part of the prefix tree.
        segment: SegmentId,
        /// Blocks from the segment's start.
        blocks: u32,
    },
    /// A worker takes requests from now on.
    Joined {
        /// Number of its first rank.
        worker: WorkerId,
        /// Where it is.
        address: Address<WorkerMessage>,
    },
    /// The worker with this first rank takes no more requests, but has some to finish.
    Leaving(WorkerId),
    /// The worker with this first rank is gone.
    Left(WorkerId),
}

/// What a worker hears.
#[derive(Clone, Copy, Debug, Serialize)]
pub enum WorkerMessage {
    /// A request was placed on one of its ranks.
    Assign(WorkerId, RequestId),
    /// A prompt that a rank has set blocks aside for is computed: they can be fetched.
    Fetch(WorkerId, RequestId),
    /// The blocks of a prompt computed elsewhere have arrived on a rank.
    KvArrived(WorkerId, RequestId),
    /// The blocks of a prompt computed on a rank have been fetched.
    Release(WorkerId, RequestId),
    /// No more requests will come: finish those that are here and go.
    Drain,
    /// The planner asks for the latest passes.
    Sample,
}

/// What the link between two pools hears.
#[derive(Clone, Copy, Debug, Serialize)]
pub enum LinkMessage {
    /// KV blocks set out.
    Start(ParcelId),
}

/// What the fleet hears.
#[derive(Clone, Copy, Debug, Serialize)]
pub enum FleetMessage {
    /// A pool shall have so many workers, starting or serving.
    Scale {
        /// Place of the pool in the fleet.
        pool: u8,
        /// Workers.
        workers: u32,
    },
    /// A worker that was to go is empty.
    Emptied {
        /// Place of its pool in the fleet.
        pool: u8,
        /// Number of its first rank.
        worker: WorkerId,
    },
    /// The planner asks which workers there are and what they do.
    Survey,
    /// Every request has ended and no more will come.
    Finished,
}

/// What the planner hears.
#[derive(Clone, Copy, Debug, Serialize)]
pub enum PlannerMessage {
    /// A request arrived in front of the fleet.
    Arrived(RequestId),
    /// A request was placed on a worker.
    Placed {
        /// Blocks of its prompt that were known to be in the worker's cache.
        overlap_blocks: u32,
        /// Blocks of its prompt.
        blocks: u32,
    },
    /// A request ended.
    Ended(ParcelId),
    /// Which workers there are.
    Fleet(ParcelId),
    /// The latest passes of a worker.
    Passes(ParcelId),
    /// What the load predictor expects.
    Forecast(ParcelId),
    /// Every request has ended and no more will come.
    Finished,
}

/// What the load predictor hears.
#[derive(Clone, Copy, Debug, Serialize)]
pub enum PredictorMessage {
    /// A window of traffic is over; what comes next?
    Window(ParcelId),
}

/// Wraps each inbox into [`Message`] and back.
macro_rules! inboxes {
    ($($variant:ident($inbox:ty)),* $(,)?) => {$(
        impl From<$inbox> for Message {
            fn from(message: $inbox) -> Self {
                Self::$variant(message)
            }
        }

        impl TryFrom<Message> for $inbox {
            type Error = Message;

            fn try_from(message: Message) -> Result<Self, Message> {
                match message {
                    Message::$variant(message) => Ok(message),
                    other => Err(other),
                }
            }
        }
    )*};
}

inboxes! {
    Client(ClientMessage),
    Router(RouterMessage),
    Worker(WorkerMessage),
    Link(LinkMessage),
    Fleet(FleetMessage),
    Planner(PlannerMessage),
    Predictor(PredictorMessage),
}

const _: () = assert!(size_of::<Message>() <= 16, "messages are copied at every hop");
