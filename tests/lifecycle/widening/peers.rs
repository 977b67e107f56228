//! PeerAuthentications that are damaged at random are refused, or set the modes that their documentation says; one that is
//! refused changes nothing.

use std::collections::BTreeMap;

use pilothouse::{
    model::{ConfigSnapshot, Labels},
    push::{
        PushContext,
        authn::MtlsMode::{self, Disable, Permissive, Strict},
        context::PushInputs,
    },
};
use serde_json::{Value, json};

use super::{
    damage::damaged,
    random::{Random, setting},
    taken,
};

const KIND: &str = "PeerAuthentication";
const ROOT: &str = "istio-system";
const NAMESPACES: [&str; 3] = [ROOT, "bank", "shop"];
const APPS: [&str; 2] = ["till", "web"];
const PORTS: [u32; 3] = [80, 8080, 9000];

/// A policy with its namespace; of two of one level the first in the list is older.
type Policies = Vec<(&'static str, Value)>;

fn mtls(random: &mut Random) -> Value {
    json!({"mode": random.of(&["UNSET", "DISABLE", "PERMISSIVE", "STRICT", "STRICT"])})
}

fn policy(random: &mut Random) -> Value {
    let mut spec = json!({});
    if random.chance(85) {
        spec["mtls"] = mtls(random);
    }
    if random.chance(50) {
        spec["selector"] = json!({"matchLabels": {"app": random.of(&APPS)}});
        for port in PORTS {
            if random.chance(40) {
                spec["portLevelMtls"][port.to_string()] = mtls(random);
            }
        }
    }
    spec
}

/// The mode of a message; `None` where the level above decides, `Err` where the documentation does not say it.
fn mode_of(mtls: &Value) -> Result<Option<MtlsMode>, ()> {
    // An enum of a protobuf message may be written as its number.
    match &mtls["mode"] {
        Value::Null => Ok(None),
        mode if *mode == "UNSET" || *mode == 0 => Ok(None),
        mode if *mode == "DISABLE" || *mode == 1 => Ok(Some(Disable)),
        mode if *mode == "PERMISSIVE" || *mode == 2 => Ok(Some(Permissive)),
        mode if *mode == "STRICT" || *mode == 3 => Ok(Some(Strict)),
        _ => Err(()),
    }
}

/// The labels that the policy selects by; `None` for one of the whole namespace.
fn labels_of(spec: &Value) -> Option<BTreeMap<&str, &Value>> {
    let labels = spec["selector"]["matchLabels"].as_object().filter(|labels| !labels.is_empty())?;
    Some(labels.iter().map(|(key, value)| (key.as_str(), value)).collect())
}

/// The mode for a port of a workload, from the documentation: that of the port, of the workload's policy, of its namespace, of
/// the mesh, else permissive; of several of a level the oldest counts.
fn said(policies: &Policies, namespace: &str, app: &str, port: u32) -> Result<MtlsMode, ()> {
    let level = |of: &str| {
        policies
            .iter()
            .find(|(in_it, spec)| *in_it == of && labels_of(spec).is_none())
            .map(|(_, spec)| mode_of(&spec["mtls"]))
    };
    let mesh = level(ROOT).transpose()?.flatten().unwrap_or(Permissive);
    let of_namespace = level(namespace).transpose()?.flatten().unwrap_or(mesh);
    let selects = |spec: &Value| {
        labels_of(spec).is_some_and(|labels| labels.iter().all(|(key, value)| *key == "app" && **value == app))
    };
    let of_workload = policies.iter().find(|(in_it, spec)| *in_it == namespace && namespace != ROOT && selects(spec));
    let Some((_, spec)) = of_workload else { return Ok(of_namespace) };
    let own = mode_of(&spec["mtls"])?.unwrap_or(of_namespace);
    Ok(mode_of(&spec["portLevelMtls"][port.to_string()])?.unwrap_or(own))
}

#[test]
fn damaged_peer_policies_are_refused_or_set_the_modes_that_they_say() {
    let mut random = Random(setting("PILOTHOUSE_POLICY_SEED", 1));
    let (mut refused, mut compared, mut strict) = (0, 0, 0);
    for _ in 0..setting("PILOTHOUSE_POLICIES", 2000) {
        let mut policies: Policies =
            (0..=random.below(4)).map(|_| (NAMESPACES[random.below(3)], policy(&mut random))).collect();
        let at = random.below(policies.len());
        policies[at].1 = damaged(&policies[at].1, &mut random);
        let mut configs = Vec::new();
        let mut index = 0;
        policies.retain(|(namespace, spec)| {
            index += 1;
            let config = taken(KIND, namespace, &format!("p{index}"), spec);
            assert!(config.is_some() || index == at + 1, "{spec} is refused");
            refused += usize::from(config.is_none());
            let is_taken = config.is_some();
            configs.extend(config);
            is_taken
        });
        let inputs = PushInputs { configs: ConfigSnapshot::of(configs), ..PushInputs::default() };
        let context = PushContext::build(inputs);
        for (namespace, app, port) in
            NAMESPACES.iter().flat_map(|n| APPS.iter().flat_map(move |a| PORTS.iter().map(move |p| (*n, *a, *p))))
        {
            let labels = Labels::from([("app".to_string(), app.to_string())]);
            let sent = context.authn.mode(namespace, &labels, Some(port));
            // Taken without a meaning in the documentation, a policy must not open a port.
            match said(&policies, namespace, app, port) {
                Ok(said) => assert_eq!(sent, said, "{namespace}/{app}:{port} of {policies:#?}"),
                Err(()) => assert_eq!(sent, Strict, "{namespace}/{app}:{port} of {policies:#?}"),
            }
            compared += 1;
            strict += usize::from(sent == Strict);
        }
    }
    println!("damaged peer policies: {refused} refused; {compared} modes compared, {strict} strict");
    assert!(
        refused > 300 && strict > 300 && compared - strict > 300,
        "{refused} {compared} {strict}: the damage says nothing"
    );
}
