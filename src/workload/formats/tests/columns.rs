//! Tables of one's own, whose columns are named by the reader.

use super::*;

/// Columns `ts`, `in`, `out` and `who`, with or without the first.
pub(super) fn own_columns(has_times: bool) -> Options {
    let columns = TraceColumns {
        input_length: "in".into(),
        output_length: "out".into(),
        arrival: has_times.then(|| "ts".into()),
        request_id: Some("who".into()),
    };
    Options { columns: Some(columns), ..Options::default() }
}

#[test]
fn a_table_of_ones_own_needs_the_names_of_its_columns() {
    let text = "who,OUT,extra,in,ts\na,5,x,100,10.5\nb,6,y,200,12\n";
    let loaded = read_text(TraceFormat::Columns, text, &own_columns(true)).unwrap();
    assert_eq!(rows(&loaded), [(0.0, 100, 5), (1500.0, 200, 6)]);
    assert_eq!(loaded.workload.requests[1].name.as_deref(), Some("b"));
    assert_eq!(loaded.workload.input.ignored["extra"], 2);
    let in_ms = Options { time_unit: Some(TraceTimeUnit::Ms), ..own_columns(true) };
    assert_eq!(rows(&read_text(TraceFormat::Columns, text, &in_ms).unwrap()), [(0.0, 100, 5), (1.5, 200, 6)]);
    let clock = text.replace("10.5", "2024-05-10 00:00:01.25").replace(",12\n", ",2024-05-10 00:00:02\n");
    let loaded = read_text(TraceFormat::Columns, &clock, &own_columns(true)).unwrap();
    assert_eq!(rows(&loaded), [(0.0, 100, 5), (750.0, 200, 6)]);
    let objects = "{\"ts\": 10.5, \"in\": 100, \"out\": 5, \"who\": 7, \"model\": \"m\"}\n{\"ts\": \"12\", \"in\": 200, \"out\": 6}\n";
    let loaded = read_text(TraceFormat::Columns, objects, &own_columns(true)).unwrap();
    assert_eq!(rows(&loaded), [(0.0, 100, 5), (1500.0, 200, 6)]);
    assert_eq!(loaded.workload.requests[0].name.as_deref(), Some("7"));
    assert_eq!(loaded.workload.input.ignored["model"], 1);
}

#[test]
fn a_table_of_ones_own_without_times_needs_a_rate() {
    let text = "in,out,who\n100,5,a\n200,6,b\n";
    let rate = Some((2.0, Arrival { process: ArrivalProcess::Fixed, seed: 1 }));
    let with_rate = Options { rate, ..own_columns(false) };
    let loaded = read_text(TraceFormat::Columns, text, &with_rate).unwrap();
    assert_eq!(rows(&loaded), [(0.0, 100, 5), (500.0, 200, 6)]);
    refused(
        TraceFormat::Columns,
        text,
        &own_columns(false),
        &["request rate: missing: no column of arrivals"],
    );
    let both = Options { rate, ..own_columns(true) };
    refused(TraceFormat::Columns, text, &both, &["request rate: there is a column of arrivals"]);
    let unit = Options { time_unit: Some(TraceTimeUnit::Ms), ..with_rate };
    refused(TraceFormat::Columns, text, &unit, &["time unit: there is no column of arrivals"]);
}

#[test]
fn what_a_table_of_ones_own_lacks_is_named() {
    let parts = ["line 1: ts: missing; found in, out, who"];
    refused(TraceFormat::Columns, "in,out,who\n1,2,a\n", &own_columns(true), &parts);
    let parts = [
        "line 2, column 1: in: -3 is negative",
        "line 2, column 6: out: \"x\" is not a number",
        "line 3, column 3: ts: ",
    ];
    refused(TraceFormat::Columns, "in,ts,out,who\n-3,1,x,a\n1,2:61,3,b\n", &own_columns(true), &parts);
    let parts = ["line 1: in: missing", "line 1: ts: \"soon\" is not a"];
    refused(TraceFormat::Columns, "{\"ts\": \"soon\", \"out\": 5}\n", &own_columns(true), &parts);
    refused(TraceFormat::Columns, "a\n1\n", &Options::default(), &["columns: missing"]);
    refused(
        TraceFormat::Azure,
        AZURE,
        &own_columns(true),
        &["columns: the columns of azure have names of their own"],
    );
    let twice = TraceColumns { output_length: "IN".into(), ..own_columns(true).columns.unwrap() };
    let twice = Options { columns: Some(twice), ..Options::default() };
    refused(
        TraceFormat::Columns,
        "in,ts\n",
        &twice,
        &["output_length is the column `IN`, which is `input_length` already"],
    );
    // A table that nobody knows is pointed there.
    refused(
        TraceFormat::BurstGpt,
        "ts,in,out\n1,2,3\n",
        &Options::default(),
        &["hint: a table of another form", "--from columns"],
    );
}

#[test]
fn the_times_of_one_trace_are_of_one_kind() {
    let rows = |first: &str, second: &str| format!("ts,in,out,who\n{first},1,2,a\n{second},1,2,b\n");
    let clock = "2024-05-10 00:00:01";
    for (first, second, part) in [
        (
            "0",
            clock,
            "line 3, column 1: ts: \"2024-05-10 00:00:01\" is a wall clock, and the rows before it have numbers",
        ),
        (clock, "7", "line 3, column 1: ts: \"7\" is a number, and the rows before it have a wall clock"),
        (
            clock,
            "2024-05-10 00:00:02Z",
            "line 3, column 1: ts: \"2024-05-10 00:00:02Z\" has an offset from UTC, and the rows before it have none",
        ),
        ("2024-05-10T00:00:01+02:00", clock, "has no offset from UTC, and the rows before it have one"),
    ] {
        refused(TraceFormat::Columns, &rows(first, second), &own_columns(true), &[part]);
    }
    let in_ms = Options { time_unit: Some(TraceTimeUnit::Ms), ..own_columns(true) };
    refused(
        TraceFormat::Columns,
        &rows(clock, clock),
        &in_ms,
        &["line 2, column 1", "is a wall clock, so no time unit can be given"],
    );
    refused(
        TraceFormat::Azure,
        &AZURE.replace("04.0319600", "04.0319600+00:00"),
        &Options::default(),
        &["line 4, column 1: TIMESTAMP: ", "has an offset from UTC, and the rows before it have none"],
    );
}
