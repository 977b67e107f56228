//! The messages of the analysis of the objects in force, by object: `validationMessages` of their status.
//!
//! As in Istio they are computed where `PILOT_ENABLE_ANALYSIS` is on. An analysis looks at all objects: it runs beside the other
//! work, one at a time, and the pause before the next one grows with its own duration.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    analysis::{self, Code, Object, Subject},
    model::{ConfigKey, ConfigSnapshot, kind::KindClass},
    push::PushContext,
};

/// The shortest pause between two analyses, and the part of the time that they may take.
const PAUSE: Duration = Duration::from_secs(1);
const SHARE: u32 = 20;

/// The messages by object, each as `AnalysisMessageBase` of Istio's API, which has no text.
pub type Analysis = BTreeMap<ConfigKey, Vec<Value>>;

/// Analyses the objects of a publication; `now` is in seconds since the Unix epoch.
#[must_use]
pub fn analyse(context: &PushContext, now: i64) -> Analysis {
    let objects = Object::all_of(&context.inputs.configs);
    let mut all = Analysis::new();
    for message in analysis::analyze(&objects, context, now) {
        let Subject::Object(index) = message.subject else { continue };
        // An object that a translation has made has no status of its own.
        let written = objects.get(index).and_then(Object::config).filter(|config| !config.origin.source.is_empty());
        let Some(config) = written else { continue };
        all.entry(config.key()).or_default().push(base(message.code));
    }
    all
}

fn base(code: Code) -> Value {
    let mut base = json!({
        "type": {"name": code.name(), "code": code.code()},
        "level": code.level().as_str().to_ascii_uppercase(),
    });
    if let Some(page) = code.documentation() {
        base["documentationUrl"] = page.into();
    }
    base
}

/// The messages in the statuses of Istio's kinds. A status that has messages and is to have none gets an empty list, since
/// a field that is not written stays.
pub fn add_to(statuses: &mut BTreeMap<ConfigKey, Value>, analysis: &Analysis, configs: &ConfigSnapshot) {
    for (kind, list) in &configs.by_kind {
        if kind.class() != KindClass::Istio {
            continue;
        }
        for config in list.iter() {
            let key = config.key();
            let messages = analysis.get(&key);
            let had = config.status["validationMessages"].as_array().is_some_and(|had| !had.is_empty());
            if had || messages.is_some() {
                let status = statuses.entry(key).or_insert_with(|| json!({}));
                status["validationMessages"] = messages.cloned().unwrap_or_default().into();
            }
        }
    }
}

/// The time of the next analysis, and the publication of the last one.
#[derive(Debug, Default)]
pub struct Pace {
    last: Weak<PushContext>,
    began: Option<Instant>,
    not_before: Option<Instant>,
}

impl Pace {
    /// Whether an analysis of this publication is to begin now; the caller begins it then, and says when it has ended.
    pub fn begins(&mut self, context: &Arc<PushContext>, now: Instant) -> bool {
        let is_known = Weak::as_ptr(&self.last) == Arc::as_ptr(context);
        if is_known || self.began.is_some() || self.not_before.is_some_and(|at| at > now) {
            return false;
        }
        (self.last, self.began) = (Arc::downgrade(context), Some(now));
        true
    }

    /// The analysis has ended. Returns the pause before the next one.
    pub fn ended(&mut self, now: Instant) -> Duration {
        let took = self.began.take().map(|began| now.saturating_duration_since(began)).unwrap_or_default();
        let pause = PAUSE.max(took * SHARE);
        self.not_before = Some(now + pause);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Config, Origin, PushInputs, decode};

    fn context(gateways: &Value, messages: &Value) -> Arc<PushContext> {
        context_of("kube:Kubernetes/crd", gateways, messages)
    }

    fn context_of(source: &str, gateways: &Value, messages: &Value) -> Arc<PushContext> {
        let origin = Origin { source: source.to_string().into(), ..Origin::default() };
        let object = |document: Value| Arc::new(decode::from_value(&document, origin.clone()).unwrap());
        let configs: [Arc<Config>; 2] = [
            object(json!({"apiVersion": "networking.istio.io/v1", "kind": "VirtualService",
                "metadata": {"name": "a", "namespace": "shop"}, "status": {"validationMessages": messages},
                "spec": {"hosts": ["a.example"], "gateways": gateways,
                    "http": [{"route": [{"destination": {"host": "b.example"}}]}]}})),
            object(json!({"apiVersion": "networking.istio.io/v1", "kind": "Gateway",
                "metadata": {"name": "edge", "namespace": "shop"},
                "spec": {"servers": [{"port": {"number": 80, "name": "http", "protocol": "HTTP"}, "hosts": ["a.example"]}]}})),
        ];
        let configs = ConfigSnapshot::of(configs);
        Arc::new(PushContext::build(PushInputs { configs, ..PushInputs::default() }))
    }

    fn messages_of(context: &PushContext) -> Option<Value> {
        let mut statuses = BTreeMap::new();
        add_to(&mut statuses, &analyse(context, 0), &context.inputs.configs);
        let of_routes = statuses.into_iter().find(|(key, _)| &*key.name == "a")?;
        Some(of_routes.1["validationMessages"].clone())
    }

    #[test]
    fn an_absent_gateway_is_in_the_status_until_it_is_there() {
        let absent = context(&json!(["none"]), &json!([]));
        let page = |code: &str| format!("https://istio.io/latest/docs/reference/config/analysis/{code}/");
        let expected = json!([
            {"type": {"name": "ReferencedResourceNotFound", "code": "IST0101"}, "level": "ERROR",
             "documentationUrl": page("ist0101")},
            {"type": {"name": "VirtualServiceHostNotFoundInGateway", "code": "IST0132"}, "level": "WARNING",
             "documentationUrl": page("ist0132")},
        ]);
        assert_eq!(messages_of(&absent), Some(expected.clone()));
        assert_eq!(messages_of(&context(&json!(["edge"]), &json!([]))), None);
        assert_eq!(messages_of(&context(&json!(["edge"]), &expected)), Some(json!([])), "an old message is taken back");
    }

    #[test]
    fn an_object_that_a_translation_has_made_has_no_messages() {
        assert_eq!(messages_of(&context_of("", &json!(["none"]), &json!([]))), None);
    }

    #[test]
    fn an_analysis_is_of_each_publication_and_the_next_one_waits() {
        let (first, second) = (context(&json!(["none"]), &json!([])), context(&json!(["edge"]), &json!([])));
        let (mut pace, begin) = (Pace::default(), Instant::now());
        assert!(pace.begins(&first, begin));
        assert!(!pace.begins(&second, begin), "one at a time");
        assert_eq!(pace.ended(begin + PAUSE), PAUSE * SHARE);
        assert!(!pace.begins(&first, begin + PAUSE * (SHARE + 2)), "it is known");
        assert!(!pace.begins(&second, begin + PAUSE * 2));
        assert!(pace.begins(&second, begin + PAUSE * (SHARE + 1)));
    }
}
