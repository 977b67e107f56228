//! Rules of a VirtualService that no request reaches, because an earlier rule matches all of their requests.

use std::collections::{BTreeMap, HashMap};

use prost::Message;

use super::check::Check;
use crate::proto::networking::{HttpMatchRequest, HttpRoute, StringMatch, VirtualService, string_match::MatchType};

/// A rule that no request reaches, or one of its matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreachable {
    /// The list of the rule: `http`, `tcp` or `tls`.
    pub family: &'static str,
    /// Index of the rule.
    pub rule: usize,
    /// The reason.
    pub cause: Cause,
}

/// The reason for which a rule or a match is never used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// An earlier rule has no match and takes everything.
    CatchAll {
        /// Index of the earlier rule.
        before: usize,
    },
    /// An earlier rule has the same match.
    Repeated {
        /// Index of the match.
        condition: usize,
        /// Index of the earlier rule.
        before: usize,
    },
    /// Earlier rules have all matches of the rule.
    AllRepeated,
    /// The prefix of an earlier match covers that of this one.
    Covered {
        /// Index of the match.
        condition: usize,
        /// Prefix of the match.
        prefix: String,
        /// Index of the earlier rule.
        before: usize,
        /// Index of the earlier match.
        condition_before: usize,
        /// Prefix of the earlier match.
        prefix_before: String,
    },
}

impl Unreachable {
    /// The warning about it, if it has one of its own: of a rule whose matches are all repeated, the matches are named.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        let (family, rule) = (self.family, self.rule);
        let text = match &self.cause {
            Cause::CatchAll { before } => {
                format!("it is never used: {family}[{before}] has no match and matches everything")
            }
            Cause::Repeated { condition, before } => {
                format!("match[{condition}] is never used: {family}[{before}] has it too")
            }
            Cause::AllRepeated => return None,
            Cause::Covered { prefix, before, prefix_before, .. } => {
                format!("prefix {prefix} is covered by {prefix_before} of http[{before}]")
            }
        };
        Some(format!("spec.{family}[{rule}]: {text}"))
    }
}

/// All unreachable rules and matches of a VirtualService.
#[must_use]
pub fn unreachable(service: &VirtualService) -> Vec<Unreachable> {
    let mut found = http(&service.http);
    repeated("tcp", service.tcp.iter().map(|r| r.r#match.as_slice()), &mut found);
    repeated("tls", service.tls.iter().map(|r| r.r#match.as_slice()), &mut found);
    found
}

/// Warns about each of them.
pub(super) fn warn(c: &mut Check, service: &VirtualService) {
    c.found.warnings.extend(unreachable(service).iter().filter_map(Unreachable::warning));
}

/// Unreachable HTTP rules, and prefixes that an earlier, shorter prefix covers.
fn http(routes: &[HttpRoute]) -> Vec<Unreachable> {
    let unnamed: Vec<Vec<HttpMatchRequest>> = routes
        .iter()
        .map(|r| r.r#match.iter().map(|m| HttpMatchRequest { name: String::new(), ..m.clone() }).collect())
        .collect();
    let mut found = Vec::new();
    let first = repeated("http", unnamed.iter().map(Vec::as_slice), &mut found);
    let prefixes: Vec<Prefix<'_>> = first.iter().filter_map(|(i, n, m)| Prefix::new((*i, *n), m)).collect();
    for (i, later) in prefixes.iter().enumerate() {
        if let Some(earlier) = prefixes.iter().take(i).find(|p| p.prefix != later.prefix && p.covers(later)) {
            found.push(Unreachable {
                family: "http",
                rule: later.route,
                cause: Cause::Covered {
                    condition: later.condition,
                    prefix: later.prefix.to_string(),
                    before: earlier.route,
                    condition_before: earlier.condition,
                    prefix_before: earlier.prefix.to_string(),
                },
            });
        }
    }
    found
}

/// Finds matches that occurred before; returns the new ones, each with the indexes of its rule and of itself.
fn repeated<'a, M: Message + 'a>(
    family: &'static str,
    routes: impl Iterator<Item = &'a [M]>,
    found: &mut Vec<Unreachable>,
) -> Vec<(usize, usize, &'a M)> {
    let mut seen: HashMap<Vec<u8>, usize> = HashMap::new();
    let mut first = Vec::new();
    let mut catch_all: Option<usize> = None;
    for (rule, matches) in routes.enumerate() {
        let mut add = |cause| found.push(Unreachable { family, rule, cause });
        if let Some(before) = catch_all {
            add(Cause::CatchAll { before });
        } else {
            let mut copies = 0;
            for (n, condition) in matches.iter().enumerate() {
                match seen.get(&condition.encode_to_vec()) {
                    Some(before) => {
                        copies += 1;
                        add(Cause::Repeated { condition: n, before: *before });
                    }
                    None => {
                        seen.insert(condition.encode_to_vec(), rule);
                        first.push((rule, n, condition));
                    }
                }
            }
            if copies > 0 && copies == matches.len() {
                add(Cause::AllRepeated);
            }
        }
        if matches.is_empty() {
            catch_all = Some(rule);
        }
    }
    first
}

/// A match on a prefix, with its other conditions.
struct Prefix<'a> {
    route: usize,
    condition: usize,
    prefix: &'a str,
    port: u32,
    method: String,
    authority: String,
    maps: [BTreeMap<&'a str, String>; 3],
}

impl<'a> Prefix<'a> {
    fn new((route, index): (usize, usize), condition: &'a HttpMatchRequest) -> Option<Self> {
        let Some(MatchType::Prefix(prefix)) = condition.uri.as_ref()?.match_type.as_ref() else { return None };
        let map = |m: &'a BTreeMap<String, StringMatch>| m.iter().map(|(k, v)| (k.as_str(), text(Some(v)))).collect();
        let method = text(condition.method.as_ref());
        (!prefix.is_empty()).then(|| Self {
            route,
            condition: index,
            prefix,
            port: condition.port,
            method: if method.is_empty() { "exact:GET".to_string() } else { method },
            authority: text(condition.authority.as_ref()),
            maps: [map(&condition.headers), map(&condition.query_params), map(&condition.without_headers)],
        })
    }

    fn covers(&self, later: &Self) -> bool {
        later.prefix.starts_with(self.prefix)
            && self.port == later.port
            && self.method.starts_with(&later.method)
            && self.authority.starts_with(&later.authority)
            && self.maps.iter().zip(&later.maps).all(|(a, b)| {
                a.len() == b.len() && a.iter().all(|(k, v)| b.get(k).is_some_and(|w| v.starts_with(w.as_str())))
            })
    }
}

fn text(condition: Option<&StringMatch>) -> String {
    match condition.and_then(|m| m.match_type.as_ref()) {
        Some(MatchType::Exact(text)) if !text.is_empty() => format!("exact:{text}"),
        Some(MatchType::Prefix(text)) if !text.is_empty() => format!("prefix:{text}"),
        _ => String::new(),
    }
}
