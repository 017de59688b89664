//! JSON from outside, read without the lenience of a usual parser.
//!
//! A usual parser keeps the last of two equal keys, so what a rule judged and what
//! a tool ran could differ by reader. Here such text is refused, as is text that
//! nests deeper than a log line could be read back with (checks 3 to 5).

use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// How many arrays and objects may lie within each other. A log line adds four
/// levels around a value, and the parser gives up at 128.
pub const MAX_DEPTH: usize = 96;

/// Why a text is no acceptable JSON.
#[derive(Debug, thiserror::Error)]
pub enum StrictJsonError {
    /// Not JSON: bad syntax, `NaN`, invalid UTF-8, a lone surrogate, an equal key
    /// twice, a number out of range, too deep, or more text after the value.
    #[error("this is no strict JSON: {0}; send one value, each key once, in valid UTF-8")]
    Syntax(#[from] serde_json::Error),
}

/// Reads one JSON value and nothing after it.
///
/// # Errors
/// [`StrictJsonError`] names what was wrong and where.
pub fn parse(bytes: &[u8]) -> Result<Value, StrictJsonError> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = Strict { depth: 0 }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// True when `value` nests no deeper than [`MAX_DEPTH`].
pub fn fits_depth(value: &Value) -> bool {
    fn within(value: &Value, left: usize) -> bool {
        match value {
            Value::Array(items) => left > 0 && items.iter().all(|item| within(item, left - 1)),
            Value::Object(map) => left > 0 && map.values().all(|item| within(item, left - 1)),
            _ => true,
        }
    }
    within(value, MAX_DEPTH)
}

#[derive(Clone, Copy)]
struct Strict {
    depth: usize,
}

impl Strict {
    fn deeper<E: de::Error>(self) -> Result<Self, E> {
        if self.depth < MAX_DEPTH {
            Ok(Self {
                depth: self.depth + 1,
            })
        } else {
            Err(E::custom(format_args!(
                "it nests deeper than {MAX_DEPTH} levels"
            )))
        }
    }
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("a number that is not finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut items = Vec::new();
        while let Some(item) = access.next_element_seed(inner)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            let value = access.next_value_seed(inner)?;
            if map.contains_key(&key) {
                let shown: String = key.chars().take(64).collect();
                return Err(de::Error::custom(format_args!(
                    "the key `{shown}` is there twice"
                )));
            }
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests;
