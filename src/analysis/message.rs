//! One message about one object, and the messages of a run in their order.

use super::{Code, Object};

/// The thing that a message is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// The object with this index.
    Object(usize),
    /// The mesh config.
    MeshConfig,
    /// The networks of the mesh.
    MeshNetworks,
}

/// A finding: its kind, its subject, the field at fault and the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The kind of message, with level and way out.
    pub code: Code,
    /// The object.
    pub subject: Subject,
    /// Path of the field at fault (`spec.http[0].route[1].destination.host`), or of the nearest one around it.
    pub path: String,
    /// The finding, for a person.
    pub text: String,
}

/// The annotation that suppresses messages about its object: codes separated by commas, or `*`.
const SUPPRESS: &str = "galley.istio.io/analyze-suppress";

/// Collects messages.
#[derive(Debug, Default)]
pub(super) struct Report(Vec<Message>);

impl Report {
    /// Adds a message about the field of an object.
    pub fn add(&mut self, code: Code, object: usize, path: impl Into<String>, text: impl Into<String>) {
        self.about(code, Subject::Object(object), path, text);
    }

    /// Adds a message about any subject.
    pub fn about(&mut self, code: Code, subject: Subject, path: impl Into<String>, text: impl Into<String>) {
        self.0.push(Message { code, subject, path: path.into(), text: text.into() });
    }

    /// The messages by object, each once, without those that annotations suppress.
    pub fn into_messages(self, objects: &[Object]) -> Vec<Message> {
        let shown = |message: &Message| match message.subject {
            Subject::Object(index) => objects.get(index).is_some_and(|o| !suppresses(o, message.code)),
            Subject::MeshConfig | Subject::MeshNetworks => true,
        };
        let mut messages: Vec<Message> = self.0.into_iter().filter(shown).collect();
        let order = |m: &Message| (m.subject, m.code.code(), m.path.clone(), m.text.clone());
        messages.sort_by_cached_key(order);
        messages.dedup();
        messages
    }
}

fn suppresses(object: &Object, code: Code) -> bool {
    let codes = object.annotation(SUPPRESS).unwrap_or_default();
    codes.split(',').map(str::trim).any(|written| written == "*" || written == code.code())
}

/// Messages that a caller does not want: a code, and a pattern of `Kind NAME.NAMESPACE` in which `*` stands for any text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suppression {
    code: String,
    resource: String,
}

impl std::str::FromStr for Suppression {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (code, resource) =
            text.split_once('=').ok_or_else(|| format!("{text:?} is not CODE=KIND NAME.NAMESPACE"))?;
        if !Code::ALL.iter().any(|known| known.code() == code) {
            return Err(format!("{code:?} is no code of a message"));
        }
        Ok(Self { code: code.to_string(), resource: resource.to_string() })
    }
}

impl Suppression {
    /// Whether it holds for a message with this code about this object.
    #[must_use]
    pub fn covers(&self, code: Code, object: &Object) -> bool {
        let dot = if object.namespace.is_empty() { "" } else { "." };
        let name = format!("{} {}{dot}{}", object.kind, object.name, object.namespace);
        self.code == code.code() && fits(&self.resource, &name)
    }
}

/// Whether a text fits a pattern in which `*` stands for any text.
fn fits(pattern: &str, text: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut left) = text.strip_prefix(head) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        let Some(at) = left.find(part) else { return false };
        left = &left[at + part.len()..];
    }
    left.len() >= last.len() && left.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_whole_texts() {
        for (pattern, text) in
            [("*", ""), ("Pod *.a", "Pod x.a"), ("*b*", "abc"), ("a*b*c", "a1b2c"), ("Pod x.a", "Pod x.a")]
        {
            assert!(fits(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("Pod *.a", "Pod x.b"), ("a*ab", "ab"), ("", "x"), ("x*", "ax")] {
            assert!(!fits(pattern, text), "{pattern} {text}");
        }
        assert!("IST0101".parse::<Suppression>().is_err() && "IST9=Pod x".parse::<Suppression>().is_err());
    }
}
