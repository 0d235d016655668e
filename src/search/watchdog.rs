//! Stops replays that take too long by the wall clock.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// How late a replay may be stopped.
const PATROL: Duration = Duration::from_millis(20);

type Watched = Mutex<Vec<(Instant, Arc<AtomicBool>)>>;

/// Raises the flag of each replay that it watches when its time is up, and all flags when the search is told to stop.
#[derive(Debug)]
pub(super) struct Watchdog {
    limit: Duration,
    watched: Arc<Watched>,
}

impl Watchdog {
    /// Starts a thread that lives as long as the watchdog.
    pub(super) fn start(limit: Duration, interrupt: Arc<AtomicBool>) -> std::io::Result<Self> {
        let watched = Arc::new(Watched::default());
        let patrolled = Arc::downgrade(&watched);
        thread::Builder::new().name("spica-watchdog".into()).spawn(move || patrol(&patrolled, &interrupt))?;
        Ok(Self { limit, watched })
    }

    /// Watches a replay that starts now, until the answer is dropped.
    pub(super) fn watch(&self) -> Leash<'_> {
        let flag = Arc::new(AtomicBool::new(false));
        // A limit beyond the end of the clock is none.
        let deadline = Instant::now().checked_add(self.limit);
        if let Some(deadline) = deadline {
            lock(&self.watched).push((deadline, Arc::clone(&flag)));
        }
        Leash { deadline, flag, watchdog: self }
    }
}

/// Keeps a replay watched.
pub(super) struct Leash<'a> {
    deadline: Option<Instant>,
    flag: Arc<AtomicBool>,
    watchdog: &'a Watchdog,
}

impl Leash<'_> {
    /// Whether the time is up, also when nobody has come round to say so.
    pub(super) fn is_over(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Raised when the replay has to stop.
    pub(super) fn flag(&self) -> &Arc<AtomicBool> {
        &self.flag
    }
}

impl Drop for Leash<'_> {
    fn drop(&mut self) {
        lock(&self.watchdog.watched).retain(|(_, flag)| !Arc::ptr_eq(flag, &self.flag));
    }
}

fn patrol(watched: &Weak<Watched>, interrupt: &AtomicBool) {
    while let Some(watched) = watched.upgrade() {
        let (now, stop_all) = (Instant::now(), interrupt.load(Ordering::Relaxed));
        for (deadline, flag) in &*lock(&watched) {
            if stop_all || now >= *deadline {
                flag.store(true, Ordering::Relaxed);
            }
        }
        drop(watched);
        thread::sleep(PATROL);
    }
}

/// The list stays whole whatever panics while holding it.
fn lock(watched: &Watched) -> MutexGuard<'_, Vec<(Instant, Arc<AtomicBool>)>> {
    watched.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raised(leash: &Leash<'_>) -> bool {
        leash.flag().load(Ordering::Relaxed)
    }

    #[test]
    fn flags_go_up_when_time_is_up() {
        let watchdog = Watchdog::start(Duration::from_millis(1), Arc::default()).unwrap();
        let leash = watchdog.watch();
        let started = Instant::now();
        while !raised(&leash) {
            assert!(started.elapsed() < Duration::from_secs(20));
            thread::sleep(Duration::from_millis(1));
        }
        drop(leash);
        assert!(lock(&watchdog.watched).is_empty());
    }

    #[test]
    fn all_flags_go_up_when_the_search_is_told_to_stop() {
        let interrupt = Arc::new(AtomicBool::new(false));
        let watchdog = Watchdog::start(Duration::from_secs(1000), Arc::clone(&interrupt)).unwrap();
        let leash = watchdog.watch();
        thread::sleep(2 * PATROL);
        assert!(!raised(&leash));
        interrupt.store(true, Ordering::Relaxed);
        let started = Instant::now();
        while !raised(&leash) {
            assert!(started.elapsed() < Duration::from_secs(20));
            thread::sleep(Duration::from_millis(1));
        }
    }
}
