//! Telemetry: providers by name, sampling, tags, overrides of metrics, and filters of access logs.

use super::{cel, check::Check, policy};
use crate::proto::istio::telemetry::v1alpha1::{
    AccessLogging, Metrics, ProviderRef, Telemetry, Tracing, metric_selector::MetricMatch,
    metrics_overrides::tag_override::Operation, tracing::custom_tag::Type,
};

pub(super) fn validate(c: &mut Check, telemetry: &Telemetry) {
    policy::targets(c, telemetry.selector.as_ref(), telemetry.target_ref.as_ref(), &telemetry.target_refs);
    if telemetry.tracing.len() > 1 {
        c.warn("tracing: more than one is not supported; the first is used");
    }
    c.each("tracing", &telemetry.tracing, tracing);
    c.each("metrics", &telemetry.metrics, metrics);
    c.each("accessLogging", &telemetry.access_logging, access_logging);
}

fn providers(c: &mut Check, list: &[ProviderRef]) {
    c.each("providers", list, |c, p| c.need(!p.name.is_empty(), "name must be set"));
}

fn tracing(c: &mut Check, tracing: &Tracing) {
    if tracing.providers.len() > 1 {
        c.warn("providers: more than one is not supported; the first is used");
    }
    providers(c, &tracing.providers);
    let share = tracing.random_sampling_percentage.unwrap_or_default();
    c.need((0.0..=100.0).contains(&share), "randomSamplingPercentage must be from 0 to 100");
    for (name, tag) in &tracing.custom_tags {
        c.need(!name.is_empty(), "customTags: a tag needs a name");
        let (what, value) = match &tag.r#type {
            Some(Type::Literal(literal)) => ("literal.value", &literal.value),
            Some(Type::Header(header)) => ("header.name", &header.name),
            Some(Type::Environment(environment)) => ("environment.name", &environment.name),
            Some(Type::Formatter(_)) | None => continue,
        };
        c.need(!value.is_empty(), format_args!("customTags.{name}: {what} must be set"));
    }
}

fn metrics(c: &mut Check, metrics: &Metrics) {
    providers(c, &metrics.providers);
    c.each("overrides", &metrics.overrides, |c, o| {
        for (name, tag) in &o.tag_overrides {
            if name.is_empty() {
                c.warn("tagOverrides: a tag needs a name");
            }
            match tag.operation() {
                Operation::Upsert => c.need(
                    !tag.value.is_empty(),
                    format_args!("tagOverrides.{name}: value must be set for operation UPSERT"),
                ),
                Operation::Remove => c.need(
                    tag.value.is_empty(),
                    format_args!("tagOverrides.{name}: value is for operation UPSERT only; remove it"),
                ),
            }
        }
        let custom = o.r#match.as_ref().and_then(|m| m.metric_match.as_ref());
        if let Some(MetricMatch::CustomMetric(name)) = custom {
            c.need(!name.is_empty(), "match.customMetric must not be empty");
        }
    });
}

fn access_logging(c: &mut Check, logging: &AccessLogging) {
    providers(c, &logging.providers);
    if let Some(filter) = &logging.filter {
        c.field("filter.expression", cel::parse(&filter.expression));
    }
}
