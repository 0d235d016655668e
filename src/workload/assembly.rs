//! From checked rows to a [`Workload`]: sessions and their turns, think times, rows left out, the order of starts.

use rustc_hash::FxHashMap;

use super::pacing::Pacing;
use super::problem::{Ledger, OUT_OF_ORDER, Place, Problems, Warning, WorkloadErrors, rows};
use super::{Loaded, Prompt, Request, RequestId, Workload, default_name};
use crate::simulation::{SimDuration, SimTime};

/// One row that has passed the checks that need no other row.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) place: Place,
    pub(super) arrival_ms: Option<f64>,
    pub(super) delay_ms: Option<f64>,
    /// When the request ended, where that is on record.
    pub(super) terminal_ms: Option<f64>,
    pub(super) input_length: u32,
    pub(super) output_length: u32,
    pub(super) prompt: Prompt,
    pub(super) dp_rank: Option<u32>,
    pub(super) name: Option<Box<str>>,
    /// False for a row that is left out. As a turn it takes no time: the turns after it keep their places.
    pub(super) keep: bool,
}

/// What the rows come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InputKind {
    /// A recording: its earliest arrival becomes time 0, and rows that are out of order have been repaired.
    Trace,
    /// A list made for the purpose: arrivals mean what they say.
    List,
}

/// Names of the fields that rows are compared by, for messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields {
    pub(super) name: &'static str,
    pub(super) arrival: &'static str,
    pub(super) delay: &'static str,
}

/// Gathers rows in the order of the input.
#[derive(Debug)]
pub(super) struct Assembly {
    pacing: Pacing,
    fields: Fields,
    requests: Vec<Request>,
    /// By session number, hence in the order of the input.
    starts: Vec<Start>,
    session_names: Vec<Option<String>>,
    named: FxHashMap<Box<str>, usize>,
    /// Where each name of a request stands.
    names: FxHashMap<Box<str>, Place>,
    sessions: Vec<Session>,
    several_turns: bool,
    latest_start_ms: f64,
    origin_ms: f64,
    out_of_order: Tally,
    with_arrival: Tally,
    without_arrival: Tally,
    shrinking: Tally,
}

/// How a session starts.
#[derive(Clone, Copy, Debug)]
struct Start {
    arrival_ms: f64,
    first_turn: u32,
    place: Place,
}

/// What later turns of a named session need to know of the earlier ones.
#[derive(Clone, Copy, Debug, Default)]
struct Session {
    /// A row was met, whether or not it was kept.
    met: bool,
    /// A row was refused: what depends on it is not judged.
    broken: bool,
    /// Arrival of the first row.
    start_ms: f64,
    /// Time stamp of the latest row.
    stamp_ms: Option<f64>,
    /// End of the latest row's request, where that is on record.
    terminal_ms: Option<f64>,
    /// Think time that the next kept turn inherits from rows left out.
    carried_ms: f64,
    latest_turn: Option<u32>,
}

/// Rows of a kind, and where the first one is.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    count: u64,
    first: Option<Place>,
}

impl Tally {
    fn add(&mut self, place: Place) {
        self.count += 1;
        self.first.get_or_insert(place);
    }
}

impl Assembly {
    pub(super) fn new(pacing: Pacing, fields: Fields) -> Self {
        Self {
            pacing,
            fields,
            requests: Vec::new(),
            starts: Vec::new(),
            session_names: Vec::new(),
            named: FxHashMap::default(),
            names: FxHashMap::default(),
            sessions: Vec::new(),
            several_turns: false,
            latest_start_ms: f64::NEG_INFINITY,
            origin_ms: 0.0,
            out_of_order: Tally::default(),
            with_arrival: Tally::default(),
            without_arrival: Tally::default(),
            shrinking: Tally::default(),
        }
    }

    /// Takes the next row, of `session` or of a session of its own.
    pub(super) fn push(&mut self, session: Option<&str>, draft: Draft, problems: &mut Problems) {
        self.check_name(&draft, problems);
        let Some(name) = session else {
            if let Some(arrival_ms) = self.first_arrival(&draft, problems)
                && draft.keep
            {
                self.start(arrival_ms, None, draft);
            }
            return;
        };
        let index = self.session_index(name);
        let mut session = self.sessions[index];
        if !session.broken {
            session.broken = self.turn(name, &mut session, draft, problems).is_none();
            self.sessions[index] = session;
        }
    }

    /// Results tell requests apart by their names.
    fn check_name(&mut self, draft: &Draft, problems: &mut Problems) {
        let Some(name) = draft.name.as_ref().filter(|_| draft.keep) else { return };
        if name.is_empty() {
            let message = "empty: give the request a name, or leave the field out";
            problems.add(draft.place, self.fields.name, message);
        } else if let Some(first) = self.names.get(name) {
            let message = format!("{name:?} is the name of {first} already: no two requests may share one");
            problems.add(draft.place, self.fields.name, message);
        } else {
            self.names.insert(name.clone(), draft.place);
        }
    }

    /// A request without a name is called by its number: no other may have that name.
    fn check_default_names(
        names: &FxHashMap<Box<str>, Place>,
        field: &str,
        requests: &[Request],
        problems: &mut Problems,
    ) {
        if names.is_empty() {
            return;
        }
        for (index, _) in requests.iter().enumerate().filter(|(_, request)| request.name.is_none()) {
            let name = default_name(index);
            if let Some(place) = names.get(name.as_str()) {
                let message = format!(
                    "{name:?} is what request {} in the order of arrival is called, which has no name: rename this one",
                    index + 1
                );
                problems.add(*place, field, message);
            }
        }
    }

    /// Says that a row of `session` was refused before it came here.
    pub(super) fn break_session(&mut self, session: &str) {
        let index = self.session_index(session);
        self.sessions[index].broken = true;
    }

    fn session_index(&mut self, name: &str) -> usize {
        if let Some(&index) = self.named.get(name) {
            return index;
        }
        self.named.insert(name.into(), self.sessions.len());
        self.sessions.push(Session::default());
        self.sessions.len() - 1
    }

    /// Takes a row of a named session; `None` when it is refused.
    fn turn(
        &mut self,
        name: &str,
        session: &mut Session,
        draft: Draft,
        problems: &mut Problems,
    ) -> Option<()> {
        if session.met {
            session.carried_ms += self.think_time(session, &draft, problems)?;
        } else {
            session.start_ms = self.first_arrival(&draft, problems)?;
            session.met = true;
        }
        session.stamp_ms = draft.arrival_ms;
        session.terminal_ms = draft.terminal_ms;
        if !draft.keep {
            return Some(());
        }
        let think_ms = std::mem::take(&mut session.carried_ms);
        session.latest_turn = Some(match session.latest_turn {
            None => self.start(session.start_ms + think_ms, Some(name), draft),
            Some(previous) => self.follow(previous, think_ms, draft, problems)?,
        });
        Some(())
    }

    /// The arrival of a row that starts a session.
    fn first_arrival(&mut self, draft: &Draft, problems: &mut Problems) -> Option<f64> {
        if let Some(delay_ms) = draft.delay_ms
            && delay_ms != 0.0
        {
            let message =
                format!("{delay_ms} ms: the first turn of a session follows nothing, so it has no delay");
            problems.add(draft.place, self.fields.delay, message);
            return None;
        }
        match draft.arrival_ms {
            Some(_) => self.with_arrival.add(draft.place),
            None if self.pacing.is_open() => {
                let message = "missing: in an open loop every session needs the arrival of its first turn";
                problems.add(draft.place, self.fields.arrival, message);
                return None;
            }
            None => self.without_arrival.add(draft.place),
        }
        Some(draft.arrival_ms.unwrap_or(0.0))
    }

    /// Think time before a later turn: as given, or else from the end of the previous turn where that is on record, or
    /// else the difference of the time stamps, or else none.
    fn think_time(&self, session: &Session, draft: &Draft, problems: &mut Problems) -> Option<f64> {
        match (draft.delay_ms, draft.arrival_ms, session.terminal_ms.or(session.stamp_ms)) {
            (Some(delay_ms), _, _) => Some(delay_ms),
            (None, None, _) => Some(0.0),
            (None, Some(_), None) => {
                let message = "the previous turn of this session has no time stamp, so no delay follows from this one: give the delay";
                problems.add(draft.place, self.fields.arrival, message);
                None
            }
            (None, Some(stamp_ms), Some(previous_ms)) if stamp_ms < previous_ms => {
                let message = format!(
                    "{stamp_ms} ms lies before {previous_ms} ms, {} of the previous turn of this session: a delay cannot be negative",
                    if session.terminal_ms.is_some() { "the end" } else { "the time stamp" },
                );
                problems.add(draft.place, self.fields.arrival, message);
                None
            }
            (None, Some(stamp_ms), Some(previous_ms)) => Some(stamp_ms - previous_ms),
        }
    }

    /// Starts a session with `draft` and returns its request.
    fn start(&mut self, arrival_ms: f64, name: Option<&str>, draft: Draft) -> u32 {
        if arrival_ms < self.latest_start_ms {
            self.out_of_order.add(draft.place);
        }
        self.latest_start_ms = self.latest_start_ms.max(arrival_ms);
        let session = self.starts.len() as u32;
        self.starts.push(Start { arrival_ms, first_turn: self.requests.len() as u32, place: draft.place });
        self.session_names.push(name.map(str::to_owned));
        self.add(draft, session, 0, SimDuration::ZERO)
    }

    /// Adds a turn after `previous` and returns its request.
    fn follow(&mut self, previous: u32, think_ms: f64, draft: Draft, problems: &mut Problems) -> Option<u32> {
        let delay = match SimDuration::from_ms(think_ms / self.pacing.divisor()) {
            Ok(delay) => delay,
            Err(error) => {
                problems.add(draft.place, self.fields.delay, error.to_string());
                return None;
            }
        };
        self.several_turns = true;
        let Request { session, turn, input_length, .. } = self.requests[previous as usize];
        if draft.input_length < input_length {
            self.shrinking.add(draft.place);
        }
        let id = self.add(draft, session, turn + 1, delay);
        self.requests[previous as usize].next_turn = Some(RequestId(id));
        Some(id)
    }

    fn add(&mut self, draft: Draft, session: u32, turn: u32, delay: SimDuration) -> u32 {
        self.requests.push(Request {
            arrival: SimTime::ZERO,
            delay,
            input_length: draft.input_length,
            output_length: draft.output_length,
            prompt: draft.prompt,
            session,
            turn,
            next_turn: None,
            dp_rank: draft.dp_rank,
            name: draft.name,
        });
        self.requests.len() as u32 - 1
    }

    /// The workload, or everything that is wrong with its input.
    pub(super) fn finish(
        mut self,
        kind: InputKind,
        chunks: Chunks,
        end: Ending<'_>,
    ) -> Result<Loaded, WorkloadErrors> {
        let Ending { origin, strict, mut ledger, mut problems } = end;
        let sorted = self.pacing.is_open() || !self.several_turns;
        if kind == InputKind::Trace
            && sorted
            && let Some(first) = self.out_of_order.first
        {
            ledger.repair_many(OUT_OF_ORDER, self.out_of_order.count, first);
        }
        if problems.total() == 0 {
            self.set_arrivals(kind, &mut problems);
            self.check_whole(strict, &ledger, &mut problems);
        }
        problems.into_result(origin)?;

        let mut warnings = ledger.warnings();
        warnings.extend(self.warnings());
        let input = ledger.tally(self.requests.len() as u64);
        let concurrency = self.pacing.concurrency;
        let in_order = !self.several_turns && self.out_of_order.count == 0;
        let (requests, session_starts) = if in_order {
            let starts = (0..self.requests.len() as u32).map(RequestId).collect();
            (self.requests, starts)
        } else {
            in_start_order(self.requests, &self.starts, sorted)
        };
        let mut problems = Problems::default();
        Self::check_default_names(&self.names, self.fields.name, &requests, &mut problems);
        problems.into_result(origin)?;
        let workload = Workload {
            requests,
            session_starts,
            session_names: self.session_names,
            chunk_ids: chunks.ids,
            chunk_names: chunks.names,
            origin_ms: self.origin_ms,
            concurrency,
            input,
        };
        Ok(Loaded { workload, warnings })
    }

    /// Turns the arrivals of first turns into virtual time.
    fn set_arrivals(&mut self, kind: InputKind, problems: &mut Problems) {
        let origin_ms = match kind {
            InputKind::Trace => {
                self.starts.iter().map(|start| start.arrival_ms).fold(f64::INFINITY, f64::min)
            }
            InputKind::List => 0.0,
        };
        let latest_ms = self.starts.iter().map(|start| start.arrival_ms - origin_ms).fold(0.0, f64::max);
        if SimTime::from_ms(latest_ms).is_ok()
            && let Err(error) = SimTime::from_ms(latest_ms / self.pacing.divisor())
        {
            let message =
                format!("{} is too small for arrivals up to {latest_ms} ms: {error}", self.pacing.speedup);
            problems.add(Place::Whole, "arrival_speedup_ratio", message);
            return;
        }
        self.origin_ms = origin_ms / self.pacing.divisor();
        for start in &self.starts {
            match SimTime::from_ms((start.arrival_ms - origin_ms) / self.pacing.divisor()) {
                Ok(arrival) => self.requests[start.first_turn as usize].arrival = arrival,
                Err(error) => problems.add(start.place, self.fields.arrival, error.to_string()),
            }
        }
    }

    /// What only the whole input shows.
    fn check_whole(&self, strict: bool, ledger: &Ledger, problems: &mut Problems) {
        if self.with_arrival.count > 0
            && let Some(place) = self.without_arrival.first
        {
            let message = format!(
                "missing here and in {} in all, while {} that start a session have one: all of them or none",
                rows(self.without_arrival.count),
                rows(self.with_arrival.count)
            );
            problems.add(place, self.fields.arrival, message);
        }
        if strict {
            ledger.refuse(problems);
        }
        if self.requests.is_empty() {
            let message = match ledger.read {
                0 => "no requests: the input is empty".to_owned(),
                read => format!("no requests: of {} none can be used{}", rows(read), ledger.drops()),
            };
            problems.add(Place::Whole, "", message);
        }
    }

    fn warnings(&self) -> Vec<Warning> {
        let mut warnings = Vec::new();
        if let Some(first) = self.shrinking.first {
            warnings.push(Warning {
                kind: "shrinking session".into(),
                count: self.shrinking.count,
                message: format!(
                    "{} with a shorter prompt than the turn before (first at {first}): taken as written",
                    rows(self.shrinking.count)
                ),
            });
        }
        warnings.extend(self.pacing.warnings());
        warnings
    }
}

/// Contents of all prompts.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    pub(super) ids: Vec<u32>,
    pub(super) names: Vec<u64>,
}

/// What reading an input left behind beside its rows.
#[derive(Debug)]
pub(super) struct Ending<'a> {
    pub(super) origin: &'a str,
    pub(super) strict: bool,
    pub(super) ledger: Ledger,
    pub(super) problems: Problems,
}

/// Puts sessions into the order in which they start and the turns of each one after the other.
fn in_start_order(requests: Vec<Request>, starts: &[Start], sorted: bool) -> (Vec<Request>, Vec<RequestId>) {
    let mut order: Vec<&Start> = starts.iter().collect();
    if sorted {
        order.sort_by(|a, b| a.arrival_ms.total_cmp(&b.arrival_ms));
    }
    let mut slots: Vec<Option<Request>> = requests.into_iter().map(Some).collect();
    let mut ordered = Vec::with_capacity(slots.len());
    let mut session_starts = Vec::with_capacity(order.len());
    for start in order {
        session_starts.push(RequestId(ordered.len() as u32));
        let mut next = Some(RequestId(start.first_turn));
        while let Some(RequestId(index)) = next {
            let mut request =
                slots[index as usize].take().expect("turns of a session form a chain of their own");
            next = request.next_turn;
            request.next_turn = next.map(|_| RequestId(ordered.len() as u32 + 1));
            ordered.push(request);
        }
    }
    (ordered, session_starts)
}
