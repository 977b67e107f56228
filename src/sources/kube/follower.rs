//! The port between the watch of a kind and the receivers of its objects.

use std::fmt::Debug;

use futures::{FutureExt, future::BoxFuture};
use kube::core::{ApiResource, DynamicResourceScope, Resource};
use serde::de::DeserializeOwned;

use super::FeedReport;

/// The target of a list and watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WatchTarget {
    pub(super) resource: ApiResource,
    pub(super) namespace: Option<String>,
    pub(super) fields: Option<String>,
    pub(super) labels: Option<String>,
}

/// An event of an object.
#[derive(Debug)]
pub(super) enum ObjectChange<T> {
    Put(T),
    Gone(T),
}

/// The reason why a watch ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// A new one is to begin with a list, after a pause.
    Renew(String),
    /// A new one is to begin with a list, now: it is time, nothing is wrong.
    Relist,
    /// No right to read it.
    Forbidden(String),
    /// There is no such kind.
    Absent(String),
}

/// Takes the events of a watch.
pub(super) trait Follower: Send {
    /// An object as it comes.
    type Object: Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>
        + Clone
        + DeserializeOwned
        + Debug
        + Send
        + Sync
        + 'static;
    /// An object as it is kept.
    type Item: Send;

    /// Waits until there is something to follow.
    fn target(&mut self) -> BoxFuture<'_, WatchTarget>;
    /// Whether the kind is known to exist: the server will soon answer another thing than 404.
    fn is_expected(&self) -> bool {
        true
    }
    /// Whether the server has no such kind, although its answer is 403.
    fn is_absent(&mut self) -> BoxFuture<'_, bool> {
        std::future::ready(false).boxed()
    }
    /// Whether the process waits for this kind: it is asked for more often.
    fn is_waited_for(&self) -> bool {
        false
    }
    /// Waits until the target may be another.
    fn shifted(&mut self) -> BoxFuture<'_, ()> {
        std::future::pending().boxed()
    }
    /// Reads an object; one of a list need not be read again when its text is the one in force.
    fn read(&mut self, object: Self::Object, listing: bool) -> Self::Item;
    /// A list is complete.
    fn listed(&mut self, list: Vec<Self::Item>) -> BoxFuture<'_, Result<(), End>>;
    /// Objects changed, in this order.
    fn told(&mut self, changes: Vec<ObjectChange<Self::Item>>) -> BoxFuture<'_, Result<(), End>>;
    /// Changes the report of the feed.
    fn report(&mut self, change: &mut dyn FnMut(&mut FeedReport));
}
