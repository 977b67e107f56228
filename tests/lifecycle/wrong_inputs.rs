//! Wrong sources on the command line: the program ends with one line that names the flag and the reason.

use std::{fs, process::Command};

/// What the program says and does not start with.
fn refusal(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_pilothouse"))
        .args(["serve", "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0", "--monitoring-addr", ""])
        .args(arguments)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{arguments:?} is taken: {said}");
    let said: Vec<&str> = said.lines().filter(|l| l.starts_with("pilothouse: ") || l.starts_with("error: ")).collect();
    assert_eq!(said.len(), 1, "{arguments:?}: {said:?}");
    said[0].to_string()
}

#[test]
fn each_is_refused_in_a_line_that_names_its_flag() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, file) = (dir.path().join("folder"), dir.path().join("file"));
    fs::create_dir(&folder).unwrap();
    fs::write(&file, "no: [").unwrap();
    let (folder, file) = (folder.to_str().unwrap(), file.to_str().unwrap());
    let west = format!("west={folder}");
    for (arguments, flag, reason) in [
        (&["--config-dir", "/no/such"][..], "--config-dir /no/such", "No such file"),
        (&["--config-dir", folder, "--config-dir", folder], "--config-dir", "twice"),
        (&["--upstream", "http://x/y"], "--upstream", "is not HOST:PORT"),
        (&["--upstream", "127.0.0.1:1", "--upstream", "127.0.0.1:1"], "--upstream", "twice"),
        (&["--upstream", "x.example:1", "--upstream-token-file", file], "--upstream-token-file", "over TLS only"),
        (&["--upstream", "x.example:1", "--upstream-cert", file], "", "required arguments were not provided"),
        (&["--config-dir", folder, "--state-dir", file], "--state-dir", "exists"),
        (&["--config-dir", folder, "--mesh-config", file], "--mesh-config", ":1:"),
        (&["--config-dir", folder, "--remote-cluster", "west"], "--remote-cluster", "is not NAME=PATH"),
        (&["--config-dir", folder, "--remote-cluster", "west=/no/such"], "--remote-cluster west=", "No such file"),
        (&["--config-dir", folder, "--remote-cluster", "Kubernetes=/"], "--remote-cluster", "main cluster's id"),
        (&["--config-dir", folder, "--remote-cluster", &west, "--remote-cluster", &west], "--remote-cluster", "two"),
        (&["--config-dir", folder, "--registries", "Consul"], "--registries", "Kubernetes is the only one"),
        (&["--kube-context", "c"], "", "required arguments were not provided"),
        (&["--kubeconfig", "/no/such"], "--kubeconfig /no/such: ", "No such file"),
        (&["--kubeconfig", file], "--kubeconfig ", "file: "),
        (&["--kubeconfig", "/dev/zero"], "--kubeconfig /dev/zero: ", "not a file"),
        (&["--config-dir", folder, "--remote-cluster", &format!("west={file}")], "--remote-cluster west=", "file: "),
        (&["--config-dir", folder, "--cluster-aliases", "a"], "--cluster-aliases", "is not ALIAS=ID"),
        (&["--config-dir", folder, "--cluster-aliases", "a=c,b=c"], "--cluster-aliases", "more than one alias for c"),
        (&["--config-dir", folder, "--write-status"], "--write-status: ", "no cluster"),
        (&["--upstream", "x.example:1", "--upstream-ca", "/no/such"], "--upstream-ca /no/such: ", "No such file"),
        (&["--upstream", "x.example:1", "--upstream-ca", file], "--upstream-ca ", "file: "),
        (
            &["--upstream", "x.example:1", "--upstream-tls", "--upstream-token-file", "/no/such"],
            "--upstream-token-file /no/such: ",
            "No such file",
        ),
        (&["--config-dir", folder, "--lease-duration", "1ms"], "--lease-duration", "whole seconds"),
        (&["--config-dir", folder, "--log-level", "loud"], "--log-level", "not a level"),
        (&["--config-dir", folder, "--log-level", "info,loud"], "--log-level", "not a level"),
        (&["--config-dir", folder, "--log-level", "pilothouse=loud"], "--log-level", "not a level"),
    ] {
        let said = refusal(arguments);
        assert!(said.contains(flag) && said.contains(reason), "{arguments:?}: {said}");
    }
}
