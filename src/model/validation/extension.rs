//! WasmPlugin and TrafficExtension: extension code loaded by proxies.

use std::collections::BTreeSet;

use super::{
    check::{Check, Checked},
    policy, range, uri,
};
use crate::proto::istio::{
    extensions::v1alpha1::{
        EnvValueSource, EnvVar, LuaConfig, TrafficExtension, VmConfig, WasmConfig, WasmPlugin,
        traffic_extension::FilterConfig,
    },
    r#type::v1beta1::PortSelector,
};

const LONGEST_SECRET: usize = 253;
const LONGEST_NAME: usize = 256;
const LONGEST_CODE: usize = 65536;

/// Validates a WasmPlugin.
pub(super) fn wasm_plugin(c: &mut Check, plugin: &WasmPlugin) {
    policy::targets(c, plugin.selector.as_ref(), plugin.target_ref.as_ref(), &plugin.target_refs);
    Module {
        url: &plugin.url,
        sha256: &plugin.sha256,
        secret: &plugin.image_pull_secret,
        name: &plugin.plugin_name,
        vm: plugin.vm_config.as_ref(),
    }
    .validate(c);
    c.each("match", &plugin.r#match, |c, m| c.each("ports", &m.ports, port));
}

/// Validates a TrafficExtension.
pub(super) fn traffic_extension(c: &mut Check, extension: &TrafficExtension) {
    policy::targets(c, extension.selector.as_ref(), None, &extension.target_refs);
    match &extension.filter_config {
        Some(FilterConfig::Wasm(wasm)) => c.at("wasm", |c| Module::of(wasm).validate(c)),
        Some(FilterConfig::Lua(code)) => c.at("lua", |c| lua(c, code)),
        None => c.error("one of wasm and lua must be set"),
    }
    c.each("match", &extension.r#match, |c, m| c.each("ports", &m.ports, port));
}

struct Module<'a> {
    url: &'a str,
    sha256: &'a str,
    secret: &'a str,
    name: &'a str,
    vm: Option<&'a VmConfig>,
}

impl<'a> Module<'a> {
    fn of(wasm: &'a WasmConfig) -> Self {
        Self {
            url: &wasm.url,
            sha256: &wasm.sha256,
            secret: &wasm.image_pull_secret,
            name: &wasm.plugin_name,
            vm: wasm.vm_config.as_ref(),
        }
    }

    fn validate(&self, c: &mut Check) {
        c.field("url", url(self.url));
        let sha = self.sha256;
        let hexadecimal = sha.bytes().all(|b| matches!(b, b'a'..=b'f' | b'0'..=b'9'));
        c.need(
            sha.is_empty() || (sha.len() == 64 && hexadecimal),
            format_args!("sha256: {sha:?} must be 64 digits of 0-9 and a-f"),
        );
        c.need(self.secret.len() <= LONGEST_SECRET, "imagePullSecret: longer than 253 characters");
        c.need(self.name.len() <= LONGEST_NAME, "pluginName: longer than 256 characters");
        let mut seen = BTreeSet::new();
        c.at("vmConfig", |c| {
            c.each("env", self.vm.map_or(&[], |vm| vm.env.as_slice()), |c, env| {
                variable(c, env);
                c.need(seen.insert(env.name.clone()), format_args!("name {:?} is given twice", env.name));
            });
        });
    }
}

fn variable(c: &mut Check, env: &EnvVar) {
    c.need(!env.name.is_empty(), "name must be set");
    c.need(env.name.len() <= LONGEST_NAME, "name: longer than 256 characters");
    let inline = env.value_from() == EnvValueSource::Inline;
    c.need(inline || env.value.is_empty(), "value is for valueFrom INLINE only; remove it");
}

/// A URL with the scheme `file:`, `http:`, `https:` or `oci:`; without a scheme it is the name of an OCI image.
fn url(text: &str) -> Checked {
    if text.is_empty() {
        return Err("must be set".to_string());
    }
    let prefixed = format!("http://{text}");
    let (uri, whole) = match uri::of_request(text) {
        Ok(uri) => (uri, text),
        Err(error) => (uri::of_request(&prefixed).map_err(|_| error)?, prefixed.as_str()),
    };
    uri::reference(whole)?;
    match uri.scheme.as_str() {
        "" | "file" | "http" | "https" | "oci" => Ok(()),
        scheme => Err(format!("scheme {scheme:?} is not supported; use file, http, https or oci")),
    }
}

fn lua(c: &mut Check, lua: &LuaConfig) {
    c.need(!lua.inline_code.is_empty(), "inlineCode must be set");
    c.need(lua.inline_code.len() <= LONGEST_CODE, "inlineCode: longer than 64 kB");
}

fn port(c: &mut Check, port: &PortSelector) {
    c.field("number", range::port(port.number));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_need_no_scheme() {
        for good in ["test", "test.com/a:1", "oci://a/b", "file:///a/b", "/a"] {
            assert!(url(good).is_ok(), "{good}");
        }
        for bad in ["", "ftp://a", "localhost:5000/a", "#%blah$#@", "http://a\u{7f}"] {
            assert!(url(bad).is_err(), "{bad}");
        }
    }
}
