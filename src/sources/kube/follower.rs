//! The port between the watch of a kind and those who keep its objects.

use std::fmt::Debug;

use futures::{FutureExt, future::BoxFuture};
use kube::core::{ApiResource, DynamicResourceScope, Resource};
use serde::de::DeserializeOwned;

use super::FeedReport;

/// What is followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WatchTarget {
    pub(super) resource: ApiResource,
    pub(super) namespace: Option<String>,
    pub(super) fields: Option<String>,
    pub(super) labels: Option<String>,
}

/// Something that happened to an object.
#[derive(Debug)]
pub(super) enum ObjectChange<T> {
    Put(T),
    Gone(T),
}

/// Why a watch ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// A new one is to begin with a list, after a pause.
    Renew(String),
    /// A new one is to begin with a list, now: it is time, nothing is wrong.
    Relist,
    /// We may not.
    Forbidden(String),
    /// There is no such kind.
    Absent(String),
}

/// Takes what a watch tells.
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
    /// Whether the server has said that there is such a kind: an answer that there is none is soon another one.
    fn is_expected(&self) -> bool {
        true
    }
    /// Whether the server has no such kind, although it says no more than that we may not read it.
    fn is_absent(&mut self) -> BoxFuture<'_, bool> {
        std::future::ready(false).boxed()
    }
    /// Whether the process waits for this kind: it is asked for more often.
    fn is_waited_for(&self) -> bool {
        false
    }
    /// Waits until what is followed may be another.
    fn shifted(&mut self) -> BoxFuture<'_, ()> {
        std::future::pending().boxed()
    }
    /// Reads an object; one of a list need not be read again when its text is the one in force.
    fn read(&mut self, object: Self::Object, listing: bool) -> Self::Item;
    /// A list is complete.
    fn listed(&mut self, list: Vec<Self::Item>) -> BoxFuture<'_, Result<(), End>>;
    /// Objects changed, in this order.
    fn told(&mut self, changes: Vec<ObjectChange<Self::Item>>) -> BoxFuture<'_, Result<(), End>>;
    /// Says how the feed is.
    fn report(&mut self, change: &mut dyn FnMut(&mut FeedReport));
}
