//! Statuses of Gateways and ListenerSets, but for the numbers of routes.

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

/// What the status of a Gateway is made of.
pub struct GatewayReport<'a> {
    /// Who handles it.
    pub controller: Controller,
    /// Host names of its services.
    pub services: &'a [String],
    /// The servers of its listeners and ListenerSets.
    pub servers: Vec<Server>,
    /// ListenerSets that are attached.
    pub listener_sets: usize,
    /// What is wrong with the Gateway.
    pub problem: Option<Problem>,
    /// What is wrong with its client certificate.
    pub tls_problem: Option<Problem>,
    /// Number of its own listeners that are valid.
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

/// External addresses, else those inside the cluster of the type that the class or an annotation asks for.
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

/// The status of a Gateway that is elsewhere: its addresses are those that the user gives, and none without them.
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

/// The status that was read, with these conditions in it.
pub fn status_with<T>(of: &Object<T>, conditions: &Conditions) -> Value {
    let mut status = object(&of.config.status);
    status["conditions"] = json!(conditions.over(existing(&of.config.status), of.generation()));
    status
}

fn object(status: &Value) -> Value {
    if status.is_object() { status.clone() } else { json!({}) }
}

/// The listeners of a status that was read.
pub fn listeners_of(status: &Value) -> Vec<ListenerStatus> {
    status.get("listeners").map(|l| Vec::deserialize(l).unwrap_or_default()).unwrap_or_default()
}
