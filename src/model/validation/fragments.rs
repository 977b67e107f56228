//! The rules about parts of objects, by the names of Istio's validators of the same meaning, for tests that feed them the
//! arguments of those.
//!
//! Built for tests only. Nothing here decides anything: a part without a rule of its own is put into the part around it.

use prost::{Message, Name};
use serde_json::{Value, json};

use super::{
    Validation, address, check::Check, destination, gateway, header, http_route, locality, mesh, names, range,
    server_tls, traffic_policy,
};
use crate::proto::{
    from_json,
    mesh::{MeshConfig, mesh_config::extension_provider::Provider},
    networking::{HttpRoute, RouteDestination, TcpRoute},
    wkt,
};

/// The verdict on the arguments of one of Istio's validators, or the reason they cannot be read. `None` without a counterpart.
#[must_use]
pub fn verdict(function: &str, arguments: &Value) -> Option<Result<Validation, String>> {
    let case = Case(arguments);
    case.message(function)
        .or_else(|| case.of_mesh(function))
        .or_else(|| case.provider(function))
        .or_else(|| case.scalar(function))
}

type Verdict = Option<Result<Validation, String>>;

/// The arguments, by name.
struct Case<'a>(&'a Value);

impl Case<'_> {
    fn get<M: Message + Name + Default>(&self, name: &str) -> Result<M, String> {
        let value = &self.0[name];
        let value = if value.is_null() { json!({}) } else { value.clone() };
        from_json(&value, true).map_err(|e| e.to_string())
    }

    /// As [`Case::get`], `None` for null.
    fn some<M: Message + Name + Default>(&self, name: &str) -> Result<Option<M>, String> {
        if self.0[name].is_null() { Ok(None) } else { self.get(name).map(Some) }
    }

    fn text(&self, name: &str) -> &str {
        self.0[name].as_str().unwrap_or_default()
    }

    fn is(&self, name: &str) -> bool {
        self.0[name] == true
    }

    fn texts(&self, name: &str) -> Vec<String> {
        self.0[name].as_array().into_iter().flatten().filter_map(Value::as_str).map(String::from).collect()
    }

    /// The number of the one argument.
    fn number(&self, name: &str) -> i32 {
        self.0[name].as_i64().and_then(|n| i32::try_from(n).ok()).unwrap_or_default()
    }

    /// A duration in proto3 JSON, or as protobuf text where its signs differ, which JSON does not have.
    fn duration(&self, name: &str) -> Result<wkt::Duration, String> {
        let value = &self.0[name];
        let Some(text) = value.get("@text").and_then(Value::as_str) else {
            return from_json(value, true).map_err(|e| e.to_string());
        };
        let number = |key: &str| {
            let found = text.split(' ').find_map(|part| part.strip_prefix(key)?.strip_prefix(':'));
            found.and_then(|n| n.parse::<i32>().ok()).unwrap_or_default()
        };
        Ok(wkt::Duration { seconds: number("seconds").into(), nanos: number("nanos") })
    }

    fn run(&self, rules: impl FnOnce(&mut Check) -> Result<(), String>) -> Verdict {
        let mut check = Check::new("");
        Some(rules(&mut check).map(|()| mesh::relative(check.finish())))
    }

    /// An HTTP route with these fields; it is sound without them.
    fn route(&self, fields: &Value) -> Verdict {
        let mut route = json!({});
        if fields.get("redirect").or_else(|| fields.get("directResponse")).is_none_or(Value::is_null) {
            route["route"] = json!([{"destination": {"host": "sound.example.com"}}]);
        }
        for (key, value) in fields.as_object().into_iter().flatten().filter(|(_, v)| !v.is_null()) {
            route[key] = value.clone();
        }
        self.run(|c| {
            let route: HttpRoute = from_json(&route, true).map_err(|e| e.to_string())?;
            http_route::validate(c, &route, false, true);
            Ok(())
        })
    }

    fn message(&self, function: &str) -> Verdict {
        let arguments = self.0;
        match function {
            "validateHTTPRoute" => self.run(|c| {
                http_route::validate(c, &self.get("http")?, self.is("delegate"), !self.is("gatewaySemantics"));
                Ok(())
            }),
            "validateCORSPolicy" => self.route(&json!({"corsPolicy": arguments["policy"]})),
            "validateHTTPDirectResponse" => self.route(&json!({"directResponse": arguments["directResponse"]})),
            "validateHTTPRewrite" => self.route(&json!({"rewrite": arguments["rewrite"]})),
            "validateHTTPRedirect" => {
                self.route(&json!({"redirect": arguments["redirect"], "match": arguments["matches"]}))
            }
            "validateURIRegexRewrite" => {
                let regex = Some(&arguments["regexRewrite"]).filter(|regex| !regex.is_null());
                self.route(&json!({"rewrite": regex.map(|regex| json!({"uriRegexRewrite": regex}))}))
            }
            "validateHTTPFaultInjectionAbort" => {
                let fault = json!({"abort": arguments["abort"], "delay": {"fixedDelay": "1s"}});
                self.route(&json!({"fault": without_nulls(fault)}))
            }
            "validateHTTPFaultInjectionDelay" => {
                let fault = json!({"delay": arguments["delay"], "abort": {"httpStatus": 503}});
                self.route(&json!({"fault": without_nulls(fault)}))
            }
            "ValidateHTTPRetry" => self.run(|c| {
                http_route::retries(c, &self.get("retries")?);
                Ok(())
            }),
            "validateDestination" => self.run(|c| {
                destination::validate(c, &self.get("destination")?);
                Ok(())
            }),
            "validateRouteDestinations" => self.run(|c| {
                let routes: TcpRoute =
                    from_json(&json!({"route": arguments["weights"]}), true).map_err(|e| e.to_string())?;
                let routes: Vec<RouteDestination> = routes.route;
                destination::list(c, &routes, !self.is("gatewaySemantics"));
                Ok(())
            }),
            "validateServer" => self.run(|c| {
                gateway::server(c, &self.get("server")?, self.is("gatewaySemantics"));
                Ok(())
            }),
            "validateServerPort" => self.run(|c| {
                let server = json!({"hosts": ["*"], "port": arguments["port"], "bind": arguments["bind"]});
                gateway::server(c, &from_json(&server, true).map_err(|e| e.to_string())?, false);
                Ok(())
            }),
            "validateTLSOptions" => self.run(|c| {
                server_tls::validate(c, &self.get("tls")?);
                Ok(())
            }),
            "ValidateTLS" => self.run(|c| {
                let settings = self.some("settings")?;
                traffic_policy::client_tls(c, "tls", self.text("configNamespace"), settings.as_ref());
                Ok(())
            }),
            "validateTrafficPolicy" => self.run(|c| {
                traffic_policy::validate(c, self.text("configNamespace"), self.some("policy")?.as_ref());
                Ok(())
            }),
            "validateConnectionPool" => self.run(|c| {
                traffic_policy::connection_pool(c, "connectionPool", self.some("settings")?.as_ref());
                Ok(())
            }),
            "validateOutlierDetection" => self.run(|c| {
                traffic_policy::outlier(c, self.some("outlier")?.as_ref());
                Ok(())
            }),
            "validateLoadBalancer" => self.run(|c| {
                let outlier = self.some("outlier")?;
                traffic_policy::load_balancer(c, self.some("settings")?.as_ref(), outlier.as_ref());
                Ok(())
            }),
            "ValidateLocalityLbSetting" => self.run(|c| {
                locality::locality(c, self.some("lb")?.as_ref(), !arguments["outlier"].is_null());
                Ok(())
            }),
            "ValidateZoneAwareLbSetting" => self.run(|c| {
                locality::zone_aware(c, self.some("lb")?.as_ref(), !arguments["outlier"].is_null());
                Ok(())
            }),
            _ => None,
        }
    }

    fn of_mesh(&self, function: &str) -> Verdict {
        match function {
            "ValidateMeshConfig" => Some(self.get("mesh").map(|mesh| mesh::mesh_config(&mesh))),
            "ValidateMeshNetworks" => Some(self.get("meshnetworks").map(|networks| mesh::mesh_networks(&networks))),
            "ValidateMeshConfigProxyConfig" => self.run(|c| {
                mesh::proxy_config::validate(c, &self.get("config")?);
                Ok(())
            }),
            "validateConnectionSettings" => self.run(|c| {
                mesh::proxy_config::connections(c, &self.get("cs")?);
                Ok(())
            }),
            "validateServiceSettings" => self.run(|c| {
                let config: MeshConfig = self.get("config")?;
                mesh::service_settings(c, &config.service_settings);
                Ok(())
            }),
            "validateMeshConfigDefaultTrafficPolicy" => self.run(|c| {
                mesh::default_traffic_policy(c, self.some("dtp")?.as_ref());
                Ok(())
            }),
            "validateMeshConfigDefaultInboundHTTPRetryPolicy" => self.run(|c| {
                mesh::inbound_retries(c, self.some("retry")?.as_ref());
                Ok(())
            }),
            _ => None,
        }
    }

    #[allow(deprecated, reason = "deprecated providers are validated as long as Istio reads them")]
    fn provider(&self, function: &str) -> Verdict {
        let made = match function {
            "ValidateExtensionProviderEnvoyHTTPAls" => self.get("provider").map(Provider::EnvoyHttpAls),
            "ValidateExtensionProviderEnvoyTCPAls" => self.get("provider").map(Provider::EnvoyTcpAls),
            "ValidateExtensionProviderEnvoyOtelAls" => self.get("provider").map(Provider::EnvoyOtelAls),
            "ValidateExtensionProviderTracingOpentelemetry" => self.get("provider").map(Provider::Opentelemetry),
            "validateExtensionProviderTracingDatadog" => self.get("config").map(Provider::Datadog),
            "validateExtensionProviderTracingLightStep" => self.get("config").map(Provider::Lightstep),
            "validateExtensionProviderTracingOpenCensusAgent" => self.get("config").map(Provider::Opencensus),
            "validateExtensionProviderTracingZipkin" => self.get("config").map(Provider::Zipkin),
            _ => return None,
        };
        self.run(|c| {
            mesh::provider::settings(c, &made?);
            Ok(())
        })
    }

    fn scalar(&self, function: &str) -> Verdict {
        let checked = match function {
            "ValidateConnectTimeout" => self.duration("timeout").and_then(|d| mesh::connect_timeout(Some(&d))),
            "ValidateProtocolDetectionTimeout" => {
                self.duration("timeout").and_then(|d| mesh::detection_timeout(Some(&d)))
            }
            "ValidateDrainDuration" => self.duration("drainTime").and_then(|d| mesh::proxy_config::drain(Some(&d))),
            "ValidateDuration" => self.duration("pd").and_then(|d| range::duration(&d)),
            "ValidateControlPlaneAuthPolicy" => mesh::proxy_config::authentication(self.number("policy")),
            "ValidateProxyAddress" => mesh::proxy_config::address(self.text("hostAddr")),
            "ValidateTrustDomain" => mesh::trust_domain(self.text("domain")),
            "validateExtensionProviderService" => mesh::provider::service(self.text("service")),
            "ValidateFQDN" => names::fqdn(self.text("fqdn")),
            "ValidateWildcardDomain" => names::wildcard_domain(self.text("domain")),
            "ValidateWildcardDomainForVirtualServiceBoundToGateway" => {
                names::gateway_domain(self.is("sni"), self.text("domain"))
            }
            "ValidatePortName" => names::port_name(self.text("name")),
            "ValidatePort" => range::signed_port(self.number("port")),
            "ValidateIPAddress" => address::ip(self.text("addr")),
            "ValidateIPSubnet" => address::subnet(self.text("subnet")),
            "ValidateHTTPHeaderNameOrJwtClaimRoute" => header::match_name(self.text("name")),
            "ValidateStrictHTTPHeaderName" => header::strict_name(self.text("name")),
            "ValidateHTTPHeaderValue" => header::value(self.text("value")),
            "validateHTTPStatus" => range::http_status(self.number("status").into()),
            "validateLocalities" => {
                let texts = self.texts("localities");
                locality::apart(&texts.iter().map(String::as_str).collect::<Vec<_>>())
            }
            "validateExportTo" => {
                let rule = match (self.is("isServiceEntry"), self.is("isDestinationRuleWithSelector")) {
                    (true, _) => names::Export::ServiceEntry,
                    (_, true) => names::Export::SelectedWorkloads,
                    _ => names::Export::Plain,
                };
                return self.run(|c| {
                    names::export_to(c, self.text("namespace"), &self.texts("exportTo"), rule);
                    Ok(())
                });
            }
            _ => return None,
        };
        Some(checked.map(|()| Validation::default()))
    }
}

fn without_nulls(value: Value) -> Value {
    let Value::Object(map) = value else { return value };
    Value::Object(map.into_iter().filter(|(_, v)| !v.is_null()).collect())
}
