//! Rules of a VirtualService that no request reaches, because an earlier rule matches all of their requests.

use std::collections::{BTreeMap, HashMap};

use prost::Message;

use super::check::Check;
use crate::proto::networking::{HttpMatchRequest, HttpRoute, StringMatch, string_match::MatchType};

/// Warns about unreachable HTTP rules, and about prefixes that an earlier, shorter prefix covers.
pub(super) fn http(c: &mut Check, routes: &[HttpRoute]) {
    let unnamed: Vec<Vec<HttpMatchRequest>> = routes
        .iter()
        .map(|r| r.r#match.iter().map(|m| HttpMatchRequest { name: String::new(), ..m.clone() }).collect())
        .collect();
    let first = repeated(c, "http", unnamed.iter().map(Vec::as_slice));
    let prefixes: Vec<Prefix<'_>> = first.iter().filter_map(|(i, m)| Prefix::new(*i, m)).collect();
    for (i, later) in prefixes.iter().enumerate() {
        if let Some(earlier) = prefixes.iter().take(i).find(|p| p.prefix != later.prefix && p.covers(later)) {
            let text = format!("prefix {} is covered by {} of http[{}]", later.prefix, earlier.prefix, earlier.route);
            c.at(format_args!("http[{}]", later.route), |c| c.warn(text));
        }
    }
}

/// Warns about unreachable rules of the TCP or TLS family.
pub(super) fn stream<'a, M: Message + 'a>(c: &mut Check, family: &str, routes: impl Iterator<Item = &'a [M]>) {
    repeated(c, family, routes);
}

/// Warns about matches that occurred before; returns the new ones.
fn repeated<'a, M: Message + 'a>(
    c: &mut Check,
    family: &str,
    routes: impl Iterator<Item = &'a [M]>,
) -> Vec<(usize, &'a M)> {
    let mut seen: HashMap<Vec<u8>, usize> = HashMap::new();
    let mut first = Vec::new();
    let mut catch_all: Option<usize> = None;
    for (i, matches) in routes.enumerate() {
        c.at(format_args!("{family}[{i}]"), |c| {
            if let Some(before) = catch_all {
                c.warn(format_args!("it is never used: {family}[{before}] has no match and matches everything"));
            } else {
                for (n, condition) in matches.iter().enumerate() {
                    match seen.get(&condition.encode_to_vec()) {
                        Some(before) => c.warn(format_args!("match[{n}] is never used: {family}[{before}] has it too")),
                        None => {
                            seen.insert(condition.encode_to_vec(), i);
                            first.push((i, condition));
                        }
                    }
                }
            }
        });
        if matches.is_empty() {
            catch_all = Some(i);
        }
    }
    first
}

/// A match on a prefix, with its other conditions.
struct Prefix<'a> {
    route: usize,
    prefix: &'a str,
    port: u32,
    method: String,
    authority: String,
    maps: [BTreeMap<&'a str, String>; 3],
}

impl<'a> Prefix<'a> {
    fn new(route: usize, condition: &'a HttpMatchRequest) -> Option<Self> {
        let Some(MatchType::Prefix(prefix)) = condition.uri.as_ref()?.match_type.as_ref() else { return None };
        let map = |m: &'a BTreeMap<String, StringMatch>| m.iter().map(|(k, v)| (k.as_str(), text(Some(v)))).collect();
        let method = text(condition.method.as_ref());
        (!prefix.is_empty()).then(|| Self {
            route,
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
