//! What of YAML a configuration may use.

use crate::config::{SCENARIO, SEARCH, assert_refused, load, problems, scenario, search};

fn says(text: &str, words: &str) -> bool {
    problems(text, &[]).iter().any(|line| line.contains(words))
}

#[test]
fn an_empty_file_says_what_is_required() {
    for text in ["", "\n\n", "# only a comment\n", "---\n", "~\n"] {
        let found = problems(text, &[]);
        assert_eq!(found.len(), 1, "{text:?}: {found:?}");
        for word in ["folder/test.yaml:1: ", "`deployment`", "`workload`", "`search_space`"] {
            assert!(found[0].contains(word), "{text:?}: {}", found[0]);
        }
    }
}

#[test]
fn what_is_no_mapping_is_refused() {
    for text in ["just text", "- a\n- b\n", "42"] {
        assert!(problems(text, &[])[0].contains("keys with values"), "{text:?}");
    }
}

#[test]
fn invalid_yaml_is_refused_with_its_line() {
    for (text, line) in [("a: [1, 2\n", 2), ("a: 1\n b: 2\n", 2), ("a: \"x\n", 2), ("a: }\n", 1)] {
        let found = problems(text, &[]);
        assert_eq!(found.len(), 1, "{text:?}: {found:?}");
        let place = found[0].contains(&format!("test.yaml:{line}: ")) || found[0].contains("test.yaml:1: ");
        assert!(place && found[0].contains("not valid YAML"), "{text:?}: {}", found[0]);
    }
}

#[test]
fn anchors_and_aliases_are_supported_and_bounded() {
    let text = "
deployment:
  mode: disagg
  prefill: &pool {workers: 2, engine: {block_size: 16}}
  decode: *pool
workload: {trace_path: a}
";
    assert!(load(text, &[]).is_ok());

    let level = |level: usize| {
        let items = if level == 0 { "x, ".repeat(10) } else { format!("*a{}, ", level - 1).repeat(10) };
        format!("a{level}: &a{level} [{items}]\n")
    };
    let bomb: String = (0..9).map(level).collect();
    let found = problems(&bomb, &[]);
    assert!(found[0].contains("aliases") && found[0].contains("10000 values"), "{}", found[0]);

    assert!(says("a: *nowhere\n", "a: `*nowhere` names no anchor"));
    assert!(says("a: &x [*x]\n", "part of"));
}

#[test]
fn merge_keys_tags_and_further_documents_are_refused_by_name() {
    let merge = "base: &base {a: 1}\nworkload:\n  <<: *base\n";
    assert!(says(merge, "test.yaml:3: workload.<<: merge keys (`<<`)"));
    let tag = SEARCH.replace("isl: 3000", "isl: !!int 3000");
    assert_refused(&tag, &[], "workload.isl", &["test.yaml:5: ", "tags"]);
    let two = format!("{SEARCH}---\n{SCENARIO}");
    assert!(says(&two, "test.yaml:9: a second document"));
    assert!(load(&format!("---\n{SEARCH}...\n"), &[]).is_ok());
    assert!(says("? [a, b]\n: 1\n", "plain name"));
}

#[test]
fn deep_nesting_is_refused() {
    let text = format!("a: {}{}", "[".repeat(5000), "]".repeat(5000));
    assert!(problems(&text, &[])[0].contains("not valid YAML"));
}

#[test]
fn only_true_and_false_are_booleans() {
    for word in ["yes", "no", "on", "off", "True", "FALSE", "1", "0", "\"true\"", "[]"] {
        let change = format!("search_space.agg_enable_prefix_caching={word}");
        assert_refused(
            SEARCH,
            &[&change],
            "search_space.agg_enable_prefix_caching",
            &["neither true nor false"],
        );
    }
    assert!(
        !search(&["search_space.agg_enable_prefix_caching=false"]).search_space.agg_enable_prefix_caching
    );
}

#[test]
fn numbers_that_are_none_are_refused_everywhere() {
    for word in
        [".nan", ".NaN", ".inf", "-.inf", "nan", "inf", "Infinity", "1e999", "true", "\"1\"", "[1]", "{a: 1}"]
    {
        let change = format!("workload.request_rate={word}");
        assert_refused(SEARCH, &[&change], "workload.request_rate", &["request_rate"]);
    }
    let router = "deployment.router={policy: kv_router, router_temperature: .nan}";
    assert_refused(
        SCENARIO,
        &[router],
        "deployment.router.router_temperature",
        &["`.nan`", "not a finite number"],
    );
    let huge = "deployment.router={policy: x, a: 18446744073709551616}";
    assert_refused(SCENARIO, &[huge], "deployment.router.a", &["64 bits"]);
}

#[test]
fn numbers_are_read_exactly_and_integral_ones_in_any_form() {
    assert_eq!(scenario(&["seed=18446744073709551615"]).seed, u64::MAX);
    assert_eq!(search(&["workload.isl=3e3"]).to_json()["workload"]["isl"], 3000);
    assert_eq!(search(&["workload.isl=3000.0"]).to_json()["workload"]["isl"], 3000);
    assert_eq!(search(&["workload.request_rate=4"]).to_json()["workload"]["request_rate"], 4.0);
    assert_refused(SEARCH, &["workload.isl=3000.5"], "workload.isl", &["`3000.5` is not a whole number"]);
    let beyond = ["`1e20` is out of range: it must be at most 2147483647"];
    assert_refused(SEARCH, &["workload.isl=1e20"], "workload.isl", &beyond);
    assert_refused(
        SEARCH,
        &["workload.isl=-0.7"],
        "workload.isl",
        &["is out of range: it must be 1 or more"],
    );
    let percent = ["`99.9` is out of range", "; write `min_attainment: 0.999`"];
    assert_refused(SEARCH, &["goal.min_attainment=99.9"], "goal.min_attainment", &percent);
    assert_refused(SEARCH, &["workload.isl=1_000"], "workload.isl", &["`isl: 1000`"]);
    assert_refused(SEARCH, &["workload.isl=0x10"], "workload.isl", &["not a whole number"]);
    assert_refused(SEARCH, &["workload.isl=010"], "workload.isl", &["`isl: 10`"]);
}

#[test]
fn look_alikes_are_named_by_code_point() {
    let no_break = SEARCH.replace("  osl:", "\u{a0}\u{a0}osl:");
    assert!(says(&no_break, "line 6 has U+00A0 (no-break space)"));
    let cyrillic = SEARCH.replace("  hardware_sku", "  b\u{430}ckend: [vllm]\n  hardware_sku");
    assert_refused(
        &cyrillic,
        &[],
        "search_space.b\u{430}ckend",
        &["U+0430 (a Cyrillic letter)", "did you mean `backend`?"],
    );
    let colon = SEARCH.replace("isl: 3000", "isl\u{ff1a} 3000");
    assert!(says(&colon, "U+FF1A (a colon that is not `:`)"));
    let value = SEARCH.replace("4.0", "4.0\u{a0}");
    assert_refused(&value, &[], "workload.request_rate", &["U+00A0", "`request_rate: 4`"]);
    let quotes = SEARCH.replace("hardware_sku", "backend: [\u{201c}vllm\u{201d}]\n  hardware_sku");
    assert_refused(&quotes, &[], "search_space.backend[0]", &["U+201C", "did you mean `vllm`?"]);
}

#[test]
fn windows_line_ends_and_a_byte_order_mark_are_no_problem() {
    let text = format!("\u{feff}{}", SEARCH.replace('\n', "\r\n"));
    assert!(load(&text, &[]).is_ok(), "{:?}", problems(&text, &[]));
}

#[test]
fn tabs_are_refused_in_the_indentation_and_nowhere_else() {
    let text = SEARCH.replace("  osl", " \tosl");
    let found = problems(&text, &[]);
    assert_eq!(found.len(), 1);
    assert!(found[0].contains("test.yaml:6: line 6 is indented with a tab"), "{}", found[0]);
    let harmless = SEARCH.replace("osl: 300", "osl: 300\t# a comment\n\t# another\n\t");
    assert!(load(&harmless, &[]).is_ok(), "{:?}", problems(&harmless, &[]));
}

#[test]
fn an_empty_value_is_refused_where_there_is_a_default() {
    assert_refused(SEARCH, &["search_space.gpu_budget="], "search_space.gpu_budget", &["no value"]);
    assert_refused(SEARCH, &["sweep="], "sweep", &["no value"]);
    assert_eq!(search(&["search_space.min_gpu_budget=null"]).search_space.min_gpu_budget, None);
    assert_eq!(scenario(&["deployment.planner=~"]).deployment.planner, None);
}

#[test]
fn very_many_problems_are_cut_short() {
    let mut text = SEARCH.to_owned();
    text.extend((0..20_000).map(|number| format!("key_{number}: 1\n")));
    let shown = load(&text, &[]).expect_err("has unknown keys").to_string();
    assert!(shown.ends_with("and 19950 more problems"), "{}", &shown[shown.len() - 200..]);
}

#[test]
fn several_problems_of_all_kinds_come_at_once_and_in_order() {
    let text = "
search_space:
  model_name: a
  hardware_sku: b
  gpu_budget: -4
  gpu_budget: 4
workload:
  isl: 0
  osl: none
goal: {target: pareot}
sweep: 7
";
    let found = problems(text, &[]);
    let paths: Vec<&str> = found.iter().map(|line| line.split(": ").nth(1).unwrap_or_default()).collect();
    let expected = [
        "search_space.gpu_budget",
        "search_space.gpu_budget",
        "workload.num_request_ratio",
        "workload.isl",
        "workload.osl",
        "goal.target",
        "sweep",
    ];
    assert_eq!(paths, expected, "{found:#?}");
}
