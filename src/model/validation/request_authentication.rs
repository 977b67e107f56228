//! RequestAuthentication: accepted issuers, the places of tokens in a request, and the use of their claims.

use super::{
    check::{Check, Checked},
    header, jwks, policy, range, uri,
};
use crate::proto::istio::security::v1beta1::{JwtRule, RequestAuthentication};

pub(super) fn validate(c: &mut Check, policy: &RequestAuthentication) {
    policy::targets(c, policy.selector.as_ref(), policy.target_ref.as_ref(), &policy.target_refs);
    c.each("jwtRules", &policy.jwt_rules, rule);
}

fn rule(c: &mut Check, rule: &JwtRule) {
    c.need(!rule.issuer.is_empty() || !rule.jwks_uri.is_empty(), "issuer or jwksUri must be set");
    if !rule.jwks_uri.is_empty() {
        c.field("jwksUri", key_server(&rule.jwks_uri));
    }
    if !rule.jwks.is_empty() {
        match jwks::private_keys(&rule.jwks) {
            Ok(private) => private.iter().for_each(|index| {
                c.warn(format_args!("jwks: key {index} holds private material; only public keys are needed"));
            }),
            Err(error) => c.error(format_args!("jwks: {error}")),
        }
    }
    let named = |c: &mut Check, name: &String| c.need(!name.is_empty(), "an empty name finds nothing; remove it");
    c.each("audiences", &rule.audiences, named);
    c.each("fromHeaders", &rule.from_headers, |c, location| named(c, &location.name));
    c.each("fromParams", &rule.from_params, named);
    c.each("fromCookies", &rule.from_cookies, named);
    c.each("outputClaimToHeaders", &rule.output_claim_to_headers, |c, output| {
        if output.claim.is_empty() || output.header.is_empty() {
            return c.error("claim and header must be set");
        }
        c.field("header", header::strict_name(&output.header));
    });
    c.field("timeout", range::optional_duration(rule.timeout.as_ref()));
}

fn key_server(text: &str) -> Checked {
    let uri = uri::reference(text)?;
    if uri.scheme != "http" && uri.scheme != "https" {
        return Err(format!("{text:?} must begin with http:// or https://"));
    }
    match uri.port.is_empty() || uri.port.parse::<i64>().is_ok() {
        true => Ok(()),
        false => Err(format!("{:?} is not a port", uri.port)),
    }
}
