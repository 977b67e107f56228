//! Gateway API: classes, gateways, listener sets, routes and policies, translated as in Istio's `kube/gateway`.
//!
//! Every listener becomes one Istio Gateway, every parent and host of a route one VirtualService, and the policies of a backend
//! one DestinationRule. Names, annotations and status texts are Istio's: generation, dashboards and users rely on them. The
//! result does not depend on the order of reading: precedence is by age, then namespace, then name.

mod address;
mod ancestor;
mod attachment;
mod backend;
mod certificate;
mod class;
mod conditions;
mod conflict;
mod destination_rule;
mod filter;
mod gateway;
mod gateway_status;
mod http;
mod input;
mod listener;
mod listener_sets;
mod listening;
mod matching;
mod parent;
mod policy;
mod policy_status;
mod pool;
mod reference;
mod route;
mod route_status;
mod tls;
#[allow(missing_docs, reason = "a field is the field of that name, documented by Gateway API")]
mod types;

pub use reference::Grants;

use self::{gateway::Gateways, input::Input, parent::RouteContext, route::Routes};
use super::{draft::Output, objects::Objects};

/// Translates all Gateway API objects. Returns the permissions given by ReferenceGrants.
pub fn translate(objects: &Objects<'_>, output: &mut Output) -> Grants {
    let input = Input::of(objects, output);
    let grants = Grants::of(&input.grants);
    class::report(&input, output);
    let mut gateways = Gateways::of(&input, &grants);
    let (parents, drafts) = std::mem::take(&mut gateways.listeners).into_parts();
    for draft in drafts {
        output.add(draft);
    }
    let context = RouteContext::new(&input, &grants, &parents);
    let routes = Routes::of(&context, output);
    gateways.write(&routes.attachments, output);
    let policies = policy::policies(&input, &routes.ancestors, output);
    destination_rule::write(&input, policies, output);
    pool::report(&input, output);
    grants
}

#[cfg(test)]
mod tests;
