//! A search from a program: `cargo run --release --example library`
//!
//! It looks for the router with the lowest latency, says after every round how far it is, stops when a deployment is good
//! enough, and replays the best once more for figures that the ranking does not hold.

use spica::registry::Registry;
use spica::run::{Cancel, Replay, Search};

/// Mean latency with which the search is content.
const GOOD_ENOUGH_MS: f64 = 1000.0;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cancel = Cancel::new();
    let content = cancel.clone();
    let overrides = ["sweep.max_rounds=4", "sweep.candidates_per_round=6", "sweep.exhaustive=false"];
    let overrides = overrides.map(str::parse).into_iter().collect::<Result<Vec<_>, _>>()?;
    let answer = Search::from_file("scenarios/router_comparison.yaml", &overrides)?
        .with_registry(Registry::builtin())
        .on_round(move |round| {
            let scores = round.trials.iter().filter_map(|trial| trial.score);
            let best_ms = -scores.fold(f64::NEG_INFINITY, f64::max);
            println!("round {}: {} trials, best {best_ms:.0} ms", round.number, round.trials.len());
            if best_ms < GOOD_ENOUGH_MS {
                content.cancel();
            }
        })
        .cancelled_by(&cancel)
        .run()?;
    let best = answer.best().ok_or("no deployment can serve this")?;
    println!("{}", best.scenario.to_yaml());
    let replayed = Replay::new(best.scenario.clone()).run()?;
    println!("{} requests, {:.0} ms on average", replayed.record.requests.len(), -best.score);
    Ok(())
}
