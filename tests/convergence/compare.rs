//! Comparison of the resources of two clients of one node, byte for byte.

use std::{collections::BTreeMap, fmt::Write};

use pilothouse::{proto::pool, xds::ResourceType};
use prost_reflect::DynamicMessage;

use crate::proxy::{Holds, Speaks, TYPES};

/// A resource that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    pub client: String,
    pub against: &'static str,
    pub kind: ResourceType,
    pub name: String,
    pub held: Option<Vec<u8>>,
    pub expected: Option<Vec<u8>>,
    /// The client asks for it, by name or by asking for everything.
    pub asked: bool,
}

/// The excused differences, by name: they are counted and printed, and no others are ignored.
#[derive(Debug, Default, Clone, Copy)]
pub struct Excused {
    /// The client refused that very content, or the resource that refers to the name.
    pub refused: usize,
    /// State of the world has no word for the end of a resource of a type that is asked for by name: a client keeps what it has
    /// for as long as it asks for it.
    pub never_taken: usize,
}

/// The differences of `held` from `expected`.
pub fn differences(
    (client, speaks): (&str, Speaks),
    against: &'static str,
    (held, expected): (&Holds, &Holds),
    excused: &mut Excused,
) -> Vec<Difference> {
    let mut all = Vec::new();
    let (empty, none) = (BTreeMap::new(), BTreeMap::new());
    // A refused resource may be the one that makes it subscribe to names, or unsubscribe.
    let leads = [ResourceType::Cluster, ResourceType::Listener, ResourceType::Route];
    let led = leads.iter().any(|kind| held.get(kind).is_some_and(|h| !h.refused.is_empty()));
    // Of a client that names its listeners, every type but these is asked for by name.
    let names_all = held.get(&ResourceType::Listener).is_some_and(|h| !h.names.is_empty());
    for kind in TYPES {
        let by_name = !kind.is_wildcard() || names_all && kind != ResourceType::Listener;
        let asks = |name: &str| held.get(&kind).is_some_and(|h| h.names.contains(name));
        let (is, refused) = held.get(&kind).map_or((&empty, &none), |h| (&h.resources, &h.refused));
        let should = expected.get(&kind).map_or(&empty, |h| &h.resources);
        let mut names: Vec<&String> = is.keys().chain(should.keys()).collect();
        names.sort();
        names.dedup();
        for name in names {
            let (is, should) = (is.get(name), should.get(name));
            if is == should {
                continue;
            }
            if speaks == Speaks::Sotw && !kind.is_whole() && should.is_none() && asks(name) {
                excused.never_taken += 1;
                continue;
            }
            if refused.get(name).is_some_and(|r| r.as_ref() == should) {
                excused.refused += 1;
                continue;
            }
            if led && by_name && (!asks(name) || should.is_none()) {
                excused.refused += 1;
                continue;
            }
            all.push(Difference {
                client: client.to_string(),
                against,
                kind,
                name: name.clone(),
                asked: !by_name || asks(name),
                held: is.cloned(),
                expected: should.cloned(),
            });
        }
    }
    all
}

/// The number of resources that a client holds.
pub fn count(holds: &Holds) -> usize {
    holds.values().map(|h| h.resources.len()).sum()
}

impl Difference {
    /// The difference in words, with the lines that only one side has.
    pub fn text(&self) -> String {
        let mut text = format!("{} against {}: {} {:?}: ", self.client, self.against, self.kind.short(), self.name);
        match (&self.held, &self.expected) {
            (None, _) => text.push_str(if self.asked { "missing\n" } else { "missing, and not asked for\n" }),
            (_, None) => text.push_str("should be gone\n"),
            (Some(held), Some(expected)) => {
                text.push_str("differs\n");
                let (held, expected) = (lines(self.kind, held), lines(self.kind, expected));
                for (sign, line) in changes(&held, &expected).into_iter().take(40) {
                    let _ = writeln!(text, "    {sign} {line}");
                }
            }
        }
        text
    }
}

fn lines(kind: ResourceType, bytes: &[u8]) -> Vec<String> {
    let name = kind.url().trim_start_matches("type.googleapis.com/");
    let json = pool().get_message_by_name(name).and_then(|d| DynamicMessage::decode(d, bytes).ok());
    let text = json.and_then(|message| serde_json::to_string_pretty(&message).ok());
    text.unwrap_or_else(|| format!("{bytes:?}")).lines().map(|l| l.trim().to_string()).collect()
}

/// Lines of the first only (`-`: held) and of the second only (`+`: expected), in their order.
fn changes<'a>(held: &'a [String], expected: &'a [String]) -> Vec<(char, &'a str)> {
    let start = held.iter().zip(expected).take_while(|(a, b)| a == b).count();
    let (held, expected) = (&held[start..], &expected[start..]);
    let end = held.iter().rev().zip(expected.iter().rev()).take_while(|(a, b)| a == b).count();
    let (held, expected) = (&held[..held.len() - end], &expected[..expected.len() - end]);
    let only = |these: &'a [String], those: &[String], sign| {
        let mut rest: BTreeMap<&str, usize> = BTreeMap::new();
        those.iter().for_each(|line| *rest.entry(line).or_default() += 1);
        let mut out = Vec::new();
        for line in these {
            match rest.get_mut(line.as_str()) {
                Some(left) if *left > 0 => *left -= 1,
                _ => out.push((sign, line.as_str())),
            }
        }
        out
    };
    let mut all = only(held, expected, '-');
    all.extend(only(expected, held, '+'));
    if all.is_empty() {
        // The same lines in another order.
        all.extend(held.iter().map(|l| ('-', l.as_str())).take(12));
        all.extend(expected.iter().map(|l| ('+', l.as_str())).take(12));
    }
    all
}
