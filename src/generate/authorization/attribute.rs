//! The attributes that a rule reads, and the conditions on them (Istio's `authz/model/generator.go`).

use super::{
    condition::{Condition, permission, principal},
    matcher,
    setting::{Setting, Traffic},
};
use crate::{
    generate::names::cidr_range,
    proto::envoy::{
        config::{
            core::v3::CidrRange,
            rbac::v3::{Permission, Principal, permission::Rule, principal, principal::Identifier},
        },
        r#type::matcher::v3::{StringMatcher, ValueMatcher},
    },
};

/// The filter whose metadata holds the claims of a token.
const JWT_FILTER: &str = "envoy.filters.http.jwt_authn";
/// The key of the claims there.
const JWT_PAYLOAD: &str = "payload";
const SPIFFE: &str = "spiffe://";

/// The attribute or its value has no counterpart in the traffic.
#[derive(Debug)]
pub(super) struct Unusable;

/// An attribute of a request or of its source.
#[derive(Debug, Clone)]
pub(super) enum Attribute<'a> {
    DestinationIp,
    DestinationPort,
    ServerName,
    /// Dynamic metadata of an Envoy filter: the filter and the key.
    Metadata(&'a str, &'a str),
    Host,
    Method,
    Path,
    SourceIp,
    RemoteIp,
    Namespace,
    TrustDomain,
    ServiceAccount,
    Principal,
    RequestPrincipal,
    Audiences,
    Presenter,
    Header(&'a str),
    Claim(Vec<&'a str>),
}

impl<'a> Attribute<'a> {
    /// The attribute that a condition names by its key.
    pub(super) fn parse(key: &'a str) -> Result<Self, Unusable> {
        Ok(match key {
            "destination.ip" => Self::DestinationIp,
            "destination.port" => Self::DestinationPort,
            "connection.sni" => Self::ServerName,
            "source.ip" => Self::SourceIp,
            "remote.ip" => Self::RemoteIp,
            "source.namespace" => Self::Namespace,
            "source.trustDomain" => Self::TrustDomain,
            "source.serviceAccount" => Self::ServiceAccount,
            "source.principal" => Self::Principal,
            "request.auth.principal" => Self::RequestPrincipal,
            "request.auth.audiences" => Self::Audiences,
            "request.auth.presenter" => Self::Presenter,
            _ => {
                if let Some(rest) = key.strip_prefix("request.headers") {
                    Self::Header(bracketed(rest).filter(|name| is_header(name)).ok_or(Unusable)?)
                } else if let Some(rest) = key.strip_prefix("request.auth.claims") {
                    Self::Claim(claims(rest).ok_or(Unusable)?)
                } else {
                    let rest = key.strip_prefix("experimental.").filter(|r| r.starts_with("envoy.filters."));
                    let (filter, key) = rest.and_then(|r| r.split_once('[')).ok_or(Unusable)?;
                    Self::Metadata(filter, key.strip_suffix(']').unwrap_or(key))
                }
            }
        })
    }

    /// Whether it is an attribute of the request, not of its source.
    pub(super) const fn is_of_request(&self) -> bool {
        use Attribute as A;
        matches!(
            self,
            A::DestinationIp | A::DestinationPort | A::ServerName | A::Metadata(..) | A::Host | A::Method | A::Path
        )
    }

    /// Whether traffic of this kind has the attribute.
    fn is_of(&self, traffic: Traffic) -> bool {
        use Attribute as A;
        match traffic {
            Traffic::Http => true,
            Traffic::Tcp => !matches!(
                self,
                A::Host
                    | A::Method
                    | A::Path
                    | A::RequestPrincipal
                    | A::Audiences
                    | A::Presenter
                    | A::Header(_)
                    | A::Claim(_)
            ),
            // gRPC's engine ignores unknown matchers, which would widen access; it refuses these headers.
            Traffic::Grpc => match self {
                A::ServerName | A::Metadata(..) | A::RequestPrincipal | A::Audiences | A::Presenter | A::Claim(_) => {
                    false
                }
                A::Header(name) => {
                    !name.starts_with("grpc-") && *name != ":scheme" && !name.eq_ignore_ascii_case("host")
                }
                _ => true,
            },
        }
    }
}

/// `name` of `[name]`.
fn bracketed(text: &str) -> Option<&str> {
    text.strip_prefix('[')?.strip_suffix(']').filter(|name| !name.is_empty())
}

/// The keys of nested claims, `[a][b]`. Brackets that are not in pairs belong to the one key.
fn claims(text: &str) -> Option<Vec<&str>> {
    let inner = bracketed(text)?;
    let keys: Vec<&str> = inner.split("][").collect();
    Some(if keys.iter().any(|k| k.contains(['[', ']'])) { vec![inner] } else { keys })
}

/// Whether Envoy takes a name as that of a header.
fn is_header(name: &str) -> bool {
    let bare = name.strip_prefix(':').unwrap_or(name);
    !bare.is_empty() && bare.chars().all(|c| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c))
}

fn range(text: &str) -> Result<CidrRange, Unusable> {
    cidr_range(text).ok_or(Unusable)
}

fn check(attribute: &Attribute, setting: &Setting) -> Result<(), Unusable> {
    if attribute.is_of(setting.traffic) { Ok(()) } else { Err(Unusable) }
}

/// Conditions of one kind that an attribute supports.
pub(super) trait Asked: Condition {
    /// The condition for one value; `None` for attributes whose values are matched together.
    fn of_value(attribute: &Attribute, value: &str, setting: &Setting) -> Option<Result<Self, Unusable>>;
    /// The condition for all values.
    fn of_values(attribute: &Attribute, values: &[String], setting: &Setting) -> Result<Self, Unusable>;
}

impl Asked for Permission {
    fn of_value(attribute: &Attribute, value: &str, setting: &Setting) -> Option<Result<Self, Unusable>> {
        if matches!(attribute, Attribute::Metadata(..)) {
            return None;
        }
        Some(check(attribute, setting).and_then(|()| request(attribute, value, setting)).map(permission))
    }

    fn of_values(attribute: &Attribute, values: &[String], setting: &Setting) -> Result<Self, Unusable> {
        #![allow(deprecated, reason = "Istio's proxies of all supported versions read this field")]
        check(attribute, setting)?;
        let Attribute::Metadata(filter, key) = attribute else { return Err(Unusable) };
        let values = values.iter().map(|value| match value.strip_prefix('[').and_then(|v| v.strip_suffix(']')) {
            Some(_) => matcher::value_list(matcher::value_text(matcher::pattern(value.trim_matches(['[', ']'])))),
            None => matcher::value_text(matcher::pattern(value)),
        });
        let any = matcher::value_any(values.collect());
        Ok(permission(Rule::Metadata(matcher::metadata(filter, [*key], any))))
    }
}

fn request(attribute: &Attribute, value: &str, setting: &Setting) -> Result<Rule, Unusable> {
    Ok(match attribute {
        Attribute::DestinationIp => Rule::DestinationIp(range(value)?),
        Attribute::DestinationPort => {
            Rule::DestinationPort(value.parse().ok().filter(|p| *p <= 65535).ok_or(Unusable)?)
        }
        Attribute::ServerName => Rule::RequestedServerName(matcher::pattern(value)),
        Attribute::Host => Rule::Header(matcher::header(":authority", value, true)),
        Attribute::Method => Rule::Header(matcher::header(":method", value, false)),
        Attribute::Path if matcher::is_template(value) => match setting.traffic {
            Traffic::Grpc => return Err(Unusable),
            // No path matches, and Envoy would refuse the template and the listener with it.
            _ if !value.starts_with('/') => Permission::never().rule.ok_or(Unusable)?,
            _ => Rule::UriTemplate(matcher::template(value)),
        },
        Attribute::Path => Rule::UrlPath(matcher::path(value)),
        _ => return Err(Unusable),
    })
}

impl Asked for Principal {
    fn of_value(attribute: &Attribute, value: &str, setting: &Setting) -> Option<Result<Self, Unusable>> {
        use Attribute as A;
        if matches!(attribute, A::RequestPrincipal | A::Audiences | A::Presenter | A::Claim(_)) {
            return None;
        }
        Some(check(attribute, setting).and_then(|()| peer(attribute, value, setting)).map(principal))
    }

    fn of_values(attribute: &Attribute, values: &[String], setting: &Setting) -> Result<Self, Unusable> {
        check(attribute, setting)?;
        match attribute {
            Attribute::RequestPrincipal => {
                let mut each: Vec<_> = values.iter().map(|value| request_principal(value)).collect();
                match each.pop() {
                    Some(only) if each.is_empty() => Ok(only),
                    last => {
                        each.extend(last);
                        Ok(Self::one(each))
                    }
                }
            }
            Attribute::Audiences => Ok(claim(&["aud"], values)),
            Attribute::Presenter => Ok(claim(&["azp"], values)),
            Attribute::Claim(path) => Ok(claim(path, values)),
            _ => Err(Unusable),
        }
    }
}

fn peer(attribute: &Attribute, value: &str, setting: &Setting) -> Result<Identifier, Unusable> {
    let authenticated =
        |name: StringMatcher| Identifier::Authenticated(principal::Authenticated { principal_name: Some(name) });
    Ok(match attribute {
        Attribute::SourceIp => Identifier::DirectRemoteIp(range(value)?),
        Attribute::RemoteIp => Identifier::RemoteIp(range(value)?),
        Attribute::Namespace => {
            let parts: Vec<String> = value.split('*').map(matcher::quoted).collect();
            authenticated(matcher::regex(format!(".*/ns/{}/.*", parts.join(".*"))))
        }
        Attribute::TrustDomain => authenticated(match value.split_once('*') {
            Some(("", "")) => matcher::prefix(SPIFFE),
            None => matcher::prefix(&format!("{SPIFFE}{value}/")),
            Some((start, end)) => {
                let (start, end) = (matcher::quoted(start), matcher::quoted(end));
                matcher::regex(format!("{SPIFFE}{start}[^/]*{end}/.*"))
            }
        }),
        Attribute::ServiceAccount => {
            let (namespace, account) = value.split_once('/').unwrap_or((setting.namespace, value));
            let (namespace, account) = (matcher::quoted(namespace), matcher::quoted(account));
            authenticated(matcher::regex(format!("{SPIFFE}.+/ns/{namespace}/(.+/|)sa/{account}(/.+)?")))
        }
        Attribute::Principal => authenticated(matcher::pattern_behind(SPIFFE, value)),
        Attribute::Header(name) => Identifier::Header(matcher::header(name, value, false)),
        _ => return Err(Unusable),
    })
}

/// A claim is a text, or a list of texts.
fn claim(path: &[&str], values: &[String]) -> Principal {
    let value = matcher::value_any(values.iter().map(|v| matcher::value_text(matcher::pattern(v))).collect());
    let either = matcher::value_any(vec![matcher::value_list(value.clone()), value]);
    in_payload(path.iter().copied(), either)
}

#[allow(deprecated, reason = "Istio's proxies of all supported versions read this field")]
fn in_payload<'a>(path: impl IntoIterator<Item = &'a str>, value: ValueMatcher) -> Principal {
    let path = std::iter::once(JWT_PAYLOAD).chain(path);
    principal(Identifier::Metadata(matcher::metadata(JWT_FILTER, path, value)))
}

/// The issuer and the subject of a token, as `issuer/subject`; the issuer may hold slashes.
fn request_principal(value: &str) -> Principal {
    let parts = value.rsplit_once('/');
    let (issuer, subject) = if value == "*" {
        (matcher::present(), matcher::present())
    } else if let Some(end) = value.strip_prefix('*') {
        match parts {
            Some(("*", subject)) => (matcher::present(), matcher::exact(subject)),
            Some((issuer, subject)) => (matcher::suffix(&issuer[1..]), matcher::exact(subject)),
            None => (matcher::present(), matcher::suffix(end)),
        }
    } else if let Some(start) = value.strip_suffix('*') {
        match parts {
            Some((issuer, "*")) => (matcher::exact(issuer), matcher::present()),
            Some((issuer, subject)) => (matcher::exact(issuer), matcher::prefix(&subject[..subject.len() - 1])),
            None => (matcher::prefix(start), matcher::present()),
        }
    } else {
        let (issuer, subject) = parts.unwrap_or((value, ""));
        (matcher::exact(issuer), matcher::exact(subject))
    };
    let of = |key: &str, matcher| in_payload([key], matcher::value_text(matcher));
    Principal::all(vec![of("iss", issuer), of("sub", subject)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_name_attributes() {
        assert!(matches!(Attribute::parse("request.headers[x-a]"), Ok(Attribute::Header("x-a"))));
        let metadata = Attribute::parse("experimental.envoy.filters.a.b[c]");
        assert!(matches!(metadata, Ok(Attribute::Metadata("envoy.filters.a.b", "c"))));
        for (key, keys) in [("[a]", vec!["a"]), ("[a][b.c]", vec!["a", "b.c"]), ("[a[b]]", vec!["a[b]"])] {
            assert_eq!(claims(key), Some(keys));
        }
        for key in ["request.headers", "request.headers[a b]", "request.auth.claims", "source.user", "x[y]"] {
            assert!(Attribute::parse(key).is_err(), "{key}");
        }
    }
}
