//! The one table of tools. Names are unique, and what a model is told comes from here.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::call::Tool;

/// The tools of a session, by name. Listed in the order they were added.
#[derive(Clone, Default)]
pub struct Table {
    tools: Vec<Arc<dyn Tool>>,
    places: BTreeMap<String, usize>,
}

/// What a model is told about a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    pub name: String,
    pub description: String,
    pub parameters: Value,
}

/// Two tools under one name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is already a tool named {0}; give the new one another name")]
pub struct DuplicateName(pub String);

impl Table {
    /// No tools.
    pub fn new() -> Self {
        Self::default()
    }

    /// The tools that every session has.
    pub fn standard() -> Self {
        let mut table = Self::new();
        for tool in crate::standard::all() {
            if let Err(error) = table.add(tool) {
                // Names are constants, so a test proves that this does not happen.
                tracing::error!(%error, "a standard tool was left out");
            }
        }
        table
    }

    /// Adds a tool.
    ///
    /// # Errors
    /// [`DuplicateName`]; the table is then as it was.
    pub fn add(&mut self, tool: Arc<dyn Tool>) -> Result<(), DuplicateName> {
        let name = tool.definition().name.to_owned();
        if self.places.contains_key(&name) {
            return Err(DuplicateName(name));
        }
        self.places.insert(name, self.tools.len());
        self.tools.push(tool);
        Ok(())
    }

    /// The tool of this name.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.tools.get(*self.places.get(name)?)
    }

    /// All tools, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Tool>> {
        self.tools.iter()
    }

    /// What a model is told, in order.
    pub fn specs(&self) -> Vec<Spec> {
        self.tools
            .iter()
            .map(|tool| {
                let definition = tool.definition();
                Spec {
                    name: definition.name.to_owned(),
                    description: definition.description.clone(),
                    parameters: definition.parameters.clone(),
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests;
