//! Connections and their limits: how many there are, how old they get, how long a request may take to come whole, how much memory
//! unfinished requests and unknown names take, and at which rate requests are taken.

pub(super) mod accept;
pub(super) mod admission;
pub(super) mod body;
pub(super) mod budget;
pub(super) mod clients;
pub(super) mod name_budget;
pub(super) mod options;
pub(super) mod service;
pub(super) mod unix;
mod unread;
