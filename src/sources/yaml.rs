//! Text to JSON values: YAML with limits, JSON with unique keys, streams cut into documents.
//!
//! Only this module and its children use the YAML library. Scalars are read as Kubernetes reads them (YAML 1.1 booleans,
//! old octals).

mod kubectl;
mod outline;

use std::fmt;

pub use outline::{Outline, Position};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value, map::Entry};
use serde_saphyr::{DuplicateKeyPolicy, MergeKeyPolicy, Options};

/// Deepest nesting that is read.
const MAX_DEPTH: usize = 64;
/// Most nodes of one document that aliases may add.
const MAX_ALIAS_NODES: usize = 20_000;

/// Why a text is not a document, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct SyntaxError {
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
    /// The error, for a person.
    pub reason: String,
}

/// A piece of a stream between document marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk<'a> {
    /// Text without the mark.
    pub text: &'a str,
    /// Line of the stream on which the text begins, from 1.
    pub line: u32,
}

/// The lines of a text with their ends, as YAML counts them: a carriage return ends a line as well.
pub fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = match rest.find(['\n', '\r']) {
            Some(at) if rest[at..].starts_with("\r\n") => at + 2,
            Some(at) => at + 1,
            None => rest.len(),
        };
        let (line, after) = rest.split_at(end);
        rest = after;
        Some(line)
    })
}

/// Cuts a stream at lines that begin with `---` (or are `...`), as Kubernetes does, so that one broken document does not
/// hide the others. Pieces without content are left out.
#[must_use]
pub fn documents(text: &str) -> Vec<Chunk<'_>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (mut chunks, mut start, mut start_line, mut line, mut at) = (Vec::new(), 0, 1, 1, 0);
    let mut content = false;
    for piece in text.split_inclusive('\n') {
        let end = at + piece.len();
        let mark = piece.starts_with("---") && piece[3..].chars().next().is_none_or(char::is_whitespace);
        if mark || piece.trim_end() == "..." {
            if content {
                chunks.push(Chunk { text: &text[start..at], line: start_line });
            }
            // The rest of the mark's line belongs to the document.
            let rest = if mark { piece[3..].trim() } else { "" };
            content = !rest.is_empty() && !rest.starts_with('#');
            (start, start_line) = if content { (at + 3, line) } else { (end, line + 1) };
        } else if !content {
            let trimmed = piece.trim_start();
            if trimmed.trim_end().is_empty() || trimmed.starts_with('#') || trimmed.starts_with('%') {
                (start, start_line) = (end, line + 1);
            } else {
                content = true;
            }
        }
        at = end;
        line += lines(piece).count() as u32;
    }
    if content {
        chunks.push(Chunk { text: &text[start..], line: start_line });
    }
    chunks
}

/// Reads the values of a piece: one for YAML, any number for concatenated JSON.
///
/// # Errors
/// [`SyntaxError`] with the place inside the piece.
pub fn values(text: &str) -> Result<Vec<Value>, SyntaxError> {
    if text.trim_start().starts_with('{')
        && let Some(values) = json(text)
    {
        return Ok(values);
    }
    let text = kubectl::with_colons(text);
    yaml(&text).or_else(|error| kubectl::with_indentation(&text).map_or(Err(error), |text| yaml(&text)))
}

fn yaml(text: &str) -> Result<Vec<Value>, SyntaxError> {
    // Nearly all keys are strings that read as nothing else, and no map merges another: to resolve the types of keys, and to
    // remember them for merges and for the places of duplicates, takes a sixth of the time.
    read(text, Keys::Strings).or_else(|_| read(text, Keys::Resolved))
}

fn read(text: &str, keys: Keys) -> Result<Vec<Value>, SyntaxError> {
    let mut options = options();
    if keys == Keys::Strings {
        options.duplicate_keys = DuplicateKeyPolicy::PassThrough;
        options.merge_keys = MergeKeyPolicy::Error;
    }
    let read = |deserializer: serde_saphyr::Deserializer<'_, '_>| UniqueKeys(keys).deserialize(deserializer);
    serde_saphyr::with_deserializer_from_str_with_options(text, options, read)
        .map(|value| vec![value])
        .map_err(|error| syntax_error(&error))
}

/// Writes a value as a document.
///
/// # Errors
/// A value that YAML cannot hold.
pub fn text_of(value: &Value) -> Result<String, serde_saphyr::ser::Error> {
    serde_saphyr::to_string(value)
}

/// Runs a typed reading over the piece for the sake of its error: where it happens, and the path of the field.
#[must_use]
pub fn locate<S>(text: &str, seed: S) -> Option<(SyntaxError, String)>
where
    S: for<'de> DeserializeSeed<'de>,
{
    let mut path = String::new();
    let text = kubectl::respelt(text);
    let result = serde_saphyr::with_deserializer_from_str_with_options(&text, options(), |deserializer| {
        let mut track = serde_path_to_error::Track::new();
        let result = seed.deserialize(serde_path_to_error::Deserializer::new(deserializer, &mut track)).map(drop);
        if result.is_err() {
            path = track.path().to_string();
        }
        result
    });
    result.err().map(|e| (syntax_error(&e), path))
}

fn options() -> Options {
    serde_saphyr::options! {
        with_snippet: false,
        emit_comments: false,
        legacy_octal_numbers: true,
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MAX_ALIAS_NODES,
            max_replay_stack_depth: 16,
        },
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH,
            max_nodes: 2_000_000,
            max_events: 6_000_000,
            max_aliases: MAX_ALIAS_NODES,
            max_anchors: MAX_ALIAS_NODES,
            max_recorded_anchor_events: 200_000,
            max_recorded_anchor_bytes: 8 << 20,
            max_documents: 2,
        },
    }
}

fn syntax_error(error: &serde_saphyr::Error) -> SyntaxError {
    let at = error.location();
    let number = |n: Option<u64>| n.and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
    let text = error.without_snippet().to_string();
    let reason = text.split(" at line ").next().unwrap_or_default();
    let reason = match reason {
        r if r.starts_with("duplicate mapping key: ") => r.split(", set ").next().unwrap_or(r).to_string(),
        r if r.contains("Depth") || r.contains("recursion limit") => {
            format!("nested too deeply (more than {MAX_DEPTH} levels)")
        }
        r if r.contains("budget breached") || r.contains("alias replay") => {
            format!("aliases or nodes expand beyond the limits ({r})")
        }
        r => r.to_string(),
    };
    SyntaxError { line: number(at.map(|l| l.line())), column: number(at.map(|l| l.column())), reason }
}

/// Concatenated JSON values; `None` when the text is not JSON (it may be a YAML flow mapping then, or broken in a way that
/// the YAML reader explains).
fn json(text: &str) -> Option<Vec<Value>> {
    let mut stream = serde_json::Deserializer::from_str(text);
    let mut values = Vec::new();
    while stream.end().is_err() {
        values.push(UniqueKeys(Keys::Resolved).deserialize(&mut stream).ok()?);
    }
    Some(values)
}

/// Reading of the keys of maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keys {
    /// Every key is a string; one that may be of another type, or merges a map, is an error.
    Strings,
    /// A key has the type that YAML resolves.
    Resolved,
}

/// Reads any JSON value and fails on a key that comes twice.
#[derive(Clone, Copy)]
struct UniqueKeys(Keys);

impl<'de> DeserializeSeed<'de> for UniqueKeys {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for UniqueKeys {
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

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
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

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(value) = access.next_element_seed(self)? {
            list.push(value);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = access.next_key_seed(Key(self.0))? {
            let value = access.next_value_seed(self)?;
            match map.entry(key) {
                Entry::Vacant(entry) => drop(entry.insert(value)),
                Entry::Occupied(entry) => {
                    return Err(serde::de::Error::custom(format_args!("duplicate key {}", entry.key())));
                }
            }
        }
        Ok(Value::Object(map))
    }
}

/// The key of a map: a scalar of another type than string is written as Kubernetes writes it in JSON, so `y` is `true`.
struct Key(Keys);

impl<'de> DeserializeSeed<'de> for Key {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        if self.0 == Keys::Resolved {
            return deserializer.deserialize_any(KeyVisitor);
        }
        let key = deserializer.deserialize_str(KeyVisitor)?;
        if is_ambiguous(&key) {
            return Err(serde::de::Error::custom("a key that may be of another type than string"));
        }
        Ok(key)
    }
}

/// Whether a plain scalar of this text may be a number, a boolean or null: a superset of what YAML 1.1 and 1.2 resolve.
fn is_ambiguous(text: &str) -> bool {
    const WORDS: [&str; 12] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf", "infinity"];
    let text = text.trim();
    let Some(first) = text.bytes().next() else { return true };
    let is_number = first.is_ascii_digit() || matches!(first, b'+' | b'-' | b'.' | b'~');
    is_number || WORDS.iter().any(|word| text.eq_ignore_ascii_case(word))
}

struct KeyVisitor;

impl<'de> Visitor<'de> for KeyVisitor {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a scalar: the key of a map is no list and no map")
    }

    fn visit_bool<E>(self, key: bool) -> Result<String, E> {
        Ok(key.to_string())
    }

    fn visit_i64<E>(self, key: i64) -> Result<String, E> {
        Ok(key.to_string())
    }

    fn visit_u64<E>(self, key: u64) -> Result<String, E> {
        Ok(key.to_string())
    }

    fn visit_f64<E>(self, key: f64) -> Result<String, E> {
        Ok(Value::from(key).to_string())
    }

    fn visit_str<E>(self, key: &str) -> Result<String, E> {
        Ok(key.to_string())
    }

    fn visit_string<E>(self, key: String) -> Result<String, E> {
        Ok(key)
    }

    fn visit_unit<E>(self) -> Result<String, E> {
        Ok("null".to_string())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pieces(text: &str) -> Vec<(u32, &str)> {
        documents(text).iter().map(|c| (c.line, c.text)).collect()
    }

    #[test]
    fn a_stream_is_cut_at_document_marks() {
        assert_eq!(
            pieces("# c\n---\na: 1\n---\n# only a comment\n--- # x\nb: 2\n...\n"),
            [(3, "a: 1\n"), (7, "b: 2\n")]
        );
        assert_eq!(pieces("--- {a: 1}\n---b: 2\n"), [(1, " {a: 1}\n---b: 2\n")]);
        assert_eq!(pieces("\u{feff}a: |\n  ---\n  b\n"), [(1, "a: |\n  ---\n  b\n")]);
        assert_eq!(pieces("a: 1\r\n---\r\nb: 2"), [(1, "a: 1\r\n"), (3, "b: 2")]);
        assert!(pieces("\n# nothing\n---\n").is_empty());
    }

    #[test]
    fn a_carriage_return_ends_a_line() {
        assert_eq!(lines("a\r\nb\rc\n\rd").collect::<Vec<_>>(), ["a\r\n", "b\r", "c\n", "\r", "d"]);
        assert_eq!(pieces("a: 1\r\r---\n---\nb: 2"), [(1, "a: 1\r\r---\n"), (5, "b: 2")]);
    }

    #[test]
    fn a_quoted_scalar_that_no_indentation_helps_ends_the_search() {
        for text in [" : '\rg\n", " : '\ng\n", "a: 'b\rc'\n", "a: {b: 'c\rd'}\n"] {
            let _ = values(text);
        }
        assert_eq!(values("a: 'b\rc'\n").unwrap()[0], json!({"a": "b c"}), "as with a line feed");
    }

    #[test]
    fn scalars_are_read_as_kubernetes_reads_them() {
        let value = &values("a: on\nb: 'yes'\nc: 010\nd: 1e3\ne: 2024-01-01\nf: ~\n").unwrap()[0];
        assert_eq!(value, &json!({"a": true, "b": "yes", "c": 8, "d": 1000.0, "e": "2024-01-01", "f": null}));
    }

    #[test]
    fn keys_are_read_as_kubernetes_reads_them() {
        let value = &values("y: 1\n'n': 2\n8080: 3\n010: 4\noff: {yes: 5}\n").unwrap()[0];
        assert_eq!(value, &json!({"true": 1, "n": 2, "8080": 3, "8": 4, "false": {"true": 5}}));
        assert!(values("y: 1\ntrue: 2\n").unwrap_err().reason.contains("duplicate"));
        assert!(values("? [a]\n: 1\n").is_err());
    }

    /// Reading keys as strings first changes nothing.
    #[test]
    fn keys_that_are_resolved_are_those_that_may_be_other_than_strings() {
        let scalars = concat!(
            r#"y Y yes NO On off true False null NULL ~ 1 -1 +1 0x1F 0o17 017 1_000 1e3 .5 -.5 .inf -.INF .nan 1:30 "#,
            r#"12:30:45 2024-01-01 a ay nose app app.kubernetes.io/name on-off '1' "y" inf NaN infinity 0b11 - e3 "#,
            r#"_1 '' "#,
        );
        for scalar in scalars.split_whitespace() {
            let text = format!("{scalar}: 1\n");
            let resolved = read(&text, Keys::Resolved);
            assert_eq!(values(&text), resolved, "{scalar}");
            if let Ok(resolved) = resolved {
                let key = resolved[0].as_object().unwrap().keys().next().unwrap();
                let plain = scalar.trim_matches(['\'', '"']);
                assert!(key == plain || is_ambiguous(plain), "{scalar} is read as {key}");
            }
        }
    }

    #[test]
    fn maps_are_merged() {
        let value = &values("a: &a\n  x: 1\n  z: 2\nb:\n  <<: *a\n  z: 3\n").unwrap()[0];
        assert_eq!(value, &json!({"a": {"x": 1, "z": 2}, "b": {"z": 3, "x": 1}}));
        assert_eq!(values("a: {\"<<\": 1}\n").unwrap(), [json!({"a": {"<<": 1}})]);
    }

    #[test]
    fn quoted_scalars_may_continue_at_the_indentation_of_their_key() {
        let text = "a:\n- b: 'one\n  two\n\n  it''s three'\n  c: \"x\\\n  y\n  z\"\nd: 'p\nq'\n";
        let read = json!([{"a": [{"b": "one two\nit's three", "c": "xy z"}], "d": "p q"}]);
        assert_eq!(Value::Array(values(text).unwrap()), read);
        let place = Outline::of(text).and_then(|o| o.place_of("d: no")).unwrap();
        assert_eq!((place.line, place.column), (9, 1));
        assert!(values("a: 'never ends\nb: 1\n").is_err());
    }

    #[test]
    fn a_plain_scalar_of_a_flow_collection_may_end_in_a_colon() {
        let value = &values("a: [1.2.3.4, 001:db8::]\nb: {c: it's::, d:}\ne: {f: 1}\ng: 'x:]'\n").unwrap()[0];
        let read = json!({"a": ["1.2.3.4", "001:db8::"], "b": {"c": "it's::", "d:": null}, "e": {"f": 1}, "g": "x:]"});
        assert_eq!(value, &read);
    }

    #[test]
    fn json_may_be_concatenated_and_keys_are_unique() {
        assert_eq!(values("{\"a\": 1}\n{\"b\": 2}").unwrap(), [json!({"a": 1}), json!({"b": 2})]);
        assert!(values("{\"a\": 1, \"a\": 2}").unwrap_err().reason.contains("duplicate"));
        assert_eq!(values("{a: 1}").unwrap(), [json!({"a": 1})]);
    }

    #[test]
    fn errors_have_a_place_and_a_reason() {
        let error = values("a: 1\na: 2\n").unwrap_err();
        assert_eq!((error.line, error.column, error.reason.as_str()), (2, 1, "duplicate mapping key: a"));
        let error = values("a:\n  b: 1\n c: 2\n").unwrap_err();
        assert_eq!((error.line, error.column), (3, 2));
    }

    #[test]
    fn deep_nesting_and_alias_bombs_are_refused() {
        let deep: String = (0..10_000).map(|i| format!("{}a:\n", " ".repeat(i))).collect();
        for text in [deep, "[".repeat(10_000), format!("{{\"a\":{}", "[".repeat(10_000))] {
            assert!(values(&text).unwrap_err().reason.contains("deep"), "{}", values(&text).unwrap_err().reason);
        }
        let mut bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_string();
        for i in 1..12 {
            bomb.push_str(&format!("a{i}: &a{i} [{}]\n", vec![format!("*a{}", i - 1); 10].join(",")));
        }
        assert!(values(&bomb).unwrap_err().reason.contains("expand"));
    }
}
