//! Arguments of tool calls, read strictly. A model's stream can break off anywhere, and
//! arguments that were patched up to parse have run half a shell command before
//! (`Terret spec §7`, check 47): what is not one whole JSON object is refused.

use std::fmt;

use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Reads the arguments of a call: one JSON object with no key twice (at any depth) and
/// nothing after it. Empty text means no arguments. The error says what is wrong without
/// repeating the arguments.
pub(crate) fn parse_arguments(text: &str) -> Result<Value, String> {
    if text.trim().is_empty() {
        return Ok(Value::Object(Map::new()));
    }
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = Strict
        .deserialize(&mut reader)
        .and_then(|value| reader.end().map(|()| value))
        .map_err(|error| format!("they are not valid JSON: {error}"))?;
    match value {
        Value::Object(_) => Ok(value),
        Value::Array(_) => Err("they are a JSON list and not an object".to_owned()),
        _ => Err("they are a bare JSON value and not an object".to_owned()),
    }
}

/// Reads any JSON value and refuses an object that has a key twice.
struct Strict;

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        serde_json::Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("a number is out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Strict)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let value = entries.next_value_seed(Strict)?;
            if object.insert(key, value).is_some() {
                return Err(A::Error::custom("a key is there twice"));
            }
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn empty_text_means_no_arguments() {
        assert_eq!(parse_arguments("").unwrap(), json!({}));
        assert_eq!(parse_arguments(" \n").unwrap(), json!({}));
    }

    #[test]
    fn r055_only_one_whole_object_passes() {
        assert_eq!(
            parse_arguments(r#" {"a":{"b":[1,2.5,-3,null,true,"x"]}} "#).unwrap(),
            json!({"a": {"b": [1, 2.5, -3, null, true, "x"]}})
        );
        for bad in [
            r#"{"path":"f","content":"abc"#,
            r#"{"path":"f"}}"#,
            r#"{"path":"f"} and then"#,
            r#"{"a":1}{"a":2}"#,
            r#"{"a":1,"a":2}"#,
            r#"{"x":[{"a":1,"b":2,"a":3}]}"#,
            r#"["a"]"#,
            "null",
            "7",
            r#"{"a":1,}"#,
            r#"{'a':1}"#,
            r#"{"a":1e999}"#,
        ] {
            assert!(parse_arguments(bad).is_err(), "{bad} passed");
        }
    }

    proptest! {
        #[test]
        fn a_cut_object_never_passes(text in ".{0,20}", number: i64, cut: prop::sample::Index) {
            let whole = json!({"path": text, "n": [number, {"deep": null}]}).to_string();
            prop_assert!(parse_arguments(&whole).is_ok());
            let ends: Vec<usize> = whole.char_indices().map(|(at, _)| at).skip(1).collect();
            let part: String = whole.get(..*cut.get(&ends)).unwrap_or_default().to_owned();
            prop_assert!(parse_arguments(&part).is_err());
        }

        #[test]
        fn any_text_is_judged_without_a_panic(text in ".*") {
            let _ = parse_arguments(&text);
        }
    }
}
