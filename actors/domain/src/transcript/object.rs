//! JSON objects whose fields can be replaced while all others stay as they were written.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::{RawValue, to_raw_value};

/// The fields of an object, in their order.
pub(crate) struct Object<'a>(Vec<(Cow<'a, str>, Cow<'a, RawValue>)>);

// === impl Object ===

impl Object<'_> {
    /// A field.
    pub fn get(&self, name: &str) -> Option<&RawValue> {
        self.0.iter().rev().find(|(field, _)| field == name).map(|(_, value)| value.as_ref())
    }

    /// Replaces a field, or adds it at the end.
    pub fn set<T: Serialize>(&mut self, name: &'static str, value: &T) {
        let Ok(value) = to_raw_value(value) else { return };
        match self.0.iter_mut().rev().find(|(field, _)| field == name) {
            Some((_, field)) => *field = Cow::Owned(value),
            None => self.0.push((Cow::Borrowed(name), Cow::Owned(value))),
        }
    }

    /// Puts a new field behind the one that is called `behind`, or at the end.
    pub fn insert<T: Serialize>(&mut self, behind: &str, name: &'static str, value: &T) {
        let Ok(value) = to_raw_value(value) else { return };
        let at = self.0.iter().position(|(field, _)| field == behind).map_or(self.0.len(), |at| at + 1);
        self.0.insert(at, (Cow::Borrowed(name), Cow::Owned(value)));
    }

    /// Takes a field away.
    pub fn remove(&mut self, name: &str) {
        self.0.retain(|(field, _)| field != name);
    }

    /// The object, as one line.
    pub fn line(&self) -> String {
        let json = serde_json::to_string(self).expect("fields are JSON already, so they always serialise");
        // Between tokens a line end is a blank like any other; inside of strings there is none.
        json.replace(['\n', '\r'], " ")
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Object<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Object<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Object<'de>, M::Error> {
                let mut fields = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, &'de RawValue>()? {
                    fields.push((Cow::Owned(name), Cow::Borrowed(value)));
                }
                Ok(Object(fields))
            }
        }
        from.deserialize_map(Fields)
    }
}

impl Serialize for Object<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value.as_ref())?;
        }
        map.end()
    }
}
