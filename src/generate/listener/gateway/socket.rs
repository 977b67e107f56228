//! The socket of a gateway's listener, and the listener around its chains.

use super::chain::Chain;
use crate::{
    generate::{
        listener::{builder::Builder, listener_filters},
        names,
        proxy_config::ListenerClass,
    },
    proto::{
        envoy::config::{
            core::v3::{
                Address, TrafficDirection, UdpSocketConfig, address::Address as Kind,
                socket_address::Protocol as SocketProtocol,
            },
            listener::v3::{
                AdditionalAddress, Listener, QuicProtocolOptions, UdpListenerConfig,
                listener::{
                    ConnectionBalanceConfig,
                    connection_balance_config::{BalanceType, ExactBalance},
                },
            },
        },
        wkt,
    },
    push::gateways::ServerPort,
};

/// The addresses of one listener.
#[derive(Debug)]
pub(super) struct Socket<'a> {
    bind: &'a str,
    /// Further wildcard addresses, with dual stack.
    extra: &'static [&'static str],
    /// The port.
    pub port: u32,
    /// UDP for HTTP/3 in place of TCP.
    pub quic: bool,
}

impl<'a> Socket<'a> {
    /// The address that a server asks for, else every address of the proxy.
    pub fn new(builder: &Builder, port: &'a ServerPort, quic: bool) -> Self {
        let wildcards = builder.wildcards();
        let (first, more) = wildcards.split_first().map_or(("0.0.0.0", &[][..]), |(f, m)| (*f, m));
        let own = !port.bind.is_empty();
        let extra = if own || !builder.features().istio_dual_stack { &[] } else { more };
        Self { bind: if own { &port.bind } else { first }, extra, port: port.number, quic }
    }

    /// Name of the listener.
    pub fn name(&self) -> String {
        let prefix = if self.quic { "udp_" } else { "" };
        format!("{prefix}{}_{}", self.bind, self.port)
    }

    /// The listener with these chains.
    pub fn listener(&self, builder: &Builder, chains: Vec<Chain>) -> Listener {
        let mut inspectors = Vec::new();
        if !self.quic {
            let topology = builder.proxy_config.gateway_topology.as_ref();
            if topology.is_some_and(|t| t.proxy_protocol.is_some()) {
                inspectors.push(listener_filters::proxy_protocol());
            }
            if chains.iter().any(Chain::needs_tls_inspector) {
                inspectors.push(listener_filters::tls_inspector());
            }
        }
        // Bounds how long a slow handshake may hold memory.
        let timeout = builder.features().gateway_transport_socket_connect_timeout;
        let timeout = (!timeout.is_zero()).then(|| wkt::Duration::try_from(timeout).ok()).flatten();
        let settings = builder.connection_settings.as_ref();
        let buffer_limit = settings.and_then(|s| s.listener_per_connection_buffer_limit_bytes);
        let sockets = builder.features().max_connections_per_socket_event_loop;
        Listener {
            name: self.name(),
            address: Some(self.address(self.bind)),
            additional_addresses: self.extra.iter().map(|bind| self.additional(bind)).collect(),
            traffic_direction: TrafficDirection::Outbound.into(),
            listener_filters: inspectors,
            filter_chains: chains.into_iter().map(|c| c.into_filter_chain(self.quic, timeout)).collect(),
            per_connection_buffer_limit_bytes: buffer_limit.and_then(|n| u32::try_from(n).ok()),
            max_connections_to_accept_per_socket_event: (sockets > 0).then_some(sockets),
            connection_balance_config: self.balance(builder),
            udp_listener_config: self.quic.then(|| UdpListenerConfig {
                quic_options: Some(QuicProtocolOptions::default()),
                downstream_socket_config: Some(UdpSocketConfig::default()),
                ..Default::default()
            }),
            access_log: builder.telemetry(ListenerClass::Gateway).logs.listener.clone(),
            ..Default::default()
        }
    }

    fn address(&self, bind: &str) -> Address {
        let mut address = names::address(bind, self.port);
        if let (true, Some(Kind::SocketAddress(socket))) = (self.quic, address.address.as_mut()) {
            socket.protocol = SocketProtocol::Udp.into();
        }
        address
    }

    fn additional(&self, bind: &str) -> AdditionalAddress {
        AdditionalAddress { address: Some(self.address(bind)), ..Default::default() }
    }

    fn balance(&self, builder: &Builder) -> Option<ConnectionBalanceConfig> {
        let wanted = builder.view.metadata.other("OUTBOUND_LISTENER_EXACT_BALANCE") == "true";
        let exact = ConnectionBalanceConfig { balance_type: Some(BalanceType::ExactBalance(ExactBalance {})) };
        (wanted && !self.quic).then_some(exact)
    }
}
