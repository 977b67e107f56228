//! Extensions that come over ECDS as rows.

use serde_json::Value;

use super::{super::table, objects::NONE};

/// The prefix of the names of extensions.
const PREFIX: &str = "extensions.istio.io/trafficextension/";
/// The suffix of the extension that a WasmPlugin becomes.
const OF_PLUGIN: &str = "~istio-translated-wasmplugin";

/// istioctl's columns, and the object.
pub(super) fn table(extensions: &[Value]) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let row = |extension: &Value| {
        let (name, url) = (text(&extension["name"]), text(&extension["typedConfig"]["@type"]));
        let kind = url.strip_prefix("type.googleapis.com/").unwrap_or(&url).to_string();
        let object = object_of(&name).unwrap_or_else(|| NONE.to_string());
        [name, kind, object]
    };
    let mut rows: Vec<[String; 3]> = extensions.iter().map(row).collect();
    rows.sort_by(|a, b| (&a[1], &a[0]).cmp(&(&b[1], &b[0])));
    rows.insert(0, ["ECDS NAME", "TYPE", "OBJECT"].map(String::from));
    table::aligned(&rows)
}

/// The object of `extensions.istio.io/trafficextension/NAMESPACE.NAME`; EnvoyFilters give names of their own.
fn object_of(resource: &str) -> Option<String> {
    let (namespace, name) = resource.strip_prefix(PREFIX)?.split_once('.')?;
    let plugin = name.strip_suffix(OF_PLUGIN);
    let kind = if plugin.is_some() { "WasmPlugin" } else { "TrafficExtension" };
    Some(format!("{kind}/{}.{namespace}", plugin.unwrap_or(name)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_object_is_in_the_name() {
        let extension = |name: &str, kind: &str| json!({"name": name, "typedConfig": {"@type": format!("type.googleapis.com/{kind}")}});
        let text = table(&[
            extension(&format!("{PREFIX}shop.auth{OF_PLUGIN}"), "b.Wasm"),
            extension("own", "a.Lua"),
            extension(&format!("{PREFIX}shop.limit"), "a.Lua"),
        ]);
        let rows: Vec<Vec<&str>> = text.lines().skip(1).map(|l| l.split_whitespace().collect()).collect();
        assert_eq!(rows[0][1..], ["a.Lua", "TrafficExtension/limit.shop"]);
        assert_eq!(rows[1], ["own", "a.Lua", "-"]);
        assert_eq!(rows[2][1..], ["b.Wasm", "WasmPlugin/auth.shop"]);
    }
}
