//! JSON values of the types that a dump has, as serde reads them.

use std::collections::BTreeMap;

use serde_json::Value;

/// It is no dump, or one that contradicts itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refused;

/// The fields of an object; or of a list, in their order.
pub(super) struct Fields<'v>(BTreeMap<&'v str, &'v Value>);

impl<'v> Fields<'v> {
    /// A list may lack those after the ones that are needed.
    pub(super) fn of(value: &'v Value, names: &[&'static str], needed: usize) -> Result<Self, Refused> {
        match value {
            Value::Object(fields) => {
                Ok(Self(fields.iter().map(|(name, value)| (name.as_str(), value)).collect()))
            }
            Value::Array(values) if (needed..=names.len()).contains(&values.len()) => {
                Ok(Self(names.iter().copied().zip(values).collect()))
            }
            _ => Err(Refused),
        }
    }

    pub(super) fn needed<T>(&self, name: &str, read: Read<'v, T>) -> Result<T, Refused> {
        read(self.0.get(name).ok_or(Refused)?)
    }

    pub(super) fn or<T>(&self, name: &str, read: Read<'v, T>, or: T) -> Result<T, Refused> {
        self.0.get(name).map_or(Ok(or), |value| read(value))
    }

    /// None if it is missing or `null`.
    pub(super) fn optional<T>(&self, name: &str, read: Read<'v, T>) -> Result<Option<T>, Refused> {
        let value = self.0.get(name).filter(|value| !value.is_null());
        value.map(|value| read(value)).transpose()
    }
}

type Read<'v, T> = fn(&'v Value) -> Result<T, Refused>;

pub(super) fn integer(value: &Value) -> Result<u64, Refused> {
    value.as_u64().ok_or(Refused)
}

pub(super) fn number(value: &Value) -> Result<u32, Refused> {
    u32::try_from(integer(value)?).map_err(|_| Refused)
}

pub(super) fn float(value: &Value) -> Result<f64, Refused> {
    value.as_f64().ok_or(Refused)
}

pub(super) fn boolean(value: &Value) -> Result<bool, Refused> {
    value.as_bool().ok_or(Refused)
}

pub(super) fn text(value: &Value) -> Result<String, Refused> {
    value.as_str().map(str::to_owned).ok_or(Refused)
}

pub(super) fn list(value: &Value) -> Result<&[Value], Refused> {
    value.as_array().map(Vec::as_slice).ok_or(Refused)
}

/// The name of a variant, and what it has besides.
pub(super) fn variant(value: &Value) -> Result<(&str, &Value), Refused> {
    match value {
        Value::String(name) => Ok((name, &Value::Null)),
        Value::Object(fields) if fields.len() == 1 => {
            let (name, value) = fields.iter().next().ok_or(Refused)?;
            Ok((name, value))
        }
        _ => Err(Refused),
    }
}
