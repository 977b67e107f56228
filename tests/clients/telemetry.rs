//! Telemetries with real Envoys: the lines of access logs field by field, in files and as received by services of logs, and the
//! spans that collectors receive.

mod dashboards;
mod logs;
mod metrics;
mod spans;

use std::{fs, path::PathBuf};

use serde_json::{Value, json};

use crate::{
    collector::Collector,
    config::{document, object},
    http::{self, Answer, Echo},
    mesh::{ControlPlane, Envoy, folder},
    process::{free_port, scratch, wait_until},
};

const NODE: &str = "sidecar~127.0.0.1~web.shop~shop.svc.cluster.local";

/// A workload that asks itself through its Envoy: out of it and into it again.
struct Told {
    plane: ControlPlane,
    envoy: Envoy,
    /// Where the Envoy takes requests of the workload.
    port: u16,
    collector: Collector,
    /// Log files.
    folder: PathBuf,
}

/// A Telemetry in namespace `shop`.
fn telemetry(name: &str, spec: &Value) -> String {
    document("telemetry.istio.io/v1", "Telemetry", name, spec)
}

impl Told {
    /// With mesh settings that may name the folder of logs as `FOLDER`, and the services `collector.example` and, over gRPC,
    /// `grpc.example`.
    fn start(oldest: bool, mesh: &Value, telemetries: &str) -> Self {
        let (echo, collector, folder_of_logs) = (Echo::start("web"), Collector::start(), scratch());
        let (inbound, port) = (free_port(), free_port());
        let entry = |name: &str, protocol: &str, number: u16, to: u16| {
            object(
                "ServiceEntry",
                name,
                &json!({
                    "hosts": [format!("{name}.example")], "location": "MESH_INTERNAL", "resolution": "STATIC",
                    "ports": [{"number": number, "name": protocol.to_lowercase(), "protocol": protocol, "targetPort": to}],
                    "endpoints": [{"address": "127.0.0.1"}],
                }),
            )
        };
        let sidecar = object(
            "Sidecar",
            "web",
            &json!({
                "ingress": [{
                    "port": {"number": inbound, "protocol": "HTTP", "name": "http"}, "bind": "127.0.0.1",
                    "captureMode": "NONE", "defaultEndpoint": format!("127.0.0.1:{}", echo.port),
                }],
                "egress": [{
                    "port": {"number": port, "protocol": "HTTP", "name": "egress"}, "bind": "127.0.0.1",
                    "captureMode": "NONE", "hosts": ["./*"],
                // A listener with a port has the services of this port alone.
                }, {"captureMode": "IPTABLES", "hosts": ["./collector.example", "./grpc.example"]}],
            }),
        );
        let services = entry("web", "HTTP", port, inbound)
            + &entry("collector", "HTTP", 9411, collector.port)
            + &entry("grpc", "GRPC", 4317, collector.port);
        let configs = folder(&[("services.yaml", services + &sidecar), ("telemetries.yaml", telemetries.to_string())]);
        let mesh = mesh.to_string().replace("FOLDER", &folder_of_logs.display().to_string());
        let settings = folder(&[("mesh.yaml", mesh)]).join("mesh.yaml");
        let plane = ControlPlane::launch_with(
            configs.clone(),
            &["--config-dir".into(), configs.into(), "--meshConfig".into(), settings.into()],
            &[("COLLECTOR_KEY", "from the environment")],
        );
        plane.wait_ready();
        let labels =
            json!({"app": "web", "service.istio.io/canonical-name": "web", "app.kubernetes.io/name": "of-otel"});
        let metadata = json!({"INTERCEPTION_MODE": "NONE", "LABELS": labels});
        let start = if oldest { Envoy::oldest } else { Envoy::connect };
        let envoy = start(plane.grpc_port, NODE, &metadata, true);
        let told = Self { plane, envoy, port, collector, folder: folder_of_logs };
        told.until_answered();
        told
    }

    fn ask(&self, path: &str, headers: &[(&str, &str)]) -> std::io::Result<Answer> {
        http::get(self.port, "web.example", path, headers)
    }

    fn until_answered(&self) {
        wait_until("the workload answers", || match self.ask("/first", &[]) {
            Ok(answer) if answer.status == 200 => Ok(()),
            other => Err(format!("{other:?}")),
        });
    }

    /// Puts other Telemetries in force: the Envoy has this text in its listeners then, or has it no more.
    fn change(&self, telemetries: &str, text: &str, has: bool) {
        self.plane.write("telemetries.yaml", telemetries);
        wait_until(&format!("Envoy has {text}: {has}"), || {
            if self.envoy.holds(text) == has { Ok(()) } else { Err(self.envoy.rejected()) }
        });
    }

    /// Asks for `/NAME-0`, `/NAME-1` and so on, until `check` takes the path and the answer of one of them: listeners change one
    /// by one, and spans of one that is gone may be lost.
    fn repeat<T>(&self, name: &str, mut check: impl FnMut(&str, &Answer) -> Option<T>) -> T {
        let mut asked = Vec::new();
        wait_until(&format!("/{name} is told"), || {
            let path = format!("/{name}-{}", asked.len());
            let answer = self.ask(&path, &[]).map_err(|e| e.to_string())?;
            asked.push((path, answer));
            std::thread::sleep(std::time::Duration::from_millis(200));
            let found = asked.iter().find_map(|(path, answer)| check(path, answer));
            found.ok_or_else(|| format!("{asked:?}"))
        })
    }

    /// The lines of a log file so far.
    fn lines(&self, file: &str) -> Vec<String> {
        let text = fs::read_to_string(self.folder.join(file)).unwrap_or_default();
        text.lines().map(String::from).collect()
    }

    /// Waits until a Telemetry says this of itself.
    fn until_says(&self, name: &str, text: &str) {
        wait_until(&format!("the status of {name} says {text}"), || {
            let rows = self.plane.debug("/debug/statusz");
            let row = rows.as_array().into_iter().flatten().find(|r| r["kind"] == "Telemetry" && r["name"] == name);
            let row = row.cloned().unwrap_or_default().to_string();
            if row.contains(text) { Ok(()) } else { Err(row) }
        });
    }
}
