//! Envoy's two kinds of conditions, of a request and of its source, under one logic.

use crate::proto::envoy::config::rbac::v3::{Permission, Principal, permission, principal};

/// A condition that can be combined with others of its kind.
pub(super) trait Condition: Sized {
    /// Always met.
    fn any() -> Self;
    /// All are met.
    fn all(conditions: Vec<Self>) -> Self;
    /// One is met.
    fn one(conditions: Vec<Self>) -> Self;
    /// It is not met.
    fn not(self) -> Self;
    /// Never met.
    fn never() -> Self {
        Self::any().not()
    }
}

pub(super) fn permission(rule: permission::Rule) -> Permission {
    Permission { rule: Some(rule) }
}

pub(super) fn principal(identifier: principal::Identifier) -> Principal {
    Principal { identifier: Some(identifier) }
}

impl Condition for Permission {
    fn any() -> Self {
        permission(permission::Rule::Any(true))
    }

    fn all(rules: Vec<Self>) -> Self {
        permission(permission::Rule::AndRules(permission::Set { rules }))
    }

    fn one(rules: Vec<Self>) -> Self {
        permission(permission::Rule::OrRules(permission::Set { rules }))
    }

    fn not(self) -> Self {
        permission(permission::Rule::NotRule(Box::new(self)))
    }
}

impl Condition for Principal {
    fn any() -> Self {
        principal(principal::Identifier::Any(true))
    }

    fn all(ids: Vec<Self>) -> Self {
        principal(principal::Identifier::AndIds(principal::Set { ids }))
    }

    fn one(ids: Vec<Self>) -> Self {
        principal(principal::Identifier::OrIds(principal::Set { ids }))
    }

    fn not(self) -> Self {
        principal(principal::Identifier::NotId(Box::new(self)))
    }
}
