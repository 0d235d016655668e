//! Every message that passes between the simulated actors.

use serde::Serialize;

use super::recorder::Recorder;
use crate::simulation::Protocol;
use crate::workload::RequestId;
use crate::workload::prefix::SegmentId;

/// The vocabulary of a simulated fleet.
#[derive(Debug)]
pub struct Serving;

impl Protocol for Serving {
    type Message = Message;
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
}

/// What the link between two pools hears.
#[derive(Clone, Copy, Debug, Serialize)]
pub enum LinkMessage {
    /// KV blocks set out for a rank.
    Start {
        /// Which rank fetches them.
        rank: WorkerId,
        /// For which request.
        request: RequestId,
        /// Tokens whose KV travels.
        tokens: u32,
    },
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
}

const _: () = assert!(size_of::<Message>() <= 16, "messages are copied at every hop");
