#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{DuplicateName, Table};
use crate::definition::Concurrency::Serial;
use crate::floor::Floor;
use crate::testing::Puppet;

#[test]
fn the_standard_table_lists_every_standard_tool_once() {
    let names: Vec<&str> = crate::standard::all()
        .iter()
        .map(|tool| tool.definition().name)
        .collect();
    let unique: BTreeSet<&str> = names.iter().copied().collect();
    assert_eq!(unique.len(), names.len(), "two tools share a name");
    assert_eq!(Table::standard().iter().count(), names.len());
    for name in names {
        assert!(
            Floor::default().admits(name),
            "{name} is not on the default floor"
        );
    }
}

#[test]
fn a_second_tool_of_a_name_is_refused() {
    let mut table = Table::new();
    table
        .add(Arc::new(Puppet::echo("P", Serial)))
        .expect("the first");
    let refused = table.add(Arc::new(Puppet::echo("P", Serial)));
    assert_eq!(refused, Err(DuplicateName("P".to_owned())));
    assert_eq!(table.iter().count(), 1);
}

#[test]
fn every_tool_describes_itself_and_its_parameters() {
    for spec in Table::standard().specs() {
        assert!(
            !spec.description.trim().is_empty(),
            "{} has no description",
            spec.name
        );
        let properties = spec
            .parameters
            .get("properties")
            .and_then(serde_json::Value::as_object);
        for (name, schema) in properties.expect("an object schema") {
            assert!(
                schema.get("description").is_some(),
                "{}.{name} has no description",
                spec.name
            );
        }
        assert!(
            !spec.parameters.to_string().contains("$ref"),
            "{} has a reference",
            spec.name
        );
    }
}

#[test]
fn what_the_model_reads_of_the_file_tools() {
    let specs: Vec<_> = Table::standard()
        .specs()
        .into_iter()
        .filter(|spec| ["Read", "Write", "Edit", "MultiEdit", "TodoWrite"].contains(&spec.name.as_str()))
        .map(|spec| serde_json::json!({"name": spec.name, "description": spec.description, "parameters": spec.parameters}))
        .collect();
    insta::assert_json_snapshot!(specs);
}
