//! Tests of the parts that a translation shares with its predecessor.

use serde_json::json;

use super::*;
use crate::model::{Origin, decode::from_value};

#[test]
fn without_anything_to_translate_the_users_lists_stay() {
    let rule = json!({"apiVersion": "networking.istio.io/v1", "kind": "DestinationRule",
        "metadata": {"name": "a", "namespace": "b"}, "spec": {"host": "h"}});
    let configs = ConfigSnapshot::of([Arc::new(from_value(&rule, Origin::default()).unwrap())]);
    let inputs = PushInputs { configs, ..PushInputs::default() };
    let list = inputs.configs.by_kind[&Kind::DestinationRule].clone();
    let first = Translation::build(inputs.clone());
    let next = first.next(inputs);
    assert!(Arc::ptr_eq(&next.effective().configs.by_kind[&Kind::DestinationRule], &list));
    assert!(next.grants_as(&first));
}
