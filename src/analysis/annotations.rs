//! Annotations of Istio on Namespaces, Services, Pods and Deployments; labels of injection on Namespaces.

use super::{
    annotation_table::{Annotation, TABLE, Values},
    code::Code,
    message::Report,
    object::Object,
    words::list,
    world::World,
};

const INJECT: &str = "sidecar.istio.io/inject";

/// Annotations that Istio's own parts set.
const SET_BY_ISTIO: [&str; 3] = ["sidecar.istio.io/status", "gateway.istio.io/controller-version", "istio.io/rev"];

pub(super) fn analyze(world: &World<'_>, report: &mut Report) {
    for (index, object) in world.objects.iter().enumerate() {
        let is_core = object.group.is_empty() && ["Namespace", "Service", "Pod"].contains(&object.kind.as_str());
        if is_core || (object.kind == "Deployment" && object.group == "apps") {
            annotations(report, (index, object));
        }
        if is_core && object.kind == "Namespace" && &*object.name != "istio-system" {
            injection_labels(report, (index, object));
        }
    }
}

/// Alpha annotations that injection sets on pods whose traffic a CNI plugin redirects.
const SET_FOR_CNI: [&str; 4] = [
    "sidecar.istio.io/interceptionMode",
    "traffic.sidecar.istio.io/includeInboundPorts",
    "traffic.sidecar.istio.io/excludeInboundPorts",
    "traffic.sidecar.istio.io/includeOutboundIPRanges",
];

/// Whether a pod has no container of Istio that redirects its traffic.
fn is_redirected_by_cni(object: &Object) -> bool {
    let Some(pod) = object.config().and_then(|config| config.pod()) else { return false };
    let containers = pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten());
    !containers.into_iter().any(|container| container.name == "istio-init")
}

/// Whether an annotation is Istio's.
fn is_istios(name: &str) -> bool {
    name == "kubernetes.io/ingress.class"
        || name.split('/').next().is_some_and(|domain| domain.ends_with("istio.io") && name.contains('/'))
}

fn annotations(report: &mut Report, (index, object): (usize, &Object)) {
    for (name, value) in object.annotations().iter().filter(|(name, _)| is_istios(name)) {
        if SET_BY_ISTIO.contains(&name.as_str()) {
            continue;
        }
        let path = format!("metadata.annotations.{name}");
        let Some(known) = TABLE.iter().find(|known| known.name == name) else {
            report.add(Code::UnknownAnnotation, index, path, format!("Unknown annotation: {name}"));
            continue;
        };
        let has_label = name == INJECT && object.labels().contains_key(INJECT);
        if known.is_deprecated && !has_label {
            let extra = if name == INJECT { " in favor of the \"sidecar.istio.io/inject\" label" } else { "" };
            let text =
                format!("Annotation {name:?} has been deprecated{extra} and may not work in future Istio versions.");
            report.add(Code::DeprecatedAnnotation, index, path.clone(), text);
        }
        let is_set_for_cni = SET_FOR_CNI.contains(&name.as_str()) && is_redirected_by_cni(object);
        if known.is_alpha && !is_set_for_cni {
            let text =
                format!("Annotation {name:?} is part of an alpha-phase feature and may be incompletely supported.");
            report.add(Code::AlphaAnnotation, index, path.clone(), text);
        }
        if !known.kinds.contains(&"Any") && !known.kinds.contains(&object.kind.as_str()) {
            let text = format!("Misplaced annotation: {name} can only be applied to {}", known.kinds.join(", "));
            report.add(Code::MisplacedAnnotation, index, path, text);
        } else if let Err(problem) = check(known, value) {
            report.add(Code::InvalidAnnotation, index, path, format!("Invalid annotation {name}: {problem}"));
        }
    }
}

/// The problem of a value.
fn check(known: &Annotation, value: &str) -> Result<(), String> {
    let each = |value: &str, fits: fn(&str) -> bool, what: &str| match value.split(',').find(|part| !fits(part.trim()))
    {
        Some(part) if !value.trim().is_empty() => Err(format!("{part:?} is not {what}")),
        _ => Ok(()),
    };
    let one = |fits: bool, what: &str| if fits { Ok(()) } else { Err(format!("{value:?} is not {what}")) };
    match known.values {
        Values::Any => Ok(()),
        Values::Ranges if value == "*" => Ok(()),
        Values::Ports if value == "*" => Ok(()),
        Values::Ranges | Values::ExcludedRanges => {
            each(value, |part| part.parse::<ipnet::IpNet>().is_ok(), "a range of addresses (10.0.0.0/8)")
        }
        Values::Ports | Values::ExcludedPorts => each(value, |part| part.parse::<u16>().is_ok(), "a port"),
        Values::Port => one(value.trim().parse::<u16>().is_ok(), "a port"),
        Values::Number => one(value.parse::<u32>().is_ok(), "a number"),
        Values::Bool => one(
            ["1", "t", "T", "TRUE", "true", "True", "0", "f", "F", "FALSE", "false", "False"].contains(&value),
            "true or false",
        ),
        Values::Interception => one(["REDIRECT", "TPROXY", "NONE"].contains(&value), "REDIRECT, TPROXY or NONE"),
        Values::Quantity => one(is_quantity(value), "a quantity (100m, 128Mi)"),
    }
}

/// Whether a text is a quantity of Kubernetes.
fn is_quantity(text: &str) -> bool {
    let number = text.trim_start_matches(['+', '-']);
    let end = number.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(number.len());
    let (digits, suffix) = number.split_at(end);
    let exponent = suffix.strip_prefix(['e', 'E']).is_some_and(|e| e.parse::<i32>().is_ok());
    const SUFFIXES: [&str; 16] = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    digits.parse::<f64>().is_ok() && (exponent || SUFFIXES.contains(&suffix))
}

fn injection_labels(report: &mut Report, (index, object): (usize, &Object)) {
    let labels = object.labels();
    let injection = labels.get("istio-injection");
    let mut found: Vec<String> = injection.map(|value| format!("istio-injection={value}")).into_iter().collect();
    for name in ["istio.io/rev", "istio.io/dataplane-mode"] {
        let counts = injection.is_none_or(|value| value == "enabled");
        found.extend(labels.get(name).filter(|_| counts).map(|value| format!("{name}={value}")));
    }
    if found.len() > 1 {
        let text = format!(
            "The namespace has more than one type of injection labels {}, which may lead to undefined behavior. Make sure \
             only one injection label exists.",
            list(found)
        );
        report.add(Code::NamespaceMultipleInjectionLabels, index, "metadata.labels", text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_those_of_kubernetes() {
        for good in ["1", "0.5", "100m", "128Mi", "1e3", "2E"] {
            assert!(is_quantity(good), "{good}");
        }
        for bad in ["", "m", "1.2.3", "12 Mi", "1Mib", "ten"] {
            assert!(!is_quantity(bad), "{bad}");
        }
    }
}
