//! Statuses of Gateways and ListenerSets, without the number of attached routes.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    address::Instances,
    class::Controller,
    conditions::{Conditions, Problem, existing},
    input::{Input, Object},
    listener::ListenerStatus,
    types::gateway::{FrontendTls, GatewaySpec, ListenerSetSpec},
};
use crate::proto::networking::Server;

/// The inputs of a Gateway's status.
pub struct GatewayReport<'a> {
    /// Controller of the Gateway.
    pub controller: Controller,
    /// Host names of the Gateway's services.
    pub services: &'a [String],
    /// Servers of its listeners and attached ListenerSets.
    pub servers: Vec<Server>,
    /// Number of attached ListenerSets.
    pub listener_sets: usize,
    /// Problem of the Gateway.
    pub problem: Option<Problem>,
    /// Problem of its client certificate.
    pub tls_problem: Option<Problem>,
    /// Number of its own valid listeners.
    pub valid: usize,
}

impl Default for GatewayReport<'_> {
    fn default() -> Self {
        Self {
            controller: Controller::Gateway,
            services: &[],
            servers: Vec::new(),
            listener_sets: 0,
            problem: None,
            tls_problem: None,
            valid: 0,
        }
    }
}

impl GatewayReport<'_> {
    /// The status, without listeners.
    pub fn status(self, input: &Input<'_>, gateway: &Object<GatewaySpec>) -> Value {
        let instances = Instances::resolve(input, gateway.namespace(), self.services, self.servers.iter());
        let mut conditions = Conditions::default()
            .good("Accepted", "Accepted", "Resource accepted")
            .good("Programmed", "Programmed", "Resource programmed")
            .good("ResolvedRefs", "ResolvedRefs", "All references resolved");
        let total = gateway.spec.listeners.len();
        if let Some(problem) = self.problem {
            conditions.problem("Accepted", problem);
        } else if total > 0 && self.valid == 0 {
            let message = "None of the Gateway's listeners are valid";
            conditions.problem("Accepted", Problem::new("ListenersNotValid", message));
        } else if self.valid < total {
            let message = "One or more of the Gateway's listeners are invalid";
            conditions.set("Accepted", "True", "ListenersNotValid", message);
        }
        if let Some(problem) = self.tls_problem {
            conditions.problem("ResolvedRefs", problem);
        }
        let mut old = existing(&gateway.config.status);
        if let Some(frontend) = gateway.spec.tls.as_ref().and_then(|t| t.frontend.as_ref()) {
            const INSECURE: &str = "InsecureFrontendValidationMode";
            match is_insecure(frontend) {
                true => {
                    let message = "Gateway is operating in AllowInsecureFallback mode for frontend validation";
                    conditions.set(INSECURE, "True", "ConfigurationChanged", message);
                }
                false => old.retain(|c| c.r#type != INSECURE),
            }
        }
        instances.report(self.services, &mut conditions);
        let mut status = object(&gateway.config.status);
        status["conditions"] = json!(conditions.over(old, gateway.generation()));
        if self.listener_sets > 0 {
            status["attachedListenerSets"] = json!(self.listener_sets);
        }
        let addresses = addresses(gateway, self.controller, &instances);
        if !addresses.is_empty() {
            let typed = |a: &String| match a.parse::<std::net::IpAddr>() {
                Ok(_) => json!({"type": "IPAddress", "value": a}),
                Err(_) => json!({"type": "Hostname", "value": a}),
            };
            status["addresses"] = addresses.iter().map(typed).collect();
        }
        status
    }
}

/// External addresses; without any, the internal ones of the type given by the class or an annotation.
fn addresses(gateway: &Object<GatewaySpec>, controller: Controller, instances: &Instances) -> Vec<String> {
    if !instances.external.is_empty() {
        return instances.external.iter().cloned().collect();
    }
    let given = gateway.config.meta.annotations.get("networking.istio.io/address-type");
    let wanted = given.map_or(controller.address_type(), String::as_str);
    let mut addresses: Vec<String> = Vec::new();
    if wanted != "Hostname" {
        addresses.extend(instances.internal_ips.iter().cloned());
    }
    if wanted != "IPAddress" {
        for host in instances.internal.iter().filter_map(|i| i.rsplit_once(':')).map(|(host, _)| host.to_string()) {
            if !instances.pending.contains(&host) && !addresses.contains(&host) {
                addresses.push(host);
            }
        }
    }
    addresses
}

fn is_insecure(frontend: &FrontendTls) -> bool {
    let all = std::iter::once(&frontend.default).chain(frontend.per_port.iter().map(|p| &p.tls));
    all.filter_map(|c| c.validation.as_ref()).any(|v| v.mode == "AllowInsecureFallback")
}

/// The status of a Gateway outside of the cluster, with the addresses in its spec.
pub fn unmanaged_status(gateway: &Object<GatewaySpec>) -> Value {
    let conditions = Conditions::default().good("Accepted", "Accepted", "Resource accepted").good(
        "Programmed",
        "Programmed",
        "This Gateway is remote; Istio will not program it",
    );
    let mut status = status_with(gateway, &conditions);
    let addresses: Vec<Value> = gateway
        .spec
        .addresses
        .iter()
        .map(|a| match &a.r#type {
            Some(kind) => json!({"type": kind, "value": a.value}),
            None => json!({"value": a.value}),
        })
        .collect();
    match addresses.is_empty() {
        true => drop(status.as_object_mut().and_then(|fields| fields.remove("addresses"))),
        false => status["addresses"] = json!(addresses),
    }
    status
}

/// The status of a ListenerSet, without listeners.
pub fn listener_set_status(
    input: &Input<'_>,
    parent: &Object<GatewaySpec>,
    set: &Object<ListenerSetSpec>,
    services: &[String],
    servers: &[Server],
    problem: Option<Problem>,
    valid: bool,
) -> Value {
    let instances = Instances::resolve(input, parent.namespace(), services, servers.iter());
    let mut conditions = Conditions::default().good("Accepted", "Accepted", "Resource accepted").good(
        "Programmed",
        "Programmed",
        "Resource programmed",
    );
    instances.report(services, &mut conditions);
    let none = || Problem::new("ListenersNotValid", "None of the ListenerSet's listeners are valid");
    match problem {
        Some(problem) => {
            let message = format!("Parent not accepted: {}", problem.message);
            conditions.problem("Accepted", Problem::new(problem.reason, message));
        }
        None if !valid => conditions.problem("Accepted", none()),
        None => {}
    }
    if !valid {
        conditions.problem("Programmed", none());
    }
    status_with(set, &conditions)
}

/// The status as read, with these conditions merged in.
pub fn status_with<T>(of: &Object<T>, conditions: &Conditions) -> Value {
    let mut status = object(&of.config.status);
    status["conditions"] = json!(conditions.over(existing(&of.config.status), of.generation()));
    status
}

fn object(status: &Value) -> Value {
    if status.is_object() { status.clone() } else { json!({}) }
}

/// The listeners of a status as read.
pub fn listeners_of(status: &Value) -> Vec<ListenerStatus> {
    status.get("listeners").map(|l| Vec::deserialize(l).unwrap_or_default()).unwrap_or_default()
}
