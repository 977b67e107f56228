//! Host names as gateways between networks, resolved by a name server on the loopback interface: addresses come, change with
//! the records, stay when the server fails, and are not asked for where the flag says so.

use std::{
    fs,
    net::{IpAddr, SocketAddr, UdpSocket},
    path::Path,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use hickory_resolver::proto::{
    op::{Message, OpCode, ResponseCode},
    rr::{RData, Record, RecordType},
};
use pilothouse::{
    app::{self, Running},
    discovery::Composer,
    model::{Locality, Node},
    push::PushContext,
    runtime::Shutdown,
    settings::{NameSettings, Settings},
};
use serde_json::json;
use tempfile::TempDir;

use crate::stage::{end, settings, until};

/// The A records of the server; `None` is a failure. It has no other records.
type Records = Arc<Mutex<Option<Vec<IpAddr>>>>;

/// Answers on a port of the loopback interface until the test ends.
fn name_server(records: Records, asked: Arc<Mutex<Vec<String>>>) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    thread::spawn(move || {
        let mut buffer = [0; 1500];
        while let Ok((length, peer)) = socket.recv_from(&mut buffer) {
            let question = Message::from_vec(&buffer[..length]).unwrap();
            let query = question.queries[0].clone();
            asked.lock().unwrap().push(query.name().to_string());
            let mut answer = Message::response(question.metadata.id, OpCode::Query);
            match &*records.lock().unwrap() {
                None => answer.metadata.response_code = ResponseCode::ServFail,
                Some(list) if query.query_type() == RecordType::A => {
                    let record = |ip: &IpAddr| Record::from_rdata(query.name().clone(), 1, RData::from(*ip));
                    answer.add_answers(list.iter().map(record));
                }
                Some(_) => {}
            }
            answer.add_query(query);
            socket.send_to(&answer.to_vec().unwrap(), peer).unwrap();
        }
    });
    address
}

/// A service in another network, whose way in has a host name only.
const OBJECTS: &str = "
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: far, namespace: shop}
spec:
  hosts: [far.example]
  ports: [{number: 80, name: http, protocol: HTTP}]
  resolution: STATIC
  location: MESH_INTERNAL
  endpoints: [{address: 10.0.0.1, network: east, labels: {security.istio.io/tlsMode: istio}}]
";
const NETWORKS: &str = "networks: {east: {gateways: [{address: gw.east.example, port: 15443}]}}\n";

fn addresses(list: &[&str]) -> Option<Vec<IpAddr>> {
    Some(list.iter().map(|ip| ip.parse().unwrap()).collect())
}

/// Starts the process with pauses that suit a test.
async fn start(server: SocketAddr, change: impl FnOnce(&mut Settings)) -> (TempDir, Running) {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    };
    let objects = write("config/far.yaml", OBJECTS);
    let mut settings = settings(&[objects.parent().map(Path::new).unwrap()], None);
    settings.mesh.networks_file = Some(write("networks.yaml", NETWORKS));
    let millis = Duration::from_millis;
    settings.sources.names = NameSettings {
        servers: vec![server],
        least_pause: millis(50),
        most_pause: millis(100),
        ..NameSettings::default()
    };
    change(&mut settings);
    let running = app::build(settings, Shutdown::default()).await.unwrap();
    (dir, running)
}

/// Addresses of the endpoints that a proxy of another network is sent.
fn endpoints(context: &PushContext) -> Vec<String> {
    let id = "sidecar~10.9.0.1~client.shop~shop.svc.cluster.local";
    let node = Node::from_parts(id, json!({"NETWORK": "west"}), Locality::default()).unwrap();
    let composed = Composer::new(context, context.view_of(&node), None).all(&[]).unwrap();
    let assignment = composed.endpoints.iter().find(|e| e.cluster_name == "outbound|80||far.example");
    let Some(assignment) = assignment else { return Vec::new() };
    let text = pilothouse::proto::to_json(assignment).unwrap();
    let lists = text["endpoints"].as_array().cloned().unwrap_or_default();
    let all = lists.iter().flat_map(|group| group["lbEndpoints"].as_array().cloned().unwrap_or_default());
    let of = |endpoint: serde_json::Value| {
        let socket = &endpoint["endpoint"]["address"]["socketAddress"];
        format!("{}:{}", socket["address"].as_str().unwrap(), socket["portValue"])
    };
    all.map(of).collect()
}

#[actix::test]
async fn addresses_follow_the_records_and_outlast_a_failing_server() {
    let (records, asked) = (Arc::new(Mutex::new(addresses(&["192.0.2.7"]))), Arc::<Mutex<Vec<String>>>::default());
    let (_dir, running) = start(name_server(records.clone(), asked.clone()), |_| {}).await;
    let first = until(&running, |c| endpoints(c) == ["192.0.2.7:15443"]).await;
    assert_eq!(first.network_gateways.names.len(), 1);
    *records.lock().unwrap() = addresses(&["192.0.2.9", "192.0.2.8"]);
    until(&running, |c| endpoints(c) == ["192.0.2.8:15443", "192.0.2.9:15443"]).await;
    *records.lock().unwrap() = None;
    let report = |running: &Running| {
        let all = running.all_sources.all();
        all.iter().map(|s| s.board.read()).find(|r| r.source.starts_with("dns:")).unwrap()
    };
    let board = running.all_sources.all().iter().find(|s| s.id().starts_with("dns:")).unwrap().board.clone();
    tokio::time::timeout(crate::stage::DEADLINE, board.until(|r| !r.last_error.is_empty())).await.unwrap();
    assert!(report(&running).last_error.starts_with("gw.east.example: "), "{}", report(&running).last_error);
    let context = running.state.current().unwrap().context.clone();
    assert_eq!(endpoints(&context), ["192.0.2.8:15443", "192.0.2.9:15443"]);
    *records.lock().unwrap() = addresses(&[]);
    // Without a way in the endpoints are called directly, as where no gateway is known at all.
    until(&running, |c| endpoints(c) == ["10.0.0.1:80"]).await;
    assert!(asked.lock().unwrap().iter().all(|name| name == "gw.east.example."), "names are whole ones");
    end(running).await;
}

#[actix::test]
async fn the_process_is_ready_when_names_have_had_their_answer() {
    let records = Arc::new(Mutex::new(addresses(&["192.0.2.7"])));
    let (_dir, running) = start(name_server(records, Arc::default()), |_| {}).await;
    let ready = async {
        while !running.readiness.is_ready() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(crate::stage::DEADLINE, ready).await.unwrap();
    assert!(!running.inputs.read().registry.names.is_empty(), "no proxy is to be sent less than before a restart");
    end(running).await;
}

#[actix::test]
async fn without_the_flag_no_name_is_asked_for() {
    let (records, asked) = (Arc::new(Mutex::new(addresses(&["192.0.2.7"]))), Arc::<Mutex<Vec<String>>>::default());
    let server = name_server(records, asked.clone());
    let (dir, running) = start(server, |s| s.features.resolve_hostname_gateways = false).await;
    until(&running, |c| c.inputs.registry.services.len() == 1).await;
    fs::write(dir.path().join("config/more.yaml"), OBJECTS.replace("far", "more")).unwrap();
    let context = until(&running, |c| c.inputs.registry.services.len() == 2).await;
    assert_eq!(endpoints(&context), ["10.0.0.1:80"]);
    assert!(context.network_gateways.names.is_empty());
    assert!(asked.lock().unwrap().is_empty());
    end(running).await;
}
