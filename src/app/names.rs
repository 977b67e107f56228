//! Host names of gateways between networks: the names are read from the context in force, and their addresses are an input
//! of the next context.

use std::sync::Arc;

use super::Inputs;
use crate::{
    discovery::XdsServerHandle,
    model::{PushRequest, Reason, XdsUpdater},
    settings::NameSettings,
    sources::{
        names::{Dns, NameRules, NameSource},
        polled::Demand,
    },
};

/// The source of these addresses.
pub(super) fn source(settings: &NameSettings, inputs: &Arc<Inputs>, xds: &XdsServerHandle) -> Arc<NameSource> {
    let (published, inputs, xds) = (xds.state().clone(), inputs.clone(), xds.clone());
    let level = published.publications();
    let read = move || {
        let published = published.current();
        let names = published.iter().flat_map(|p| p.context.network_gateways.names.iter());
        names.map(|name| (name.clone(), ())).collect()
    };
    let demand = Demand { level, read: Box::new(read) };
    Arc::new(NameSource::new(NameRules::new(settings), demand, Dns::new(settings), move |names| {
        inputs.set_names(names);
        xds.config_update(PushRequest::everything(Reason::Networks));
    }))
}
