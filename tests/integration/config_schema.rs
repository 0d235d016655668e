//! The schemas under `schemas/` are those of the code.

use std::fs;
use std::path::Path;

use spica::config::schema;

/// Set this environment variable to write the schemas anew.
const RENEW: &str = "SPICA_RENEW_SCHEMAS";

#[test]
fn schemas_are_current() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas");
    for (name, current) in
        [("scenario.schema.json", schema::of_scenarios()), ("search.schema.json", schema::of_searches())]
    {
        let path = folder.join(name);
        if std::env::var_os(RENEW).is_some() {
            fs::write(&path, &current).expect("the schemas can be written");
        }
        let written = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            written == current,
            "schemas/{name} is not current; renew it with\n  {RENEW}=1 cargo test --test integration schemas_are_current"
        );
    }
}
