//! Extension providers of the mesh config: tracing, metrics, access logs, external authorization, SDS.

use std::collections::BTreeSet;

use crate::{
    model::validation::{
        address,
        check::{Check, Checked},
        names, range, uri,
    },
    proto::{
        envoy::r#type::v3::StatusCode,
        mesh::mesh_config::{ExtensionProvider, extension_provider::Provider},
    },
};

/// Tells each fault as a warning: it concerns only the policies that name the provider.
pub(super) fn validate(c: &mut Check, providers: &[ExtensionProvider]) {
    let before = c.found.errors.len();
    let mut names = BTreeSet::new();
    // By name: the place of a provider in the merged list is not the one where a user wrote it.
    for provider in providers {
        c.at(format_args!("extensionProviders[{}]", provider.name), |c| {
            if provider.name.is_empty() {
                c.error("a name is required");
            } else if !names.insert(&provider.name) {
                c.error("another provider has the same name");
            }
            match &provider.provider {
                Some(of_kind) => settings(c, of_kind),
                None => c.error("it has no settings that are known; name one kind of provider"),
            }
        });
    }
    let found = c.found.errors.split_off(before);
    c.found.warnings.extend(found);
}

/// The rules of one provider's settings.
pub(in crate::model::validation) fn settings(c: &mut Check, provider: &Provider) {
    let (kind, host, port) = match provider {
        Provider::EnvoyExtAuthzHttp(p) => {
            c.at("envoyExtAuthzHttp", |c| {
                c.field("statusOnError", status(&p.status_on_error));
                let path = &p.path_prefix;
                c.field("pathPrefix", if path.is_empty() { Ok(()) } else { prefix(path) });
            });
            ("envoyExtAuthzHttp", &p.service, p.port)
        }
        Provider::EnvoyExtAuthzGrpc(p) => {
            c.at("envoyExtAuthzGrpc", |c| c.field("statusOnError", status(&p.status_on_error)));
            ("envoyExtAuthzGrpc", &p.service, p.port)
        }
        Provider::Zipkin(p) => ("zipkin", &p.service, p.port),
        Provider::Lightstep(p) => {
            c.need(!p.access_token.is_empty(), "lightstep.accessToken is required");
            ("lightstep", &p.service, p.port)
        }
        Provider::Datadog(p) => ("datadog", &p.service, p.port),
        Provider::Opencensus(p) => ("opencensus", &p.service, p.port),
        Provider::Skywalking(p) => ("skywalking", &p.service, p.port),
        Provider::Opentelemetry(p) => {
            c.need(p.grpc.is_none() || p.http.is_none(), "opentelemetry: only one of grpc and http may be set");
            ("opentelemetry", &p.service, p.port)
        }
        Provider::EnvoyHttpAls(p) => ("envoyHttpAls", &p.service, p.port),
        Provider::EnvoyTcpAls(p) => ("envoyTcpAls", &p.service, p.port),
        Provider::EnvoyOtelAls(p) => ("envoyOtelAls", &p.service, p.port),
        // An SDS provider has no rules in Istio, which tells it as unsupported and uses it nevertheless.
        Provider::Prometheus(_) | Provider::Stackdriver(_) | Provider::EnvoyFileAccessLog(_) | Provider::Sds(_) => {
            return;
        }
    };
    c.at(kind, |c| {
        c.field("service", service(host));
        c.field("port", range::port(port));
    });
}

/// The service of a provider: `host` or `namespace/host`.
pub(in crate::model::validation) fn service(text: &str) -> Checked {
    if text.is_empty() {
        return Err("it is required".to_string());
    }
    if !text.contains('/') {
        return names::fqdn(text).or_else(|reason| if address::is_ip(text) { Ok(()) } else { Err(reason) });
    }
    let mut check = Check::new("");
    names::namespaced_host(&mut check, text, false, false);
    let first = super::relative(check.finish()).errors.into_iter().next();
    first.map_or(Ok(()), Err)
}

fn status(text: &str) -> Checked {
    let known = text.parse().is_ok_and(|code: i32| StatusCode::try_from(code).is_ok());
    if text.is_empty() || known { Ok(()) } else { Err(format!("{text:?} is no HTTP status that Envoy has")) }
}

fn prefix(path: &str) -> Checked {
    uri::reference(path)?;
    if path.starts_with('/') { Ok(()) } else { Err(format!("{path:?} must begin with /")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_hosts_with_or_without_a_namespace() {
        for good in ["authz.foo.svc.cluster.local", "foo/authz.foo.svc", "127.0.0.1", "2001:db8::1", "*/a.b"] {
            assert!(service(good).is_ok(), "{good}");
        }
        for bad in ["", "a.b:80", "a/b/c.d", "a/", "/a.b", "a/b"] {
            assert!(service(bad).is_err(), "{bad}");
        }
        assert!(status("403").is_ok() && status("999").is_err() && status("x").is_err());
        assert!(prefix("/a").is_ok() && prefix("a").is_err() && prefix("/%zz").is_err());
    }
}
