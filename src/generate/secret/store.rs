//! The objects that a set of credentials may come from, found in one pass over the snapshot.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::material::{self, Data, Material};
use crate::{
    model::{
        AccessRefusal, Config, Credential, CredentialKind, Kind, SecretAccess, SecretReader, credential::CA_SUFFIX,
    },
    push::PushContext,
};

type Key<'a> = (CredentialKind, &'a str, &'a str);

/// Secrets and ConfigMaps by kind of credential, namespace and name; the cluster to prefer comes first.
pub(super) struct Store<'a> {
    objects: BTreeMap<Key<'a>, Vec<&'a Arc<Config>>>,
    access: Access<'a>,
}

/// Whether a client may be sent Secrets of a cluster; without a reader it need not be asked.
#[derive(Clone, Copy)]
pub(super) struct Access<'a>(pub Option<(&'a SecretAccess, &'a SecretReader)>);

impl Access<'_> {
    fn check(self, object: &Config) -> Result<(), String> {
        let Some((access, reader)) = self.0.filter(|_| object.kind() == Kind::Secret && object.origin.is_cluster())
        else {
            return Ok(());
        };
        let identity = &reader.identity;
        access.check(reader).map_err(|refusal| match refusal {
            AccessRefusal::Denied => format!("the cluster does not let {identity} list secrets"),
            AccessRefusal::Unanswered => format!("the cluster has not said yet whether {identity} may list secrets"),
        })
    }
}

impl<'a> Store<'a> {
    /// Finds the object of a credential name, with and without `-cacert`: in the proxy's cluster first, then in the main one.
    /// A cluster id without objects (a plain Envoy has no id) means the main cluster.
    pub fn of<'c>(
        context: &'a PushContext,
        cluster: &str,
        access: Access<'a>,
        credentials: impl Iterator<Item = &'c Credential>,
    ) -> Self {
        let wanted: BTreeSet<(bool, &str, &str)> = credentials
            .flat_map(|c| {
                let config_map = c.kind == CredentialKind::ConfigMap;
                [(config_map, &*c.namespace, &*c.name), (config_map, &*c.namespace, stripped(&c.name))]
            })
            .collect();
        let configs = &context.inputs.configs;
        let main = &context.mesh().cluster_id;
        let mut objects: BTreeMap<Key<'a>, Vec<&'a Arc<Config>>> = BTreeMap::new();
        let both = configs.list(Kind::Secret).iter().chain(configs.list(Kind::ConfigMap));
        for object in both {
            let meta = &object.meta;
            let config_map = object.kind() == Kind::ConfigMap;
            if !wanted.contains(&(config_map, &*meta.namespace, &*meta.name)) {
                continue;
            }
            let origin = &object.origin.cluster;
            let in_main = origin.is_empty() || origin == main;
            let mut add = |kind, first| {
                let list = objects.entry((kind, &*meta.namespace, &*meta.name)).or_default();
                list.insert(if first { 0 } else { list.len() }, object);
            };
            if config_map {
                if in_main {
                    add(CredentialKind::ConfigMap, false);
                }
                continue;
            }
            if in_main || **origin == *cluster {
                add(CredentialKind::Secret, !in_main);
            }
            if in_main {
                add(CredentialKind::GatewaySecret, false);
            }
        }
        Self { objects, access }
    }

    /// Certificate chain and key.
    pub fn certificate(&self, credential: &Credential) -> Result<Material, String> {
        self.first(credential, &credential.name, material::certificate)
    }

    /// CA certificates of the object with this name or, when there is none, of the one without `-cacert`.
    pub fn ca(&self, credential: &Credential) -> Result<Material, String> {
        if self.objects.contains_key(&(credential.kind, &*credential.namespace, &*credential.name)) {
            return self.first(credential, &credential.name, material::ca);
        }
        self.first(credential, stripped(&credential.name), material::ca)
    }

    /// CA certificates of a ConfigMap.
    pub fn config_map_ca(&self, credential: &Credential) -> Result<Material, String> {
        self.first(credential, stripped(&credential.name), material::ca)
    }

    /// The credentials of a registry of images.
    pub fn registry(&self, credential: &Credential) -> Result<String, String> {
        self.first(credential, &credential.name, material::registry)
    }

    /// The first cluster's object that reads well; else the fault of the first.
    fn first<T>(&self, credential: &Credential, name: &str, read: fn(&Data) -> Result<T, String>) -> Result<T, String> {
        let namespace = &*credential.namespace;
        let mut error = None;
        for object in self.objects.get(&(credential.kind, namespace, name)).into_iter().flatten() {
            match self.access.check(object).and_then(|()| read(&Data::of(object))) {
                Ok(material) => return Ok(material),
                Err(reason) => error = error.or(Some(format!("{} {namespace}/{name}: {reason}", object.kind()))),
            }
        }
        let kind = if credential.kind == CredentialKind::ConfigMap { Kind::ConfigMap } else { Kind::Secret };
        Err(error.unwrap_or_else(|| format!("{kind} {namespace}/{name} not found")))
    }
}

fn stripped(name: &str) -> &str {
    name.strip_suffix(CA_SUFFIX).unwrap_or(name)
}
