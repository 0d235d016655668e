//! A replay as a timeline: JSON in the trace event format that Perfetto and Chrome's trace viewer open.
//!
//! | process | thread | events |
//! |---|---|---|
//! | `workers: <pool>` | one for each rank | a slice for each pass, or for a run of like decode passes; counters of running and waiting requests and of KV blocks held |
//! | `routers` | one for each pool | an instant for each choice, with the blocks that each rank was known to have |
//! | `fleet` | one for each pool | an instant for each step in the life of a worker, and a counter of workers |
//! | `requests` | one nested slice for each request | its phases and, within them, the chunks of its prompt |
//!
//! Times are microseconds from the start of the replay, with three decimals.

use std::fmt::Write as _;
use std::io::{self, Write};

use super::activity::{ChunkSpan, PassSpan, RouteRecord};
use super::phases::phases;
use super::record::{Role, RunRecord};
use super::requests::request_name;
use super::scaling::{FleetChange, FleetStep};
use crate::simulation::SimTime;
use crate::workload::{RequestId, Workload};

const REQUESTS: u32 = 1;
const ROUTERS: u32 = 2;
const FLEET: u32 = 3;
/// Workers of a role have this number plus that of the role.
const WORKERS: u32 = 10;

/// What goes into a timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimelineOptions {
    /// One in so many requests is shown, with its phases, chunks and routes. Passes are always complete.
    pub one_request_in: u32,
}

/// Writes the timeline of a replay whose activity was kept in full. It makes many small writes: `out` should be buffered.
pub fn write_timeline(
    record: &RunRecord,
    workload: &Workload,
    options: TimelineOptions,
    out: impl Write,
) -> io::Result<()> {
    let mut timeline = Timeline { out, text: String::new(), empty: true };
    timeline.out.write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")?;
    timeline.names(record)?;
    for span in &record.activity.passes {
        timeline.pass(span)?;
    }
    let shown = |request: RequestId| request.0.is_multiple_of(options.one_request_in.max(1));
    for route in record.activity.routes.iter().filter(|route| shown(route.request)) {
        timeline.route(route, workload)?;
    }
    timeline.fleet(record)?;
    // Chunks of a request are brought together; those of one request are in order already.
    let mut chunks: Vec<&ChunkSpan> =
        record.activity.chunks.iter().filter(|chunk| shown(chunk.request)).collect();
    chunks.sort_by_key(|chunk| chunk.request.0);
    let mut chunks = chunks.into_iter().peekable();
    for number in 0..record.requests.len() as u32 {
        let id = RequestId(number);
        let mut own = Vec::new();
        while let Some(chunk) = chunks.next_if(|chunk| chunk.request == id) {
            own.push(*chunk);
        }
        if shown(id) {
            timeline.request(id, record, workload, &own)?;
        }
    }
    timeline.out.write_all(b"]}\n")
}

struct Timeline<W> {
    out: W,
    text: String,
    empty: bool,
}

impl<W: Write> Timeline<W> {
    /// Writes the event that has been put together.
    fn flush(&mut self) -> io::Result<()> {
        let separator: &[u8] = if self.empty { b"\n" } else { b",\n" };
        self.empty = false;
        self.out.write_all(separator)?;
        self.out.write_all(self.text.as_bytes())?;
        self.text.clear();
        Ok(())
    }

    fn metadata(&mut self, kind: &str, pid: u32, tid: u32, name: &str) -> io::Result<()> {
        let name = text(name);
        let _ = write!(
            self.text,
            r#"{{"name":"{kind}","ph":"M","ts":0,"pid":{pid},"tid":{tid},"args":{{"name":{name}}}}}"#
        );
        self.flush()
    }

    fn names(&mut self, record: &RunRecord) -> io::Result<()> {
        self.metadata("process_name", REQUESTS, 0, "requests")?;
        self.metadata("process_name", ROUTERS, 0, "routers")?;
        self.metadata("process_name", FLEET, 0, "fleet")?;
        let mut ranks: Vec<(Role, u32)> =
            record.activity.passes.iter().map(|span| (span.role, span.rank)).collect();
        ranks.sort_unstable_by_key(|&(role, rank)| (role as u32, rank));
        ranks.dedup();
        let mut named = None;
        for (role, rank) in ranks {
            if named != Some(role) {
                named = Some(role);
                self.metadata("process_name", workers(role), 0, &format!("workers: {}", role.name()))?;
                self.metadata("thread_name", ROUTERS, role as u32, &format!("router: {}", role.name()))?;
                self.metadata("thread_name", FLEET, role as u32, role.name())?;
            }
            self.metadata("thread_name", workers(role), rank, &format!("rank {rank}"))?;
        }
        Ok(())
    }

    fn pass(&mut self, span: &PassSpan) -> io::Result<()> {
        let PassSpan { role, rank, start, end, passes, prefill_requests, decode_requests, .. } = *span;
        let (pid, times) = (workers(role), slice(start, end));
        let name = match (prefill_requests, decode_requests, passes) {
            (0, decodes, 1) => format!("decode {decodes}"),
            (0, decodes, passes) => format!("decode {decodes}, {passes} passes"),
            (prompts, 0, _) => format!("prefill {prompts}"),
            (prompts, decodes, _) => format!("prefill {prompts}, decode {decodes}"),
        };
        let _ = write!(
            self.text,
            r#"{{"name":"{name}","cat":"pass","ph":"X",{times},"pid":{pid},"tid":{rank},"args":{{"passes":{passes},"prefill_requests":{prefill_requests},"prefill_tokens":{},"decode_requests":{decode_requests},"context_tokens":{}}}}}"#,
            span.prefill_tokens, span.context_tokens
        );
        self.flush()?;
        let (start, running) = (stamp(start), prefill_requests + decode_requests);
        let _ = write!(
            self.text,
            r#"{{"name":"rank {rank} requests","ph":"C","ts":{start},"pid":{pid},"tid":{rank},"args":{{"running":{running},"waiting":{}}}}}"#,
            span.waiting
        );
        self.flush()?;
        let _ = write!(
            self.text,
            r#"{{"name":"rank {rank} KV blocks","ph":"C","ts":{start},"pid":{pid},"tid":{rank},"args":{{"held":{}}}}}"#,
            span.blocks_held
        );
        self.flush()
    }

    fn route(&mut self, route: &RouteRecord, workload: &Workload) -> io::Result<()> {
        let request = text(&request_name(workload, route.request));
        let (at, tid, rank) = (stamp(route.at), route.role as u32, route.rank);
        let overlaps: Vec<String> = route
            .candidates
            .iter()
            .filter(|candidate| candidate.overlap_blocks > 0)
            .map(|candidate| format!("{}: {}", candidate.rank, candidate.overlap_blocks))
            .collect();
        let overlaps = overlaps.join(", ");
        let _ = write!(
            self.text,
            r#"{{"name":"to rank {rank}","cat":"route","ph":"i","s":"t","ts":{at},"pid":{ROUTERS},"tid":{tid},"args":{{"request":{request},"rank":{rank},"overlap_blocks":"{overlaps}"}}}}"#
        );
        self.flush()
    }

    fn fleet(&mut self, record: &RunRecord) -> io::Result<()> {
        for change in &record.scaling.changes {
            let FleetChange { at, role, worker, step } = *change;
            let (at, tid, step) = (stamp(at), role as u32, step.name());
            let _ = write!(
                self.text,
                r#"{{"name":"worker {worker} {step}","cat":"fleet","ph":"i","s":"t","ts":{at},"pid":{FLEET},"tid":{tid},"args":{{"worker":{worker}}}}}"#
            );
            self.flush()?;
        }
        for event in &record.scaling.events {
            let (at, role, tid) = (stamp(event.at), event.role.name(), event.role as u32);
            let _ = write!(
                self.text,
                r#"{{"name":"{role} workers wanted","ph":"C","ts":{at},"pid":{FLEET},"tid":{tid},"args":{{"workers":{}}}}}"#,
                event.to
            );
            self.flush()?;
        }
        Ok(())
    }

    /// A request as nested asynchronous slices.
    fn request(
        &mut self,
        id: RequestId,
        record: &RunRecord,
        workload: &Workload,
        chunks: &[ChunkSpan],
    ) -> io::Result<()> {
        let number = id.0 as usize;
        let request = &record.requests[number];
        let phases = phases(request, record.handoffs.get(number), record.end);
        let (Some(first), Some(last)) = (phases.first(), phases.last()) else { return Ok(()) };
        let name = text(&request_name(workload, id));
        let asked = &workload.requests[number];
        let args = format!(
            r#"{{"input_length":{},"output_length":{},"reused_input_tokens":{},"admissions":{}}}"#,
            asked.input_length, asked.output_length, request.max_reused_tokens, request.admissions
        );
        let mut chunks = chunks.iter().peekable();
        self.asynchronous("b", &name, id, first.start, Some(&args))?;
        for phase in &phases {
            let phase_name = text(phase.name);
            self.asynchronous("b", &phase_name, id, phase.start, None)?;
            // A chunk may reach over the end of a phase only if the run was cut off; it lies in the phase it started in.
            let mut free_from = phase.start;
            while let Some(chunk) = chunks.next_if(|chunk| chunk.start < phase.end) {
                let (start, end) = (chunk.start.max(free_from), chunk.end.min(phase.end));
                if end <= start {
                    continue;
                }
                free_from = end;
                let args = format!(
                    r#"{{"rank":{},"new_tokens":{},"prefix_tokens":{}}}"#,
                    chunk.rank, chunk.new_tokens, chunk.prefix_tokens
                );
                self.asynchronous("b", "\"chunk\"", id, start, Some(&args))?;
                self.asynchronous("e", "\"chunk\"", id, end, None)?;
            }
            self.asynchronous("e", &phase_name, id, phase.end, None)?;
        }
        self.asynchronous("e", &name, id, last.end, None)
    }

    fn asynchronous(
        &mut self,
        kind: &str,
        name: &str,
        id: RequestId,
        at: SimTime,
        args: Option<&str>,
    ) -> io::Result<()> {
        let (at, id, args) =
            (stamp(at), id.0, args.map(|args| format!(r#","args":{args}"#)).unwrap_or_default());
        let _ = write!(
            self.text,
            r#"{{"name":{name},"cat":"request","ph":"{kind}","id":{id},"ts":{at},"pid":{REQUESTS},"tid":0{args}}}"#
        );
        self.flush()
    }
}

fn workers(role: Role) -> u32 {
    WORKERS + role as u32
}

/// A string in JSON.
fn text(name: &str) -> String {
    serde_json::Value::from(name).to_string()
}

/// Microseconds with up to three decimals.
fn stamp(time: SimTime) -> String {
    microseconds(time.as_ns())
}

fn microseconds(ns: u64) -> String {
    match ns % 1000 {
        0 => format!("{}", ns / 1000),
        rest => format!("{}.{rest:03}", ns / 1000),
    }
}

fn slice(start: SimTime, end: SimTime) -> String {
    format!(r#""ts":{},"dur":{}"#, stamp(start), microseconds(end.since(start).as_ns()))
}

impl FleetStep {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Cancelled => "cancelled",
            Self::Draining => "draining",
            Self::Removed => "removed",
        }
    }
}
