//! Merging with the semantics of protobuf, as Istio merges: set fields win, lists grow or are replaced, entries of maps and
//! durations are replaced, messages are merged field by field.

use prost::{Message, Name};
use prost_reflect::{DynamicMessage, MessageDescriptor, ReflectMessage, Value};

use crate::{
    model::patch_value::TYPED_STRUCT,
    proto::{self, networking::envoy_filter::patch::Operation, wkt, xds::r#type::v3::TypedStruct},
    push::envoy_filters::Patch,
};

/// Merged as a whole: a nanosecond part that is 0 is no field.
const DURATION: &str = "google.protobuf.Duration";
/// An older name of the same message.
const OLD_TYPED_STRUCT: &str = "udpa.type.v1.TypedStruct";

/// Merges the value of a patch into a message.
pub(super) fn patch<M: Message + Name + Default>(into: &mut M, patch: &Patch) -> Result<(), String> {
    let Some(value) = &patch.value else { return Ok(()) };
    if patch.operation == Operation::MergeAndReplaceList {
        let merged = bytes(&M::full_name(), &into.encode_to_vec(), &value.bytes, true)?;
        *into = M::decode(merged.as_slice()).map_err(|error| error.to_string())?;
        return Ok(());
    }
    into.merge(value.merged.clone()).map_err(|error| error.to_string())
}

/// Merges a packed message into another of the same type.
pub(super) fn any(into: &wkt::Any, from: &wkt::Any) -> Result<wkt::Any, String> {
    let (target, given) = (type_name(&into.type_url), type_name(&from.type_url));
    let value = if target == given {
        bytes(target, &into.value, &from.value, false)?
    } else if given == TYPED_STRUCT || given == OLD_TYPED_STRUCT {
        let carried = TypedStruct::decode(from.value.as_slice()).map_err(|error| error.to_string())?;
        if type_name(&carried.type_url) != target {
            return Err(differ(target, type_name(&carried.type_url)));
        }
        let json = proto::struct_to_json(&carried.value.unwrap_or_default());
        let read = proto::dynamic_from_json(descriptor(target)?, &json, false).map_err(|error| error.to_string())?;
        bytes(target, &into.value, &read.encode_to_vec(), false)?
    } else {
        return Err(differ(target, given));
    };
    Ok(wkt::Any { type_url: into.type_url.clone(), value })
}

fn differ(target: &str, given: &str) -> String {
    format!("its configuration is of type {given}, the patched one of type {target}")
}

fn type_name(url: &str) -> &str {
    url.rsplit('/').next().unwrap_or_default()
}

fn descriptor(name: &str) -> Result<MessageDescriptor, String> {
    proto::pool()
        .get_message_by_name(name)
        .ok_or_else(|| format!("type {name} is not known, so nothing is merged into it"))
}

fn bytes(name: &str, into: &[u8], from: &[u8], replace_lists: bool) -> Result<Vec<u8>, String> {
    let descriptor = descriptor(name)?;
    let read = |bytes: &[u8]| {
        DynamicMessage::decode(descriptor.clone(), bytes).map_err(|error| format!("{name} does not decode: {error}"))
    };
    let (mut target, given) = (read(into)?, read(from)?);
    merge(&mut target, &given, replace_lists);
    Ok(target.encode_to_vec())
}

fn merge(into: &mut DynamicMessage, from: &DynamicMessage, replace_lists: bool) {
    for (field, value) in from.fields() {
        match value {
            Value::List(items) => {
                let Some(list) = into.get_field_mut(&field).as_list_mut() else { continue };
                if replace_lists {
                    list.clear();
                }
                list.extend(items.iter().cloned());
            }
            Value::Map(entries) => {
                let Some(map) = into.get_field_mut(&field).as_map_mut() else { continue };
                map.extend(entries.iter().map(|(key, value)| (key.clone(), value.clone())));
            }
            Value::Message(inner) if inner.descriptor().full_name() != DURATION && into.has_field(&field) => {
                if let Some(target) = into.get_field_mut(&field).as_message_mut() {
                    merge(target, inner, replace_lists);
                }
            }
            other => into.set_field(&field, other.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{
        envoy::config::{
            cluster::v3::{Cluster, OutlierDetection},
            route::v3::{RedirectAction, Route, RouteAction, VirtualHost, route::Action},
        },
        to_any,
    };

    fn merged<M: Message + Name + Default>(into: &M, from: &M, replace_lists: bool) -> M {
        let bytes = bytes(&M::full_name(), &into.encode_to_vec(), &from.encode_to_vec(), replace_lists);
        M::decode(bytes.expect("they merge").as_slice()).expect("it decodes")
    }

    /// The quick way of a decoder and the way by descriptors agree.
    #[test]
    fn a_decoder_merges_as_descriptors_do() {
        let from = Cluster {
            connect_timeout: timeout(3, 0),
            outlier_detection: Some(OutlierDetection { interval: timeout(0, 7), ..Default::default() }),
            alt_stat_name: "n".to_string(),
            ..Default::default()
        };
        let into = Cluster {
            connect_timeout: timeout(0, 500),
            outlier_detection: Some(OutlierDetection {
                interval: timeout(5, 5),
                max_ejection_percent: Some(3),
                ..Default::default()
            }),
            cleanup_interval: timeout(1, 1),
            ..Default::default()
        };
        let descriptor = descriptor(&Cluster::full_name()).expect("a descriptor");
        let form = crate::model::merge_bytes::merge_bytes(&descriptor, &from.encode_to_vec()).expect("the form");
        let mut quick = into.clone();
        quick.merge(form.as_slice()).expect("it merges");
        assert_eq!(quick, merged(&into, &from, false));
        assert_eq!(quick.connect_timeout, timeout(3, 0));
    }

    fn timeout(seconds: i64, nanos: i32) -> Option<wkt::Duration> {
        Some(wkt::Duration { seconds, nanos })
    }

    #[test]
    fn durations_are_replaced_and_messages_merged() {
        let with = |timeout, ejection, enforcing| Cluster {
            connect_timeout: timeout,
            outlier_detection: Some(OutlierDetection {
                base_ejection_time: ejection,
                enforcing_consecutive_5xx: enforcing,
                ..Default::default()
            }),
            ..Default::default()
        };
        let got = merged(&with(timeout(1, 500), timeout(9, 9), None), &with(timeout(2, 0), None, Some(7)), false);
        assert_eq!(got, with(timeout(2, 0), timeout(9, 9), Some(7)));
    }

    #[test]
    fn lists_grow_or_are_replaced_and_one_of_several_fields_stays() {
        let host = |domains: &[&str]| VirtualHost {
            name: "h".to_string(),
            domains: domains.iter().map(|d| (*d).to_string()).collect(),
            ..Default::default()
        };
        assert_eq!(merged(&host(&["a"]), &host(&["b"]), false), host(&["a", "b"]));
        assert_eq!(merged(&host(&["a"]), &host(&["b"]), true), host(&["b"]));
        let route = |action| Route { action: Some(action), ..Default::default() };
        let to = route(Action::Route(RouteAction::default()));
        let redirect = route(Action::Redirect(RedirectAction { host_redirect: "h".to_string(), ..Default::default() }));
        assert_eq!(merged(&to, &redirect, false), redirect);
    }

    #[test]
    fn packed_messages_of_two_types_do_not_merge() {
        let (host, route) = (to_any(&VirtualHost::default()), to_any(&Route::default()));
        let error = any(&host, &route).unwrap_err();
        assert!(error.contains("v3.Route") && error.contains("v3.VirtualHost"), "{error}");
        let value = proto::json_to_struct(&serde_json::json!({"domains": ["a"], "name": "h"}));
        let carried = to_any(&TypedStruct { type_url: host.type_url.clone(), value });
        let got = any(&host, &carried).expect("JSON of the same type");
        assert_eq!(VirtualHost::decode(got.value.as_slice()).expect("a host").domains, ["a"]);
    }
}
