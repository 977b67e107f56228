//! One rule of a policy as Envoy's: conditions on the request become permissions, those on the source principals.
//!
//! Invariant: a part that cannot be expressed makes access narrower, never wider. It takes the whole rule out of an ALLOW
//! policy, and of any other policy the part alone, so that the rule matches more.

use super::{
    attribute::{Asked, Attribute, Unusable},
    setting::{Setting, Traffic},
    trust_domain,
};
use crate::proto::{
    envoy::config::rbac::v3::{Permission, Policy, Principal, rbac::Action},
    istio::security::v1beta1::{Condition as When, Operation, Rule, Source},
};

/// An attribute with the values that it must and must not have.
#[derive(Clone)]
struct Clause<'a> {
    attribute: Attribute<'a>,
    values: Vec<String>,
    not_values: Vec<String>,
}

/// A rule; `None` where it cannot match.
pub(crate) fn policy(rule: &Rule, setting: &Setting) -> Option<Policy> {
    let clauses: Result<Vec<Option<Clause>>, Unusable> =
        rule.when.iter().map(|when| condition(when, setting)).collect();
    let (requests, sources): (Vec<_>, Vec<_>) =
        clauses.ok()?.into_iter().flatten().partition(|clause| clause.attribute.is_of_request());
    let permissions: Result<Vec<Permission>, Unusable> = if rule.to.is_empty() {
        met(&requests, setting).map(|all| vec![all])
    } else {
        let operations = rule.to.iter().map(|to| to.operation.as_ref());
        operations.map(|o| met(&[operation(o), requests.clone()].concat(), setting)).collect()
    };
    let principals: Result<Vec<Principal>, Unusable> = if rule.from.is_empty() {
        met(&sources, setting).map(|all| vec![all])
    } else {
        let from = rule.from.iter().map(|from| from.source.as_ref());
        from.map(|s| met(&[source(s, setting), sources.clone()].concat(), setting)).collect()
    };
    Some(Policy { permissions: permissions.ok()?, principals: principals.ok()?, ..Policy::default() })
}

fn clause<'a>(attribute: Attribute<'a>, values: &[String], not_values: &[String]) -> Option<Clause<'a>> {
    let said = !values.is_empty() || !not_values.is_empty();
    said.then(|| Clause { attribute, values: values.to_vec(), not_values: not_values.to_vec() })
}

/// A condition of the rule as a whole; of an unknown attribute as much is left as cannot widen access.
fn condition<'a>(when: &'a When, setting: &Setting) -> Result<Option<Clause<'a>>, Unusable> {
    match Attribute::parse(&when.key) {
        Ok(attribute) => Ok(clause(attribute, &when.values, &when.not_values).map(|c| c.in_domains(setting))),
        Err(error) if setting.action == Action::Allow => Err(error),
        Err(_) => Ok(None),
    }
}

fn operation(operation: Option<&Operation>) -> Vec<Clause<'static>> {
    let Some(o) = operation else { return Vec::new() };
    let clauses = [
        clause(Attribute::Host, &o.hosts, &o.not_hosts),
        clause(Attribute::Method, &o.methods, &o.not_methods),
        clause(Attribute::Path, &o.paths, &o.not_paths),
        clause(Attribute::DestinationPort, &o.ports, &o.not_ports),
    ];
    clauses.into_iter().flatten().collect()
}

fn source(source: Option<&Source>, setting: &Setting) -> Vec<Clause<'static>> {
    let Some(s) = source else { return Vec::new() };
    let clauses = [
        clause(Attribute::Principal, &s.principals, &s.not_principals),
        clause(Attribute::RequestPrincipal, &s.request_principals, &s.not_request_principals),
        clause(Attribute::ServiceAccount, &s.service_accounts, &s.not_service_accounts),
        clause(Attribute::TrustDomain, &s.trust_domains, &s.not_trust_domains),
        clause(Attribute::Namespace, &s.namespaces, &s.not_namespaces),
        clause(Attribute::RemoteIp, &s.remote_ip_blocks, &s.not_remote_ip_blocks),
        clause(Attribute::SourceIp, &s.ip_blocks, &s.not_ip_blocks),
    ];
    clauses.into_iter().flatten().map(|c| c.in_domains(setting)).collect()
}

impl Clause<'_> {
    /// With the trust domains of the mesh in place of any one of them.
    fn in_domains(mut self, setting: &Setting) -> Self {
        let expand = match self.attribute {
            Attribute::Principal => trust_domain::principals,
            Attribute::TrustDomain => trust_domain::domains,
            _ => return self,
        };
        self.values = expand(&self.values, setting.trust_domains);
        self.not_values = expand(&self.not_values, setting.trust_domains);
        self
    }
}

/// All clauses are met.
fn met<C: Asked>(clauses: &[Clause], setting: &Setting) -> Result<C, Unusable> {
    let mut all = Vec::new();
    for clause in clauses {
        all.extend(has_one(&clause.attribute, &clause.values, setting)?);
        all.extend(has_one(&clause.attribute, &clause.not_values, setting)?.map(C::not));
    }
    if all.is_empty() {
        all.push(C::any());
    }
    Ok(C::all(all))
}

/// The attribute has one of the values; `None` without values.
fn has_one<C: Asked>(attribute: &Attribute, values: &[String], setting: &Setting) -> Result<Option<C>, Unusable> {
    // Without the part that cannot be expressed, a rule matches more: not even a negated one may be left of an ALLOW rule.
    let lenient = setting.action != Action::Allow;
    let mut found = Vec::with_capacity(values.len());
    for value in values {
        match C::of_value(attribute, value, setting) {
            None => match C::of_values(attribute, values, setting) {
                Err(_) if lenient => return Ok(None),
                all => return all.map(Some),
            },
            // One value of several would match less than was written: the clause is left out with it.
            Some(Err(_)) if lenient && setting.traffic == Traffic::Grpc => return Ok(None),
            Some(Err(_)) if lenient => {}
            Some(one) => found.push(one?),
        }
    }
    Ok((!found.is_empty()).then(|| C::one(found)))
}
