//! Sessions.

use super::*;

#[test]
fn ids_of_a_session_are_no_ids_of_another() {
    let row = |session: &str, ids: &str, scope: &str| {
        format!(
            "{{\"timestamp\": 0, \"session_id\": \"{session}\", \"output_length\": 2, \"hash_ids\": {ids}{scope}}}\n"
        )
    };
    let local = ", \"hash_id_scope\": \"local\"";
    let text = [row("a", "[0, 1]", local), row("b", "[0, 7]", local), row("a", "[0, 1, 2]", local)].concat();
    let loaded = accept(&text, &options());
    assert_eq!(loaded.workload.chunk_ids, [0, 1, 2, 3, 0, 1, 4]);
    assert_eq!(loaded.workload.chunk_names, [0, 1, 2, 3, 4]);
    assert_eq!(loaded.warnings, []);
    // An export keeps them apart.
    let mut exported = Vec::new();
    write(&loaded.workload, &mut exported).unwrap().unwrap();
    let again = read(&exported[..], &options()).unwrap();
    assert_eq!((again.workload.chunk_ids.len(), again.workload.chunk_names.len()), (7, 5));

    let mixed = [row("a", "[0]", local), row("b", "[0]", ", \"hash_id_scope\": \"global\"")].concat();
    let message = refusal(&mixed, &options());
    assert!(message.contains("hash_id_scope: the ids of line 1 belong to their session"), "{message}");
    let message = refusal(&row("a", "[0]", ", \"hash_id_scope\": \"session\""), &options());
    assert!(message.contains("\"session\" is neither \"global\" nor \"local\""), "{message}");
    let alone = "{\"timestamp\": 0, \"output_length\": 2, \"hash_ids\": [1], \"hash_id_scope\": \"local\"}";
    assert!(refusal(alone, &options()).contains("has no session_id"));
}

#[test]
fn turns_follow_one_another_within_their_session() {
    let loaded =
        accept(TWO_SESSIONS, &Options { pacing: Pacing { concurrency: None, speedup: 2.0 }, ..options() });
    let workload = &loaded.workload;
    // x with its four turns, then y (10 ms), then the row of its own (20 ms).
    assert_eq!(workload.session_starts, [RequestId(0), RequestId(4), RequestId(5)]);
    assert_eq!(each(&loaded, |r| r.session), [0, 0, 0, 0, 2, 1]);
    assert_eq!(each(&loaded, |r| r.turn), [0, 1, 2, 3, 0, 0]);
    assert_eq!(
        each(&loaded, |r| r.next_turn.map(|next| next.0)),
        [Some(1), Some(2), Some(3), None, None, None]
    );
    assert_eq!(each(&loaded, |r| r.arrival), [0.0, 0.0, 0.0, 0.0, 10.0, 20.0].map(ms));
    assert_eq!(each(&loaded, |r| r.delay.as_ms()), [0.0, 50.0, 3.5, 0.0, 0.0, 0.0]);
    assert_eq!(workload.session_names, [Some("x".into()), None, Some("y".into())]);
    assert_eq!(workload.input.repaired["out of order"], 1);
    assert_eq!(
        loaded.warnings.iter().map(|w| w.kind.as_str()).collect::<Vec<_>>(),
        ["out of order", "shrinking session"]
    );
}

#[test]
fn a_closed_loop_over_sessions_keeps_file_order_and_think_times() {
    let pacing = Pacing { concurrency: Some(1), speedup: 2.0 };
    let loaded = accept(TWO_SESSIONS, &Options { pacing, ..options() });
    assert_eq!(loaded.workload.concurrency, Some(1));
    assert_eq!(each(&loaded, |r| r.session), [0, 0, 0, 0, 1, 2]);
    assert_eq!(each(&loaded, |r| r.delay.as_ms()), [0.0, 100.0, 7.0, 0.0, 0.0, 0.0]);
    assert!(loaded.workload.input.repaired.is_empty());
    assert!(loaded.warnings.iter().any(|warning| warning.message.contains("no effect in a closed loop")));
}

#[test]
fn a_closed_loop_over_single_rows_sorts_by_arrival_or_needs_none() {
    let row = |field: &str| format!("{{{field}\"output_length\": 1, \"hash_ids\": [1]}}\n");
    let text = row("\"timestamp\": 9, \"request_id\": \"late\", ")
        + &row("\"timestamp\": 1, \"request_id\": \"early\", ");
    let loaded = accept(&text, &closed(4));
    assert_eq!(each(&loaded, |r| r.name.clone().unwrap()), ["early".into(), "late".into()]);
    assert_eq!(loaded.workload.input.repaired["out of order"], 1);

    let without = row("") + &row("");
    assert_eq!(accept(&without, &closed(4)).workload.requests.len(), 2);
    let message = refusal(&without, &options());
    assert!(message.contains("line 1: timestamp: missing") && message.contains("line 2: timestamp: missing"));
    let message = refusal(&(row("\"timestamp\": 9, ") + &row("")), &closed(4));
    assert!(message.contains("line 2: timestamp: missing here and in 1 row in all"), "{message}");
}

#[test]
fn impossible_turns_are_refused() {
    let turn = |fields: &str| {
        format!("{{\"session_id\": \"s\", {fields}, \"output_length\": 1, \"hash_ids\": [1]}}\n")
    };
    for (first, second, part) in [
        ("\"timestamp\": 0, \"delay\": 5", None, "line 1: delay: 5 ms: the first turn"),
        ("\"delay\": 0", None, "line 1: timestamp: missing"),
        ("\"timestamp\": 10", Some("\"timestamp\": 5"), "line 2: timestamp: 5 ms lies before 10 ms"),
        ("\"timestamp\": 10", Some("\"delay\": -5"), "line 2: delay: -5 is negative"),
        ("\"timestamp\": 10", Some("\"delay\": 1e300"), "line 2: delay: "),
    ] {
        let message = refusal(&(turn(first) + &second.map(turn).unwrap_or_default()), &options());
        assert!(message.contains(part), "{part}\n---\n{message}");
    }
    let unstamped = turn("\"timestamp\": 1") + &turn("\"delay\": 3") + &turn("\"timestamp\": 9");
    let message = refusal(&unstamped, &options());
    assert!(
        message.contains("line 3: timestamp: the previous turn of this session has no time stamp"),
        "{message}"
    );
}

#[test]
fn a_refused_row_does_not_cast_doubt_on_the_turns_after_it() {
    let text = r#"{"session_id": "s", "timestamp": -1, "output_length": 1, "hash_ids": [1]}
        {"session_id": "s", "delay": 5, "output_length": 1, "hash_ids": [1]}"#;
    let errors = read(text.as_bytes(), &options()).unwrap_err();
    assert_eq!(errors.problems.len(), 1, "{errors}");
}

#[test]
fn a_dropped_turn_takes_no_time() {
    let text = r#"{"session_id": "s", "timestamp": 100, "output_length": 0, "hash_ids": [1]}
        {"session_id": "s", "delay": 5, "output_length": 1, "hash_ids": [2]}
        {"session_id": "s", "timestamp": 0, "delay": 7, "output_length": 0, "hash_ids": [3]}
        {"session_id": "s", "timestamp": 30, "output_length": 1, "hash_ids": [4]}
        {"session_id": "t", "timestamp": 101, "output_length": 0, "hash_ids": [1]}
        {"timestamp": 90, "output_length": 1, "hash_ids": [5]}"#;
    let loaded = accept(text, &options());
    assert_eq!(each(&loaded, |r| (r.session, r.turn)), [(1, 0), (0, 0), (0, 1)]);
    assert_eq!(each(&loaded, |r| r.arrival), [0.0, 15.0, 0.0].map(ms));
    assert_eq!(loaded.workload.requests[2].delay, SimDuration::from_ms(37.0).unwrap());
    assert_eq!(loaded.workload.session_names, [Some("s".into()), None]);
}
