//! Route configurations with the patches of EnvoyFilters, put together from encoded virtual hosts: one that no patch is for is
//! the same bytes as without patches, and one with patches is made once for each list of them.

use std::collections::HashSet;

use bytes::Bytes;
use prost::Message;
use rayon::prelude::*;

use super::{
    table::{EncodedHost, RouteTable, VirtualHostMemo, assembled},
    virtual_host::VirtualHostInputs,
};
use crate::{
    generate::{check::Refusal, envoy_filter::Patching},
    proto::envoy::config::route::v3::{RouteConfiguration, VirtualHost},
};

/// Fewer virtual hosts are not worth another thread.
const WORTH_A_THREAD: usize = 32;

/// The bytes of a table with its patches.
pub(super) fn encode(
    table: &RouteTable<'_>,
    memo: &VirtualHostMemo,
    mut patching: Patching<'_>,
) -> (Bytes, Vec<Refusal>) {
    let hosts = table.hosts.par_iter().with_min_len(WORTH_A_THREAD);
    let hosts: Vec<EncodedHost> = hosts.map(|host| memo.encoded(host)).collect();
    let mut refused: Vec<Refusal> = hosts.iter().flat_map(|host| host.refused.iter().cloned()).collect();
    let Some(fields) = patching.route_fields(table.fields()) else {
        let decoded = hosts.iter().filter_map(|host| VirtualHost::decode(host.bytes.clone()?).ok());
        let all = decoded.chain(table.last.clone()).collect();
        let patched = patching.route_configuration(RouteConfiguration { virtual_hosts: all, ..table.fields() });
        refused.extend(patching.into_refusals());
        return (patched.encode_to_vec().into(), refused);
    };
    let patch = |(inputs, host): (&VirtualHostInputs<'_>, EncodedHost)| {
        let Some(key) = patching.host_key(&table.name, &inputs.name, &inputs.domains) else { return host };
        memo.get_or_build(inputs.key() ^ key, || patched(&patching, &table.name, &host))
    };
    let inputs = table.hosts.par_iter().with_min_len(WORTH_A_THREAD);
    let before: Vec<bool> = hosts.iter().map(|host| host.bytes.is_some()).collect();
    let mut hosts: Vec<EncodedHost> = inputs.zip(hosts).map(patch).collect();
    let is_removed = |((_, host), had): &((&VirtualHostInputs<'_>, &EncodedHost), bool)| *had && host.bytes.is_none();
    let removed = table.hosts.iter().zip(&hosts).zip(before).filter(is_removed);
    let removed: HashSet<String> = removed.map(|((inputs, _), _)| inputs.name.clone()).collect();
    if let Some(last) = &table.last {
        let plain = EncodedHost { bytes: Some(last.encode_to_vec().into()), refused: [].into() };
        let is_patched = patching.host_key(&table.name, &last.name, &last.domains).is_some();
        hosts.push(if is_patched { patched(&patching, &table.name, &plain) } else { plain });
    }
    let skipped = hosts.iter().flat_map(|host| host.refused.iter().cloned());
    skipped.for_each(|refusal| {
        if !refused.contains(&refusal) {
            refused.push(refusal)
        }
    });
    let mut hosts: Vec<Bytes> = hosts.into_iter().filter_map(|host| host.bytes).collect();
    if patching.adds_hosts(&table.name) {
        let taken: Vec<VirtualHost> = hosts.iter().filter_map(|host| VirtualHost::decode(host.clone()).ok()).collect();
        hosts.extend(
            patching.added_hosts(&table.name, &taken, &removed).iter().map(|host| Bytes::from(host.encode_to_vec())),
        );
    }
    refused.extend(patching.into_refusals());
    (assembled(&fields, hosts), refused)
}

fn patched(patching: &Patching<'_>, configuration: &str, host: &EncodedHost) -> EncodedHost {
    let Some(decoded) = host.bytes.clone().and_then(|bytes| VirtualHost::decode(bytes).ok()) else {
        return host.clone();
    };
    let mut own = patching.again();
    let patched = own.virtual_host(configuration, decoded.clone());
    let bytes = match patched {
        Some(same) if same == decoded => host.bytes.clone(),
        patched => patched.map(|host| Bytes::from(host.encode_to_vec())),
    };
    let refused = host.refused.iter().cloned().chain(own.into_refusals()).collect();
    EncodedHost { bytes, refused }
}
