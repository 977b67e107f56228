//! The client's side of the protocol, without I/O: answers in, replies and changes out.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    answer::{Answer, Ask},
    content::Content,
};
use crate::{
    model::{Config, ConfigKey, Kind, Origin, mcp},
    sources::{Change, Findings, Refused, SourceId, Warned},
};

/// Types that were never asked for and came all the same, as far as they are reported.
const MOST_UNREQUESTED: usize = 16;
/// Characters of a type URL that are reported.
const LONGEST_URL: usize = 200;

/// The two variants of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// State of the world: each answer holds all resources of a type.
    Sotw,
    /// Delta (incremental): an answer holds changed resources and removals.
    Delta,
}

/// One type on the stream.
#[derive(Debug)]
struct Type {
    content: Content,
    /// Version of the last answer that was accepted.
    version: String,
    /// It was answered on this stream.
    answered: bool,
    /// It was answered at least once.
    known: bool,
    /// Saved objects were looked for: after the first answer.
    recalled: bool,
}

/// The state of the protocol with one upstream. Lives as long as the process: a new stream goes on from here.
#[derive(Debug)]
pub struct Client {
    id: SourceId,
    protocol: Protocol,
    most_objects: usize,
    types: BTreeMap<String, Type>,
    unrequested: BTreeMap<String, String>,
    settled: bool,
}

impl Client {
    /// A client that knows nothing. Deletions in masses are held for `hold`; more than `most_objects` are refused.
    /// `api_version` (`v1alpha3`) is asked for of the kinds that have it, the newest of the others.
    #[must_use]
    pub fn new(id: SourceId, protocol: Protocol, hold: Duration, most_objects: usize, api_version: &str) -> Self {
        let origin = Origin { source: id.clone(), ..Origin::default() };
        let asked = |kind: &&Kind| mcp::is_carried(**kind);
        let types = Kind::ALL.iter().filter(asked).filter_map(|kind| {
            let of_version = |url: &String| url.split('/').nth(1) == Some(api_version);
            let url = mcp::type_urls(*kind).find(of_version).or_else(|| mcp::type_urls(*kind).next())?;
            let written = url.rsplit_once('/').map_or(url.as_str(), |(written, _)| written);
            let written = written.strip_prefix("core/").unwrap_or(written);
            let content = Content::new(*kind, written, origin.clone(), hold);
            Some((url, Type { content, version: String::new(), answered: false, known: false, recalled: false }))
        });
        Self { types: types.collect(), id, protocol, most_objects, unrequested: BTreeMap::new(), settled: false }
    }

    /// The variant of the protocol.
    #[must_use]
    pub const fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// The first requests of a new stream. A delta client names the versions that it holds, so only differences come.
    pub fn open(&mut self) -> Vec<Ask> {
        let delta = self.protocol == Protocol::Delta;
        let ask = |(url, state): (&String, &mut Type)| {
            state.answered = false;
            Ask {
                type_url: url.clone(),
                version: if delta { String::new() } else { state.version.clone() },
                subscribe: true,
                held: if delta { state.content.versions() } else { BTreeMap::new() },
                ..Ask::default()
            }
        };
        self.types.iter_mut().map(ask).collect()
    }

    /// The stream is no longer new: answers from now on are changes, not the first content.
    pub fn mark_answered(&mut self) {
        self.types.values_mut().for_each(|t| t.answered = true);
    }

    /// Takes an answer in and gives the reply to it: an acceptance, or a refusal that names the refused resources. The rest of a
    /// refused answer is taken all the same. An answer without a nonce gets no reply.
    pub fn receive(&mut self, answer: Answer) -> Option<Ask> {
        let (type_url, nonce, version) = (answer.type_url.clone(), answer.nonce.clone(), answer.version.clone());
        let wanted = !nonce.is_empty();
        let room = self.most_objects.saturating_sub(self.len());
        let Some(state) = self.types.get_mut(&type_url) else {
            let url: String = type_url.chars().take(LONGEST_URL).collect();
            let reason = "this type was not asked for".to_string();
            if self.unrequested.len() < MOST_UNREQUESTED {
                self.unrequested.insert(url, reason.clone());
            }
            return wanted.then(|| Ask { type_url, nonce, refusal: Some(reason), ..Ask::default() });
        };
        let of = answer.resources.len();
        let taken = state.content.take(answer, room, !state.answered);
        (state.answered, state.known) = (true, true);
        let refusal = (taken.refused > 0).then(|| {
            format!("{} of {of} resources refused, the others are taken: {}", taken.refused, taken.reasons.join("; "))
        });
        if refusal.is_none() && self.protocol == Protocol::Sotw {
            state.version = version;
        }
        let version = state.version.clone();
        wanted.then(|| Ask { type_url, version, nonce, refusal, ..Ask::default() })
    }

    /// Every type was answered at least once.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.types.values().all(|t| t.known)
    }

    /// Kinds that were never answered.
    pub fn unanswered(&self) -> impl Iterator<Item = Kind> {
        self.types.values().filter(|t| !t.known).map(|t| t.content.kind())
    }

    /// Whether the whole content was handed over once.
    #[must_use]
    pub const fn is_settled(&self) -> bool {
        self.settled
    }

    /// The whole content was handed over.
    pub const fn settle(&mut self) {
        self.settled = true;
    }

    /// Objects that are refused in the first answer of their type and have no version in force. Asked once for each type.
    pub fn take_forgotten(&mut self) -> Vec<ConfigKey> {
        let anew = self.types.values_mut().filter(|t| t.known && !t.recalled);
        anew.flat_map(|t| {
            t.recalled = true;
            t.content.forgotten()
        })
        .collect()
    }

    /// Puts saved versions of refused objects in force.
    pub fn recall(&mut self, saved: impl Iterator<Item = Arc<Config>>) {
        for config in saved {
            if let Some(state) = self.types.values_mut().find(|t| t.content.kind() == config.kind()) {
                state.content.recall(config);
            }
        }
    }

    /// Takes the change out.
    pub fn commit(&mut self, now: Instant) -> Change {
        let present = self.len();
        let (mut upserts, mut deletes) = (Vec::new(), Vec::new());
        for state in self.types.values_mut() {
            let (new, gone) = state.content.commit(present, now);
            upserts.extend(new);
            deletes.extend(gone);
        }
        Change::Delta { upserts, deletes }
    }

    /// All objects in force.
    #[must_use]
    pub fn in_force(&self) -> Vec<Arc<Config>> {
        self.types.values().flat_map(|t| t.content.configs().cloned()).collect()
    }

    /// The number of objects in force.
    #[must_use]
    pub fn len(&self) -> usize {
        self.types.values().map(|t| t.content.len()).sum()
    }

    /// Whether there is no object in force.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Keys whose deletion is held.
    #[must_use]
    pub fn held(&self) -> Vec<ConfigKey> {
        self.types.values().filter(|t| t.content.held_until().is_some()).flat_map(|t| t.content.missing()).collect()
    }

    /// Keys that stay in their last good version because the newest is refused.
    #[must_use]
    pub fn kept(&self) -> Vec<ConfigKey> {
        self.types.values().flat_map(|t| t.content.kept()).collect()
    }

    /// The time at which the first held deletion takes effect without a confirmation.
    #[must_use]
    pub fn held_until(&self) -> Option<Instant> {
        self.types.values().filter_map(|t| t.content.held_until()).min()
    }

    /// Confirms held deletions: the next commit carries them out.
    pub fn confirm(&mut self) {
        self.types.values_mut().for_each(|t| t.content.confirm());
    }

    /// The findings of the upstream's resources.
    #[must_use]
    pub fn findings(&self) -> Findings {
        let mut findings = Findings::default();
        for content in self.types.values().map(|t| &t.content) {
            let kind = content.kind();
            findings.refused.extend(content.refused.iter().map(|(name, why)| self.refused(kind.as_str(), name, why)));
            findings.warned.extend(content.warnings().map(|(config, warning)| Warned {
                file: self.id.to_string(),
                line: 0,
                column: 0,
                kind: kind.to_string(),
                namespace: config.meta.namespace.to_string(),
                name: config.meta.name.to_string(),
                warning: warning.clone(),
            }));
        }
        findings.refused.extend(self.unrequested.iter().map(|(url, why)| self.refused(url, "", why)));
        findings.warned.sort();
        findings
    }

    fn refused(&self, kind: &str, name: &str, reason: &str) -> Refused {
        let (namespace, name) = name.split_once('/').unwrap_or(("", name));
        Refused {
            file: self.id.to_string(),
            line: 0,
            column: 0,
            kind: kind.to_string(),
            namespace: namespace.to_string(),
            name: name.to_string(),
            reason: reason.to_string(),
        }
    }
}

#[cfg(test)]
mod tests;
