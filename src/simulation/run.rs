//! Assembly and the event loop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::actor::{Actor, ActorId, Address, ErasedActor, Protocol};
use super::context::{Context, Core};
use super::time::SimTime;

/// When a run ends short of its last event.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Events at exactly this time still happen; the first later one does not.
    pub until: SimTime,
    /// More deliveries than this without progress of the clock are taken for a loop.
    pub deliveries_per_instant: u64,
    /// Set from outside to stop the run.
    pub interrupt: Option<Arc<AtomicBool>>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { until: SimTime::MAX, deliveries_per_instant: 50_000_000, interrupt: None }
    }
}

/// Why a run did not end by itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SimulationError {
    /// An actor gave up.
    #[error("{actor} at {time}: {reason}")]
    Failed {
        /// Path of the actor.
        actor: String,
        /// When.
        time: SimTime,
        /// What it said.
        reason: String,
    },
    /// The clock ends before what an actor is about to do.
    #[error("{actor} at {time}: the clock ends here: 584 years have passed")]
    ClockEnds {
        /// Path of the actor.
        actor: String,
        /// When.
        time: SimTime,
    },
    /// The clock stands still while messages keep coming.
    #[error(
        "the clock stands still at {time}: {deliveries} deliveries in one instant, the latest to {}",
        actors.join(", ")
    )]
    RunAway {
        /// When.
        time: SimTime,
        /// Deliveries counted.
        deliveries: u64,
        /// Paths of the latest receivers.
        actors: Vec<String>,
    },
    /// Stopped from outside.
    #[error("interrupted")]
    Interrupted,
}

/// How many events pass between two looks at [`Limits::interrupt`].
const EVENTS_PER_INTERRUPT_CHECK: u64 = 64;

/// A set of actors and their virtual clock.
pub struct Simulation<P: Protocol> {
    actors: Vec<Option<Box<dyn ErasedActor<P>>>>,
    core: Core<P>,
}

impl<P: Protocol> Simulation<P> {
    /// An empty simulation. `seed` is the root of every random stream.
    pub fn new(seed: u64, record: P::Record) -> Self {
        Self { actors: Vec::new(), core: Core::new(seed, record) }
    }

    /// Sets an address aside for an actor to be installed later. Paths name random streams and appear in errors.
    ///
    /// # Panics
    /// If the path is taken.
    pub fn reserve<I>(&mut self, path: impl Into<String>) -> Address<I> {
        self.actors.push(None);
        self.core.reserve(path.into())
    }

    /// Puts an actor at its address.
    ///
    /// # Panics
    /// If there is one already.
    pub fn install<A: Actor<P> + 'static>(&mut self, address: Address<A::Inbox>, actor: A) {
        let place = &mut self.actors[address.actor.0 as usize];
        assert!(
            place.is_none(),
            "there is an actor at {} already",
            self.core.paths[address.actor.0 as usize]
        );
        *place = Some(Box::new(actor));
    }

    /// Sends a message from outside, to be delivered first.
    pub fn post<I: Into<P::Message>>(&mut self, to: Address<I>, message: I) {
        self.core.lane.push_back((to.actor, message.into()));
    }

    /// Runs to the end and returns the time of the last event.
    ///
    /// # Panics
    /// If an address was reserved and no actor installed there.
    pub fn run(&mut self, limits: &Limits) -> Result<SimTime, SimulationError> {
        self.each_actor(|actor, ctx| actor.start(ctx));
        self.admit_newcomers();
        self.handle_events(limits)?;
        let last_event = self.core.now;
        if limits.until < SimTime::MAX && self.next_time().is_some() {
            // What actors settle lazily is settled up to the limit.
            self.core.now = limits.until;
        }
        self.each_actor(|actor, ctx| actor.finish(ctx));
        self.check_failure()?;
        Ok(last_event)
    }

    /// What each actor with work left waits for, with its path.
    pub fn waiting(&self) -> Vec<(String, String)> {
        let paths = self.core.paths.iter();
        let actors = self.actors.iter().flatten();
        actors.zip(paths).filter_map(|(actor, path)| Some((path.clone(), actor.waiting_for()?))).collect()
    }

    /// What the actors have recorded so far.
    pub fn record_mut(&mut self) -> &mut P::Record {
        &mut self.core.record
    }

    /// What the actors recorded.
    pub fn into_record(self) -> P::Record {
        self.core.record
    }

    fn handle_events(&mut self, limits: &Limits) -> Result<(), SimulationError> {
        let mut deliveries = 0_u64;
        let mut events = 0_u64;
        let mut latest: [ActorId; 4] = [ActorId(0); 4];
        loop {
            self.check_failure()?;
            let Some((to, event)) = self.next_event(limits.until, &mut deliveries) else { return Ok(()) };
            latest[(deliveries % 4) as usize] = to;
            deliveries += 1;
            if deliveries > limits.deliveries_per_instant {
                return Err(self.run_away(deliveries, &latest));
            }
            events += 1;
            if events.is_multiple_of(EVENTS_PER_INTERRUPT_CHECK)
                && limits.interrupt.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed))
            {
                return Err(SimulationError::Interrupted);
            }
            self.deliver(to, event);
            if !self.core.newcomers.is_empty() {
                self.admit_newcomers();
            }
        }
    }

    /// Puts actors that joined during the latest event in their places.
    fn admit_newcomers(&mut self) {
        self.actors.resize_with(self.core.paths.len(), || None);
        for (id, actor) in std::mem::take(&mut self.core.newcomers) {
            let place = &mut self.actors[id.0 as usize];
            assert!(place.is_none(), "there is an actor at {} already", self.core.paths[id.0 as usize]);
            place.insert(actor).start(&mut Context { core: &mut self.core, me: id });
        }
    }

    /// Takes the next event out of the lane, the agenda or the wake table and moves the clock to it. `deliveries` starts
    /// again whenever the clock moves.
    fn next_event(&mut self, until: SimTime, deliveries: &mut u64) -> Option<(ActorId, Option<P::Message>)> {
        if let Some((to, message)) = self.core.lane.pop_front() {
            return Some((to, Some(message)));
        }
        let (scheduled, wake) = (self.core.agenda.next_key(), self.core.wakes.next_key());
        let message_first = match (scheduled, wake) {
            (None, None) => return None,
            (Some(scheduled), Some(wake)) => scheduled.moment() <= wake.moment(),
            (scheduled, _) => scheduled.is_some(),
        };
        let time = if message_first { scheduled?.time() } else { wake?.time() };
        if time > until {
            return None;
        }
        if time > self.core.now {
            self.core.now = time;
            *deliveries = 0;
        }
        if message_first {
            self.core.agenda.pop().map(|entry| (entry.to, Some(entry.message)))
        } else {
            self.core.latest_wake = self.core.latest_wake.max(wake);
            self.core.wakes.pop().map(|actor| (actor, None))
        }
    }

    fn next_time(&self) -> Option<SimTime> {
        let keys = [self.core.agenda.next_key(), self.core.wakes.next_key()];
        keys.into_iter().flatten().min().map(super::agenda::EventKey::time)
    }

    fn deliver(&mut self, to: ActorId, event: Option<P::Message>) {
        let actor = self.actors[to.0 as usize].as_mut().expect("run() found an actor at every address");
        let mut ctx = Context { core: &mut self.core, me: to };
        match event {
            Some(message) => actor.receive(message, &mut ctx),
            None => actor.wake(&mut ctx),
        }
    }

    fn each_actor(&mut self, mut call: impl FnMut(&mut dyn ErasedActor<P>, &mut Context<'_, P>)) {
        for (index, place) in self.actors.iter_mut().enumerate() {
            let Some(actor) = place else { panic!("no actor was installed at {}", self.core.paths[index]) };
            call(actor.as_mut(), &mut Context { core: &mut self.core, me: ActorId(index as u32) });
        }
    }

    fn check_failure(&self) -> Result<(), SimulationError> {
        match &self.core.failure {
            None => Ok(()),
            Some((actor, reason)) => {
                let (actor, time) = (self.core.paths[actor.0 as usize].clone(), self.core.now);
                Err(match reason {
                    Some(reason) => SimulationError::Failed { actor, time, reason: reason.clone() },
                    None => SimulationError::ClockEnds { actor, time },
                })
            }
        }
    }

    fn run_away(&self, deliveries: u64, latest: &[ActorId]) -> SimulationError {
        let mut actors: Vec<_> =
            latest.iter().map(|actor| self.core.paths[actor.0 as usize].clone()).collect();
        actors.sort_unstable();
        actors.dedup();
        SimulationError::RunAway { time: self.core.now, deliveries, actors }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulation::{Class, SimDuration};

    #[derive(Clone, Copy, Debug)]
    enum Message {
        Note(u32),
        Loop,
        Fail,
    }

    struct Test;

    impl Protocol for Test {
        type Message = Message;
        type Parcel = &'static str;
        type Record = Vec<(u64, u32)>;
    }

    /// Notes numbers; on start it schedules what the test asks for.
    struct Noter {
        me: Address<Message>,
        schedule: Vec<(u64, u8, Message)>,
        wakes: Vec<(u64, u8)>,
        number: u32,
    }

    impl Actor<Test> for Noter {
        type Inbox = Message;

        fn start(&mut self, ctx: &mut Context<'_, Test>) {
            for &(ns, class, message) in &self.schedule {
                ctx.send_at(SimTime::from_ns(ns), Class(class), self.me, message);
            }
            for &(ns, class) in &self.wakes {
                ctx.wake_at(SimTime::from_ns(ns), Class(class));
            }
        }

        fn receive(&mut self, message: Message, ctx: &mut Context<'_, Test>) {
            let now = ctx.now().as_ns();
            match message {
                Message::Note(number) => {
                    ctx.record().push((now, number));
                    if number == 10 {
                        ctx.send_at(ctx.now(), Class(1), self.me, Message::Note(12));
                        ctx.send(self.me, Message::Note(11));
                    }
                }
                Message::Loop => ctx.send(self.me, Message::Loop),
                Message::Fail => ctx.fail("as asked"),
            }
        }

        fn wake(&mut self, ctx: &mut Context<'_, Test>) {
            let now = ctx.now().as_ns();
            ctx.record().push((now, self.number));
        }

        fn waiting_for(&self) -> Option<String> {
            (self.number == 100).then(|| "nothing in particular".into())
        }
    }

    fn simulation(schedule: Vec<(u64, u8, Message)>, wakes: [Vec<(u64, u8)>; 2]) -> Simulation<Test> {
        let mut simulation = Simulation::new(7, Vec::new());
        let addresses: Vec<Address<Message>> = vec![simulation.reserve("a"), simulation.reserve("b")];
        let mut schedule = Some(schedule);
        for (index, (me, wakes)) in addresses.into_iter().zip(wakes).enumerate() {
            let schedule = schedule.take().unwrap_or_default();
            simulation.install(me, Noter { me, schedule, wakes, number: 100 + index as u32 });
        }
        simulation
    }

    #[test]
    fn one_instant_runs_lane_then_classes_then_messages_before_wakes() {
        use Message::Note;
        let schedule = vec![(5, 1, Note(13)), (5, 0, Note(10)), (5, 0, Note(20)), (3, 9, Note(1))];
        let mut simulation = simulation(schedule, [vec![(9, 0), (5, 0)], vec![(5, 0)]]);
        assert_eq!(simulation.run(&Limits::default()), Ok(SimTime::from_ns(5)));
        let expected = [(3, 1), (5, 10), (5, 11), (5, 20), (5, 100), (5, 101), (5, 13), (5, 12)];
        assert_eq!(simulation.into_record(), expected);
    }

    #[test]
    fn the_limit_is_inclusive() {
        let mut simulation =
            simulation(vec![(5, 0, Message::Note(1)), (6, 0, Message::Note(2))], [vec![], vec![]]);
        let limits = Limits { until: SimTime::from_ns(5), ..Limits::default() };
        assert_eq!(simulation.run(&limits), Ok(SimTime::from_ns(5)));
        assert_eq!(simulation.waiting(), [("a".to_string(), "nothing in particular".to_string())]);
        assert_eq!(simulation.into_record(), [(5, 1)]);
    }

    #[test]
    fn a_message_loop_is_an_error_that_names_the_actors() {
        let mut simulation = simulation(vec![(5, 0, Message::Loop)], [vec![], vec![]]);
        let limits = Limits { deliveries_per_instant: 1000, ..Limits::default() };
        let error = simulation.run(&limits).unwrap_err();
        assert_eq!(
            error,
            SimulationError::RunAway {
                time: SimTime::from_ns(5),
                deliveries: 1001,
                actors: vec!["a".into()]
            }
        );
    }

    #[test]
    fn a_failing_actor_stops_the_run() {
        let mut simulation =
            simulation(vec![(5, 0, Message::Fail), (6, 0, Message::Note(1))], [vec![], vec![]]);
        let error = simulation.run(&Limits::default()).unwrap_err();
        assert_eq!(error.to_string(), "a at 0.000005 ms: as asked");
    }

    #[test]
    fn an_interrupt_stops_a_run() {
        let schedule = (0..5000).map(|ns| (ns, 0, Message::Note(1))).collect();
        let mut simulation = simulation(schedule, [vec![], vec![]]);
        let limits = Limits { interrupt: Some(Arc::new(AtomicBool::new(true))), ..Limits::default() };
        assert_eq!(simulation.run(&limits), Err(SimulationError::Interrupted));
    }

    #[test]
    fn durations_add_up_exactly() {
        let third = SimDuration::from_ms(1.0 / 3.0).unwrap();
        assert_eq!((SimTime::ZERO + third + third + third).as_ns(), 999_999);
    }
}
