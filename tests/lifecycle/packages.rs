//! The compose file: its commands and variables are ones that the program has, its files are there, and its gateway gets the
//! listener that is published. The program for musl.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use clap::Parser;
use pilothouse::{cli::Cli, sources::yaml};
use serde_json::Value;

use crate::{binary::Binary, skipped::skipped, stage::DEADLINE, systemd::status};

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub fn words(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_string()).collect()
}

pub fn parse(words: &[String]) {
    let program = std::iter::once("pilothouse".to_string());
    Cli::try_parse_from(program.chain(words.iter().cloned())).unwrap_or_else(|error| panic!("{words:?}: {error}"));
}

fn compose() -> (PathBuf, Value) {
    let folder = root().join("config/compose");
    let text = fs::read_to_string(folder.join("compose.yaml")).unwrap();
    (folder, yaml::values(&text).unwrap().remove(0))
}

#[test]
fn the_commands_and_files_of_the_compose_file_are_there() {
    let (folder, compose) = compose();
    let services = compose["services"].as_object().unwrap();
    let own: Vec<&Value> = services.values().filter(|s| s["image"] == "pilothouse").collect();
    assert_eq!((own.len(), services.len()), (2, 5));
    for service in &own {
        parse(&words(&service["command"]));
        assert_eq!(service["read_only"], true);
    }
    assert!(folder.join(services["pilothouse"]["build"]["context"].as_str().unwrap()).join("Dockerfile").is_file());
    for (name, service) in services {
        for volume in service["volumes"].as_array().into_iter().flatten() {
            let source = volume.as_str().unwrap().split(':').next().unwrap();
            let there = if source.starts_with('.') {
                folder.join(source).exists()
            } else {
                compose["volumes"].get(source).is_some()
            };
            assert!(there, "{name}: {source}");
        }
        for other in service["depends_on"].as_object().into_iter().flatten() {
            assert!(services.contains_key(other.0), "{name}: {}", other.0);
        }
    }
}

#[test]
fn the_gateway_of_the_compose_file_has_its_bootstrap_and_its_listener() {
    let (folder, compose) = compose();
    let dir = tempfile::tempdir().unwrap();
    let run = |arguments: &[String]| {
        let output = Command::new(env!("CARGO_BIN_EXE_pilothouse")).args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let command = words(&compose["services"]["bootstrap"]["command"]);
    let out = dir.path().join("bootstrap");
    let command: Vec<String> =
        command.iter().map(|word| word.replace("--out=/bootstrap", &format!("--out={}", out.display()))).collect();
    run(&command);
    let bootstrap: Value = serde_json::from_slice(&fs::read(out.join("envoy.json")).unwrap()).unwrap();
    let address =
        "/static_resources/clusters/0/load_assignment/endpoints/0/lb_endpoints/0/endpoint/address/socket_address";
    assert_eq!(bootstrap.pointer(address).unwrap()["address"], "pilothouse", "{bootstrap:#}");
    let gateway = &compose["services"]["gateway"];
    assert_eq!(words(&gateway["command"]), ["-c", "/bootstrap/envoy.json"]);
    let mesh = folder.join("mesh");
    let said = run(&["validate".into(), "--strict".into(), "-o".into(), "json".into(), mesh.display().to_string()]);
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&said["warned"], &said["objects"]), (&Value::Array(Vec::new()), &4.into()), "{said:#}");
    let node = command.iter().find(|word| word.starts_with("--node=")).unwrap();
    let rendered = dir.path().join("rendered");
    run(&[
        "render".into(),
        format!("--config-dir={}", mesh.display()),
        node.clone(),
        format!("--out={}", rendered.display()),
    ]);
    let mut text = String::new();
    for entry in fs::read_dir(&rendered).unwrap() {
        text += &fs::read_to_string(entry.unwrap().path()).unwrap_or_default();
    }
    let published = gateway["ports"][0].as_str().unwrap().rsplit(':').next().unwrap();
    assert!(text.contains(&format!("0.0.0.0_{published}")) && text.contains("hello-v1"), "{text}");
}

#[test]
fn the_program_for_musl_is_static_and_serves_the_demo() {
    if std::env::var_os("PILOTHOUSE_TEST_MUSL").is_none() {
        return skipped("PILOTHOUSE_TEST_MUSL is not set, and the build takes minutes");
    }
    let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let mut build = Command::new(env!("CARGO"));
    let built =
        build.args(["build", "--locked", "--bin", "pilothouse", "--target", &target]).current_dir(root()).output();
    let built = built.unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join(&target);
    let program = folder.join("debug/pilothouse");
    let libraries = Command::new("ldd").arg(&program).output().unwrap();
    let said = String::from_utf8([libraries.stdout, libraries.stderr].concat()).unwrap();
    assert!(said.contains("statically linked") || said.contains("not a dynamic executable"), "{said}");

    let mut serve = Command::new(program);
    // Not even a library path, or a folder of the system, is in its environment.
    serve.env_clear().args(["serve", "--log-format", "json", "--grpc-addr", "127.0.0.1:0"]).current_dir(root());
    serve.args(["--http-addr", "127.0.0.1:0", "--monitoring-addr", ""]);
    let mut server = Binary::spawn(serve);
    let (_, http) = server.addresses();
    let start = Instant::now();
    while status(http, "/ready") != "HTTP/1.1 200 OK" {
        assert!(start.elapsed() < DEADLINE, "not ready");
        std::thread::sleep(Duration::from_millis(20));
    }
    server.terminate();
    assert_eq!(server.ends_within(DEADLINE).code(), Some(0));
}
