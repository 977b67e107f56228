//! Extensions in a real Envoy: Lua, Wasm modules from a server and from a file, and modules that cannot be loaded.

use std::{
    collections::BTreeMap,
    fs,
    io::{Read, Write},
    net::TcpListener,
    path::Path,
    thread,
};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{
    config::{document, gateway, object},
    http::{Answer, Echo, get},
    mesh::{ControlPlane, Envoy},
    process::{free_port, scratch, wait_for},
};

const NODE: &str = "router~127.0.0.1~edge.shop~shop.svc.cluster.local";
const PREFIX: &str = "extensions.istio.io/trafficextension/shop.";

/// A number of WebAssembly's text in its bytes.
fn leb(mut n: i64) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = (n & 0x7f) as u8;
        n >>= 7;
        if (n == 0 && low & 0x40 == 0) || (n == -1 && low & 0x40 != 0) {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}

fn list(items: &[Vec<u8>]) -> Vec<u8> {
    [&[items.len() as u8][..], &items.concat()].concat()
}

fn named(name: &str) -> Vec<u8> {
    [&[name.len() as u8][..], name.as_bytes()].concat()
}

fn section(id: u8, content: Vec<u8>) -> Vec<u8> {
    // Lengths here are below 16,384.
    [vec![id, (content.len() & 0x7f) as u8 | 0x80, (content.len() >> 7) as u8], content].concat()
}

/// A module of the Proxy-Wasm ABI that adds `x-wasm: VALUE` to each response.
fn module(value: &str) -> Vec<u8> {
    const I32: u8 = 0x7f;
    let signature = |parameters: usize, results: usize| {
        [vec![0x60], list(&vec![vec![I32]; parameters]), list(&vec![vec![I32]; results])].concat()
    };
    let number = |n: i64| [vec![0x41], leb(n)].concat();
    let body = |code: &[u8]| [vec![code.len() as u8 + 2, 0], code.to_vec(), vec![0x0b]].concat();
    let types = [signature(5, 1), signature(0, 0), signature(1, 1), signature(2, 0), signature(3, 1)];
    let import = [named("env"), named("proxy_add_header_map_value"), vec![0, 0]].concat();
    let function = |name: &str, index: u8| [named(name), vec![0, index]].concat();
    let exports = [
        [named("memory"), vec![2, 0]].concat(),
        function("proxy_abi_version_0_2_1", 1),
        function("proxy_on_memory_allocate", 2),
        function("proxy_on_context_create", 3),
        function("proxy_on_response_headers", 4),
    ];
    // Memory is handed out upwards from the address in the global.
    let allocate = [0x23, 0, 0x23, 0, 0x20, 0, 0x6a, 0x24, 0];
    // Map 2 holds the headers of the response; the name is at 0, the value at 8.
    let arguments = [2, 0, 6, 8, value.len() as i64].map(number).concat();
    let add = [arguments, vec![0x10, 0, 0x1a], number(0)].concat();
    let bodies = [body(&[]), body(&allocate), body(&[]), body(&add)];
    let data = [b"x-wasm\0\0".as_slice(), value.as_bytes()].concat();
    let segment = [vec![0], number(0), vec![0x0b, data.len() as u8], data].concat();
    let sections = [
        section(1, list(&types)),
        section(2, list(&[import])),
        section(3, list(&[vec![1], vec![2], vec![3], vec![4]])),
        section(5, list(&[vec![0, 2]])),
        section(6, list(&[[vec![I32, 1], number(1024), vec![0x0b]].concat()])),
        section(7, list(&exports)),
        section(10, list(&bodies)),
        section(11, list(&[segment])),
    ];
    [b"\0asm\x01\0\0\0".to_vec(), sections.concat()].concat()
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A server of files by path; other paths are not found.
fn serve(files: BTreeMap<String, Vec<u8>>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") && stream.read_exact(&mut byte).is_ok() {
                head.push(byte[0]);
            }
            let text = String::from_utf8_lossy(&head);
            let body = files.get(text.split(' ').nth(1).unwrap_or_default());
            let status = if body.is_some() { "200 OK" } else { "404 Not Found" };
            let body = body.map(Vec::as_slice).unwrap_or_default();
            let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
        }
    });
    port
}

fn extension(name: &str, spec: &Value) -> String {
    document("extensions.istio.io/v1alpha1", "TrafficExtension", name, spec)
}

fn wasm(name: &str, url: &str, more: &Value) -> String {
    let mut wasm = json!({"url": url});
    wasm.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    extension(name, &json!({ "wasm": wasm }))
}

/// A gateway in front of an echo server.
struct Edge {
    port: u16,
    plane: ControlPlane,
    envoy: Envoy,
    _echo: Echo,
}

impl Edge {
    fn start(extensions: &str) -> Self {
        let (echo, port) = (Echo::start("web"), free_port());
        let route = json!({"hosts": ["*"], "gateways": ["edge"], "http": [{"route": [{"destination": {"host": "web.example"}}]}]});
        let shop = crate::config::service("web.example", 80, "HTTP", &[(echo.port, "v1", "")])
            + &gateway(port)
            + &object("VirtualService", "web", &route);
        let plane = ControlPlane::start(&[("shop.yaml", shop), ("extensions.yaml", extensions.to_string())]);
        let envoy = Envoy::connect(plane.grpc_port, NODE, &json!({"LABELS": {"app": "edge"}}), true);
        wait_for("the gateway listens", || get(port, "a", "/", &[]).ok());
        Self { port, plane, envoy, _echo: echo }
    }

    fn get(&self) -> Option<Answer> {
        get(self.port, "a", "/", &[]).ok()
    }

    /// Waits for an answer with this status and this value of `x-wasm`.
    fn until(&self, what: &str, status: u16, value: Option<&str>) -> Answer {
        let is_it = |a: &Answer| a.status == status && a.headers.get("x-wasm").map(String::as_str) == value;
        wait_for(what, || self.get().filter(is_it))
    }

    /// Waits until the status of an object says this.
    fn until_told(&self, name: &str, text: &str) {
        wait_for(text, || {
            let all = self.plane.debug("/debug/statusz");
            let of_object = |s: &&Value| s.to_string().contains(&format!("{name}\"")) && s.to_string().contains(text);
            all.as_array()?.iter().any(|s| of_object(&s)).then_some(())
        });
    }
}

#[test]
fn lua_runs_and_changes_while_requests_go_on() {
    let code = |value: &str| {
        let text = format!("function envoy_on_request(h) h:headers():add('x-lua', '{value}') end");
        extension("lua", &json!({"lua": {"inlineCode": text}, "phase": "AUTHZ"}))
    };
    let edge = Edge::start(&code("one"));
    let until = |value: &str| wait_for(value, || edge.get().filter(|answer| answer.seen("x-lua") == value));
    until("one");
    edge.plane.write("extensions.yaml", &code("two"));
    until("two");
    edge.plane.write("extensions.yaml", "");
    until("");
    edge.envoy.assert_no_nacks();
}

#[test]
fn modules_come_from_a_server_by_their_digest_and_from_files() {
    let (one, two) = (module("one"), module("two"));
    let port = serve([("/one.wasm".to_string(), one.clone()), ("/two.wasm".to_string(), two.clone())].into());
    let remote = |name: &str, bytes: &[u8]| {
        wasm("module", &format!("http://127.0.0.1:{port}/{name}.wasm"), &json!({"sha256": digest(bytes)}))
    };
    let edge = Edge::start(&remote("one", &one));
    edge.until("the module runs", 200, Some("one"));
    edge.plane.write("extensions.yaml", &remote("two", &two));
    edge.until("the other module runs", 200, Some("two"));
    let file = scratch().join("three.wasm");
    fs::write(&file, module("three")).unwrap();
    // The older form of the same.
    let of_file = |path: &Path| {
        let spec = json!({"url": format!("file://{}", path.display())});
        document("extensions.istio.io/v1alpha1", "WasmPlugin", "module", &spec)
    };
    edge.plane.write("extensions.yaml", &of_file(&file));
    edge.until("the module of the file runs", 200, Some("three"));
    let other = file.with_file_name("four.wasm");
    fs::write(&other, module("four")).unwrap();
    edge.plane.write("extensions.yaml", &of_file(&other));
    edge.until("the module of another file runs", 200, Some("four"));
    edge.envoy.assert_no_nacks();
    let dump = edge.envoy.admin("/config_dump?resource=ecds_filters").unwrap().body;
    assert!(dump.contains(PREFIX), "{dump}");
}

/// A server that takes connections and says nothing.
fn hanging() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let connections: Vec<_> = listener.incoming().flatten().collect();
        drop(connections);
    });
    port
}

/// A module that does not load: the strategy is in force, with this status, until a module that loads takes its place.
fn strategy_decides(what: &str, url: &str, sha256: &str, (strategy, status): (&str, u16), then: &str) {
    let mut more = json!({"failStrategy": strategy});
    if !sha256.is_empty() {
        more["sha256"] = sha256.into();
    }
    let edge = Edge::start(&wasm("module", url, &more));
    edge.until(&format!("{what} with {strategy}"), status, None);
    if sha256.is_empty() {
        edge.until_told("module", "refuses it");
    }
    edge.plane.write("extensions.yaml", then);
    edge.until(&format!("a module that loads, after {what}"), 200, Some("good"));
    if !sha256.is_empty() {
        edge.envoy.assert_no_nacks();
    }
}

/// Each case has an Envoy of its own: one that has a body which is no module refuses further listeners with it.
#[test]
fn the_strategy_decides_about_modules_that_do_not_load() {
    let (good, large) = (module("good"), vec![7; 10 << 20]);
    let port = serve([("/large".to_string(), large.clone()), ("/good".to_string(), good.clone())].into());
    let at = |path: &str| format!("http://127.0.0.1:{port}{path}");
    let folder = scratch();
    let (absent, wrong) = (folder.join("absent.wasm"), folder.join("wrong.wasm"));
    fs::write(&wrong, &large).unwrap();
    let file = |path: &Path| format!("file://{}", path.display());
    let loads = wasm("module", &at("/good"), &json!({"sha256": digest(&good)}));
    let cases = [
        ("a digest of other bytes", at("/good"), digest(b"other"), 503),
        ("a path that is not found", at("/none"), digest(b"none"), 503),
        ("a body of 10 MB that is no module", at("/large"), digest(&large), 503),
        ("an unknown host", "http://nowhere.invalid/a.wasm".to_string(), digest(b"nowhere"), 503),
        ("a server that hangs", format!("http://127.0.0.1:{}/a", hanging()), digest(b"hangs"), 503),
        ("a file that is absent", file(&absent), String::new(), 403),
        ("a file that is no module", file(&wrong), String::new(), 403),
    ];
    let loads = loads.as_str();
    thread::scope(|scope| {
        for (what, url, sha256, refused) in &cases {
            for fate in [("FAIL_CLOSE", *refused), ("FAIL_OPEN", 200)] {
                scope.spawn(move || strategy_decides(what, url, sha256, fate, loads));
            }
        }
    });
}

#[test]
fn one_module_of_a_server_runs_in_all_listeners() {
    let one = module("one");
    let port = serve([("/one.wasm".to_string(), one.clone())].into());
    let other = free_port();
    let more = json!({"selector": {"app": "edge"}, "servers":
        [{"port": {"number": other, "name": "other", "protocol": "HTTP"}, "hosts": ["*"]}]});
    let module = wasm("module", &format!("http://127.0.0.1:{port}/one.wasm"), &json!({"sha256": digest(&one)}));
    let route =
        json!({"hosts": ["*"], "gateways": ["other"], "http": [{"route": [{"destination": {"host": "web.example"}}]}]});
    let edge = Edge::start(&(module + &object("Gateway", "other", &more) + &object("VirtualService", "other", &route)));
    edge.until("the module runs", 200, Some("one"));
    wait_for("the module runs in the other listener", || {
        let stamped = |answer: &Answer| answer.headers.get("x-wasm").is_some_and(|value| value == "one");
        get(other, "a", "/", &[]).ok().filter(stamped)
    });
    edge.envoy.assert_no_nacks();
}

#[test]
fn a_module_that_envoy_cannot_fetch_is_told_at_its_object() {
    let image = "oci://registry.example/module:1";
    let edge = Edge::start(&wasm("module", image, &json!({})));
    edge.until("requests are refused", 403, None);
    edge.until_told("module", "fetches no images");
    edge.plane.write("extensions.yaml", &wasm("module", image, &json!({"failStrategy": "FAIL_OPEN"})));
    edge.until("requests pass", 200, None);
    edge.until_told("module", "passes without it");
    let plain = wasm("module", "https://files.example/a.wasm", &json!({"failStrategy": "FAIL_OPEN"}));
    edge.plane.write("extensions.yaml", &plain);
    edge.until_told("module", "without sha256");
    edge.envoy.assert_no_nacks();
}
