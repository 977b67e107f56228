//! Where each field of a document is written, found by the path that a reason begins with.
//!
//! Made only for documents that something is wrong with.

use std::fmt;

use serde::{
    Deserialize,
    de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_saphyr::{Location, Spanned};

use super::{kubectl, options};

/// A line and a column of a piece, both from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
}

/// The fields of a document with their places.
#[derive(Debug)]
pub struct Outline(Spanned<Node>);

#[derive(Debug)]
enum Node {
    Map(Vec<(Spanned<String>, Spanned<Node>)>),
    List(Vec<Spanned<Node>>),
    Leaf,
}

impl Outline {
    /// Reads the places of a piece; `None` when it cannot be read.
    #[must_use]
    pub fn of(text: &str) -> Option<Self> {
        serde_saphyr::from_str_with_options(&kubectl::respelt(text), options()).ok().map(Self)
    }

    /// The place of the field whose path the reason begins with (as in `spec.http[0].match: …`), or of the nearest field
    /// around it: the key of a field, the first character of an entry of a list or of the document.
    #[must_use]
    pub fn place_of(&self, reason: &str) -> Option<Position> {
        self.0.value.walk(path_of(reason), place(&self.0.referenced))
    }

    /// As [`Outline::place_of`], inside of one entry of the document's `items`.
    #[must_use]
    pub fn place_in_item(&self, item: usize, reason: &str) -> Option<Position> {
        let Node::Map(fields) = &self.0.value else { return None };
        let (_, items) = fields.iter().find(|(key, _)| key.value == "items")?;
        let Node::List(entries) = &items.value else { return None };
        let entry = entries.get(item)?;
        entry.value.walk(path_of(reason), place(&entry.referenced))
    }
}

/// The path that a reason is about: the first of its words that is one.
fn path_of(reason: &str) -> &str {
    let word = |text: &str| text.split([' ', '\n']).next().map_or(0, str::len);
    let text = reason.strip_prefix("unknown field ").unwrap_or(reason);
    text[..word(text)].trim_end_matches(':')
}

impl Node {
    /// Follows `path` as far as it leads. Keys may hold dots, so the longest that fits is taken.
    fn walk(&self, path: &str, here: Option<Position>) -> Option<Position> {
        let path = path.strip_prefix('.').unwrap_or(path);
        match self {
            Self::Map(fields) => {
                let fits = fields.iter().filter_map(|(key, value)| Some((key, value, rest(path, &key.value)?)));
                let Some((key, value, rest)) = fits.max_by_key(|(key, ..)| key.value.len()) else { return here };
                value.value.walk(rest, place(&key.referenced).or(here))
            }
            Self::List(entries) => {
                let index = path.strip_prefix('[').and_then(|p| p.split_once(']'));
                let entry = index.and_then(|(n, rest)| Some((entries.get(n.parse::<usize>().ok()?)?, rest)));
                let Some((entry, rest)) = entry else { return here };
                entry.value.walk(rest, place(&entry.referenced).or(here))
            }
            Self::Leaf => here,
        }
    }
}

/// The rest of a path that begins with `key`.
fn rest<'p>(path: &'p str, key: &str) -> Option<&'p str> {
    let rest = path.strip_prefix(key).filter(|_| !key.is_empty())?;
    (rest.is_empty() || rest.starts_with(['.', '['])).then_some(rest)
}

fn place(location: &Location) -> Option<Position> {
    let number = |n: u64| u32::try_from(n).ok().filter(|n| *n > 0);
    Some(Position { line: number(location.line())?, column: number(location.column())? })
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Node, E> {
        Ok(Node::Leaf)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Node, E> {
        Ok(Node::Leaf)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Node, E> {
        Ok(Node::Leaf)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Node, E> {
        Ok(Node::Leaf)
    }

    fn visit_str<E>(self, _: &str) -> Result<Node, E> {
        Ok(Node::Leaf)
    }

    fn visit_bytes<E>(self, _: &[u8]) -> Result<Node, E> {
        Ok(Node::Leaf)
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Leaf)
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Leaf)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Node::Leaf)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = access.next_element()? {
            entries.push(entry);
        }
        Ok(Node::List(entries))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Node, A::Error> {
        let mut fields = Vec::new();
        while let Some(key) = access.next_key()? {
            fields.push((key, access.next_value()?));
        }
        Ok(Node::Map(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# about\nkind: X\nmetadata:\n  annotations:\n    a.b/c: d\nspec:\n  http:\n  - name: one\n    \
                        route: [{weight: 1}, {weight: -5}]\n  - name: two\n";

    fn place_of(reason: &str) -> (u32, u32) {
        let place = Outline::of(TEXT).and_then(|o| o.place_of(reason)).expect("a place");
        (place.line, place.column)
    }

    #[test]
    fn the_place_of_a_field_is_its_key() {
        assert_eq!(place_of("spec.http[0].route[1].weight: -5 must not be negative"), (9, 27));
        assert_eq!(place_of("unknown field spec.http[1].name"), (10, 5));
        assert_eq!(place_of("metadata.annotations.a.b/c: no"), (5, 5));
    }

    #[test]
    fn a_field_that_is_missing_is_where_it_would_be() {
        assert_eq!(place_of("spec.http[1].route: it must have a destination"), (10, 5));
        assert_eq!(place_of("spec.hosts: it must have a host"), (6, 1));
        assert_eq!(place_of("spec.http[7]"), (7, 3));
        assert_eq!(place_of("apiVersion is missing"), (2, 1));
        assert_eq!(place_of(""), (2, 1));
    }

    #[test]
    fn json_and_lists_have_places_too() {
        let outline = Outline::of("{\"items\": [{\"a\": 1},\n {\"spec\": {\"b\": null}}]}").expect("places");
        assert_eq!(outline.place_in_item(1, "spec.b: wrong"), Some(Position { line: 2, column: 12 }));
        assert_eq!(outline.place_in_item(0, "spec.b: wrong"), Some(Position { line: 1, column: 12 }));
        assert_eq!(outline.place_in_item(2, "spec"), None);
        assert!(Outline::of("a: [").is_none());
    }
}
