//! Gateway API: classes, gateways, listener sets, routes and policies become what Istio's `kube/gateway` makes of them.

use super::{draft::Output, objects::Objects};

/// Translates all Gateway API objects.
pub fn translate(_objects: &Objects<'_>, _output: &mut Output) {}
