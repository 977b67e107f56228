//! Policies in force: real Envoys refuse and take requests as AuthorizationPolicies and RequestAuthentications say.

mod authorizers;
mod bulletins;
mod encodings;
mod gateways;
mod meaning;
mod oracle;
mod patterns;
mod peers;
mod random;
mod rules;
mod tcp;
mod tokens;

use std::net::TcpStream;

use serde_json::{Value, json};

use crate::{
    config::{document, object},
    http::{self, Answer, Echo},
    mesh::{ControlPlane, Envoy, folder},
    process::{free_port, wait_until},
};

const NODE: &str = "sidecar~127.0.0.1~web.shop~shop.svc.cluster.local";

/// A workload behind its own Envoy, which is asked at a port of its own.
struct Guarded {
    plane: ControlPlane,
    envoy: Envoy,
    port: u16,
    /// The workload.
    echo: Echo,
}

/// One document of `security.istio.io/v1` in namespace `shop`.
pub fn policy(kind: &str, name: &str, spec: &Value) -> String {
    document("security.istio.io/v1", kind, name, spec)
}

pub fn authorization(name: &str, spec: &Value) -> String {
    policy("AuthorizationPolicy", name, spec)
}

impl Guarded {
    /// With these policies, and mesh settings.
    fn start(policies: &str, mesh: &Value, further: &str) -> Self {
        Self::start_with(policies, mesh, further, &[])
    }

    /// As [`Guarded::start`], with environment variables of the control plane.
    fn start_with(policies: &str, mesh: &Value, further: &str, environment: &[(&str, &str)]) -> Self {
        let (echo, port) = (Echo::start("web"), free_port());
        let sidecar = object(
            "Sidecar",
            "web",
            &json!({
                "workloadSelector": {"labels": {"app": "web"}},
                "ingress": [{
                    "port": {"number": port, "protocol": "HTTP", "name": "http"}, "bind": "127.0.0.1",
                    "captureMode": "NONE", "defaultEndpoint": format!("127.0.0.1:{}", echo.port),
                }],
                "egress": [{"hosts": ["./*"]}],
            }),
        );
        let configs = folder(&[("sidecar.yaml", sidecar + further), ("policies.yaml", policies.to_string())]);
        let settings = folder(&[("mesh.yaml", mesh.to_string())]).join("mesh.yaml");
        let plane = ControlPlane::launch_with(
            configs.clone(),
            &["--config-dir".into(), configs.into(), "--meshConfig".into(), settings.into()],
            environment,
        );
        plane.wait_ready();
        let metadata = json!({"INTERCEPTION_MODE": "NONE", "LABELS": {"app": "web"}});
        let envoy = Envoy::start(&plane, NODE, &metadata, true);
        Self { plane, envoy, port, echo }
    }

    fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> std::io::Result<Answer> {
        self.ask_as(method, "web.example", path, headers)
    }

    fn ask_as(&self, method: &str, host: &str, path: &str, headers: &[(&str, &str)]) -> std::io::Result<Answer> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(std::time::Duration::from_secs(20)))?;
        http::call(&mut stream, method, host, path, headers)
    }

    /// Waits until the policies in force answer a GET with this status.
    fn until(&self, status: u16, path: &str, headers: &[(&str, &str)]) {
        wait_until(&format!("{path} is answered with {status}"), || match self.ask("GET", path, headers) {
            Ok(answer) if answer.status == status => Ok(()),
            other => Err(format!("{other:?}")),
        });
    }

    /// Waits for the first request, then asks all: each is answered with its status.
    fn assert_all(&self, rows: &[(u16, &str, &str, &[(&str, &str)])]) {
        let (status, _, path, headers) = rows[0];
        self.until(status, path, headers);
        for (status, method, path, headers) in rows {
            let answer = self.ask(method, path, headers).unwrap();
            assert_eq!(answer.status, *status, "{method} {path} {headers:?}: {}", answer.body);
        }
        self.envoy.assert_no_nacks();
    }
}
