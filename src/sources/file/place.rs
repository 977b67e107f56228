//! Finds the line and column of a field that does not fit its kind, by reading the text again with types.
//!
//! Runs only for documents that were refused.

use std::{collections::BTreeMap, fmt};

use k8s_openapi::api::{core::v1 as core, discovery::v1 as discovery, networking::v1 as networking};
use prost_reflect::MessageDescriptor;
use serde::{
    Deserialize,
    de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor},
};

use crate::{
    model::{Kind, decode::spec_descriptor},
    sources::yaml::{SyntaxError, locate},
};

/// The place of the first field that does not fit `kind`; `None` when every field does.
#[must_use]
pub fn misfit(text: &str, kind: Kind) -> Option<(SyntaxError, String)> {
    locate(text, Typed(kind))
}

struct Typed(Kind);

impl<'de> DeserializeSeed<'de> for Typed {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if let Some(descriptor) = spec_descriptor(self.0) {
            return deserializer.deserialize_map(IstioObject(descriptor));
        }
        match self.0 {
            Kind::ConfigMap => core::ConfigMap::deserialize(deserializer).map(drop),
            Kind::Endpoints => core::Endpoints::deserialize(deserializer).map(drop),
            Kind::EndpointSlice => discovery::EndpointSlice::deserialize(deserializer).map(drop),
            Kind::Namespace => core::Namespace::deserialize(deserializer).map(drop),
            Kind::Node => core::Node::deserialize(deserializer).map(drop),
            Kind::Pod => core::Pod::deserialize(deserializer).map(drop),
            Kind::Secret => core::Secret::deserialize(deserializer).map(drop),
            Kind::Service => core::Service::deserialize(deserializer).map(drop),
            Kind::Ingress => networking::Ingress::deserialize(deserializer).map(drop),
            Kind::IngressClass => networking::IngressClass::deserialize(deserializer).map(drop),
            _ => IgnoredAny::deserialize(deserializer).map(drop),
        }
    }
}

struct IstioObject(MessageDescriptor);

#[derive(Deserialize)]
struct Metadata {
    #[serde(rename = "labels")]
    _labels: Option<BTreeMap<String, Option<Text>>>,
    #[serde(rename = "annotations")]
    _annotations: Option<BTreeMap<String, Option<Text>>>,
}

/// A string, and nothing that only looks like one.
struct Text;

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OnlyText;
        impl Visitor<'_> for OnlyText {
            type Value = Text;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_str<E>(self, _: &str) -> Result<Text, E> {
                Ok(Text)
            }
        }
        deserializer.deserialize_any(OnlyText)
    }
}

impl<'de> Visitor<'de> for IstioObject {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        while let Some(key) = access.next_key::<String>()? {
            match key.as_str() {
                "spec" => drop(access.next_value_seed(self.0.clone())?),
                "metadata" => drop(access.next_value::<Metadata>()?),
                _ => drop(access.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}
