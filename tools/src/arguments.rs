//! The arguments of a call against its tool's schema, before the tool runs.
//!
//! A model's mistake must come back as one plain sentence that names the parameter, what
//! came and what is wanted; never as a parser's words. Unknown parameters are no mistake:
//! they are dropped and named in a remark (`spec: the tools as a model sees them`).

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::call::Failure;

/// Arguments that fit the schema, and what was ignored on the way.
#[derive(Debug, Clone, PartialEq)]
pub struct Checked {
    pub args: Value,
    /// Remarks for the ledger.
    pub remarks: Vec<String>,
}

/// The description and the parameter schema that an input struct's doc comments make.
pub fn describe<T: JsonSchema>() -> (String, Value) {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        // Some providers do not follow references.
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value();
    let mut description = String::new();
    if let Value::Object(root) = &mut schema {
        root.remove("title");
        if let Some(Value::String(text)) = root.remove("description") {
            description = text;
        }
        root.entry("properties")
            .or_insert_with(|| Value::Object(Map::new()));
    }
    tidy(&mut schema);
    (description, schema)
}

/// Reads checked arguments into the tool's input struct.
pub fn parse<T: DeserializeOwned>(args: Value) -> Result<T, Failure> {
    serde_json::from_value(args).map_err(|error| {
        tracing::warn!(%error, "arguments passed the schema and not the struct");
        Failure::new("the arguments do not have the form that the tool's parameters describe")
    })
}

/// Checks `args` against `schema`. A tool outside this process (`mcp__…`) gets unknown
/// parameters as they came, since its own schema may be open.
///
/// # Errors
/// One sentence for the model.
pub fn check(tool: &str, schema: &Value, args: Value) -> Result<Checked, Failure> {
    let args = match args {
        Value::Null => Value::Object(Map::new()),
        other => other,
    };
    let mut remarks = Vec::new();
    let open = tool.starts_with("mcp__");
    let args = fit(&Place::Root, schema, args, open, &mut remarks)?;
    Ok(Checked { args, remarks })
}

/// Where in the arguments a value stands, for the words of a refusal.
enum Place<'a> {
    Root,
    Member { of: &'a Place<'a>, name: &'a str },
    Item { of: &'a Place<'a>, number: usize },
}

impl Place<'_> {
    fn words(&self) -> String {
        match self {
            Self::Root => "the set of arguments".to_owned(),
            Self::Member {
                of: Self::Root,
                name,
            } => format!("`{name}`"),
            Self::Member { of, name } => format!("`{name}` of {}", of.words()),
            Self::Item { of, number } => format!("item {number} of {}", of.words()),
        }
    }
}

fn fit(
    place: &Place<'_>,
    schema: &Value,
    value: Value,
    open: bool,
    remarks: &mut Vec<String>,
) -> Result<Value, Failure> {
    let Value::Object(rules) = schema else {
        return Ok(value);
    };
    let wanted = types(rules);
    let value = listed(coerce(value, &wanted), &wanted, rules);
    if !wanted.is_empty() && !wanted.iter().any(|name| has_type(&value, name)) {
        return Err(Failure::new(format!(
            "{} is {}, and {} is wanted",
            place.words(),
            shown(&value),
            wanted
                .iter()
                .map(|name| with_article(name))
                .collect::<Vec<_>>()
                .join(" or ")
        )));
    }
    if let Some(Value::Array(choices)) = rules.get("enum")
        && !choices.contains(&value)
    {
        let choices = choices.iter().map(plain).collect::<Vec<_>>().join(", ");
        return Err(Failure::new(format!(
            "{} is {}, and one of {choices} is wanted",
            place.words(),
            shown(&value)
        )));
    }
    check_range(place, rules, &value)?;
    match value {
        Value::Object(members) => {
            fit_object(place, rules, members, open, remarks).map(Value::Object)
        }
        Value::Array(items) => {
            let Some(rule) = rules.get("items") else {
                return Ok(Value::Array(items));
            };
            let mut fitted = Vec::with_capacity(items.len());
            for (index, item) in items.into_iter().enumerate() {
                let here = Place::Item {
                    of: place,
                    number: index + 1,
                };
                fitted.push(fit(&here, rule, item, open, remarks)?);
            }
            Ok(Value::Array(fitted))
        }
        other => Ok(other),
    }
}

fn fit_object(
    place: &Place<'_>,
    rules: &Map<String, Value>,
    members: Map<String, Value>,
    open: bool,
    remarks: &mut Vec<String>,
) -> Result<Map<String, Value>, Failure> {
    let Some(Value::Object(properties)) = rules.get("properties") else {
        return Ok(members);
    };
    let required: Vec<&str> = match rules.get("required") {
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let mut fitted = Map::new();
    for (name, value) in members {
        let here = Place::Member {
            of: place,
            name: &name,
        };
        match properties.get(&name) {
            // Models write null for "not given".
            Some(rule) if value.is_null() && !has_null(rule) => {
                if required.contains(&name.as_str()) {
                    return Err(Failure::new(format!(
                        "{} is null, and {} is wanted",
                        here.words(),
                        wanted_words(rule)
                    )));
                }
            }
            Some(rule) => {
                let value = fit(&here, rule, value, open, remarks)?;
                fitted.insert(name, value);
            }
            None if open => {
                fitted.insert(name, value);
            }
            None => remarks.push(format!(
                "ignored {}: there is no such parameter",
                here.words()
            )),
        }
    }
    for name in required {
        if !fitted.contains_key(name) {
            let here = Place::Member { of: place, name };
            let wanted = properties
                .get(name)
                .map_or_else(|| "a value".to_owned(), wanted_words);
            return Err(Failure::new(format!(
                "{} is missing, and {wanted} is wanted",
                here.words()
            )));
        }
    }
    Ok(fitted)
}

fn check_range(
    place: &Place<'_>,
    rules: &Map<String, Value>,
    value: &Value,
) -> Result<(), Failure> {
    let Some(number) = value.as_f64() else {
        return Ok(());
    };
    if let Some(least) = rules.get("minimum").and_then(Value::as_f64)
        && number < least
    {
        return Err(Failure::new(format!(
            "{} is {}, and at least {least} is wanted",
            place.words(),
            shown(value)
        )));
    }
    if let Some(most) = rules.get("maximum").and_then(Value::as_f64)
        && number > most
    {
        return Err(Failure::new(format!(
            "{} is {}, and at most {most} is wanted",
            place.words(),
            shown(value)
        )));
    }
    Ok(())
}

fn types(rules: &Map<String, Value>) -> Vec<String> {
    match rules.get("type") {
        Some(Value::String(name)) => vec![name.clone()],
        Some(Value::Array(names)) => names
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect(),
        _ => Vec::new(),
    }
}

fn has_null(rule: &Value) -> bool {
    match rule {
        Value::Object(rules) => {
            let names = types(rules);
            names.is_empty() || names.iter().any(|name| name == "null")
        }
        _ => true,
    }
}

/// Models send `"10"` for 10, and `10.0` for 10; both can mean one thing only.
fn coerce(value: Value, wanted: &[String]) -> Value {
    let wants = |name: &str| wanted.iter().any(|one| one == name);
    match &value {
        Value::String(text) if wants("integer") && !wants("string") => {
            text.trim().parse::<i64>().map_or(value, Value::from)
        }
        Value::Number(number) if wants("integer") && !number.is_i64() && !number.is_u64() => {
            match number.as_f64() {
                Some(float) if float.fract() == 0.0 && float.abs() < 9_007_199_254_740_992.0 => {
                    format!("{float:.0}")
                        .parse::<i64>()
                        .map_or(value, Value::from)
                }
                _ => value,
            }
        }
        _ => value,
    }
}

/// One text where a list of texts is wanted is a list of one (`Terret spec §6`).
fn listed(value: Value, wanted: &[String], rules: &Map<String, Value>) -> Value {
    let of_texts =
        matches!(rules.get("items"), Some(Value::Object(items)) if types(items) == ["string"]);
    if value.is_string() && of_texts && wanted == ["array"] {
        return Value::Array(vec![value]);
    }
    value
}

fn has_type(value: &Value, name: &str) -> bool {
    match name {
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        _ => true,
    }
}

fn with_article(name: &str) -> String {
    match name {
        "array" => "a list".to_owned(),
        "object" | "integer" => format!("an {name}"),
        "null" => "null".to_owned(),
        _ => format!("a {name}"),
    }
}

fn wanted_words(rule: &Value) -> String {
    let Value::Object(rules) = rule else {
        return "a value".to_owned();
    };
    if let Some(Value::Array(choices)) = rules.get("enum") {
        return format!(
            "one of {}",
            choices.iter().map(plain).collect::<Vec<_>>().join(", ")
        );
    }
    let names = types(rules);
    if names.is_empty() {
        return "a value".to_owned();
    }
    names
        .iter()
        .filter(|name| *name != "null")
        .map(|name| with_article(name))
        .collect::<Vec<_>>()
        .join(" or ")
}

/// What came, kind and value, never longer than a line.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(flag) => format!("the boolean {flag}"),
        Value::Number(number) => format!("the number {number}"),
        Value::String(_) => format!("the string {}", plain(value)),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

fn plain(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= 60 {
        return text;
    }
    let mut cut: String = text.chars().take(60).collect();
    cut.push('…');
    cut
}

/// Drops what only Rust needs from a generated schema.
fn tidy(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            if let Some(Value::String(format)) = members.get("format")
                && (format.starts_with("uint") || format.starts_with("int"))
            {
                members.remove("format");
            }
            // An optional field is optional by not being required.
            if let Some(Value::Array(names)) = members.get_mut("type") {
                names.retain(|name| name != "null");
                if let [only] = names.as_slice() {
                    let only = only.clone();
                    members.insert("type".to_owned(), only);
                }
            }
            if members.get("default").is_some_and(Value::is_null) {
                members.remove("default");
            }
            for member in members.values_mut() {
                tidy(member);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
