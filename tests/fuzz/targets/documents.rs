//! Documents of files and state: YAML, JSON, mesh settings, saved content.

use std::sync::Arc;

use pilothouse::{
    model::{self, Config, Mesh, Origin, decode, validation},
    sources::{
        file::parse::{ObjectOutcome, parse_text},
        yaml,
    },
    store::last_good,
};
use serde_json::Value;

/// A fault of ours that the reader caught.
const FAULT: &str = "failed inside pilothouse";

/// Demands that an accepted object can be written as a document and reads back the same.
pub fn check_round_trip(config: &Config) {
    let _ = validation::validate(config);
    let Ok(document) = model::document(config) else { return };
    let back = decode::from_value(&document, config.origin.clone());
    let back = back.unwrap_or_else(|error| panic!("{}: {error}: {document}", config.key()));
    assert_eq!(back.key(), config.key());
    assert_eq!(
        model::document(&back).ok().as_ref(),
        Some(&document),
        "it is written differently when it was read back"
    );
}

/// A file of a config folder.
pub fn yaml_documents(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let path = Arc::new("fuzz.yaml".into());
    let documents = parse_text(&Origin::default(), &path, &text);
    let lines = yaml::lines(&text).count() as u32 + 1;
    let mut written = 0;
    for document in &documents {
        assert!(document.line <= lines);
        for outcome in document.outcomes.iter() {
            match outcome {
                ObjectOutcome::Taken { config, warnings } => {
                    assert!(!config.meta.name.is_empty());
                    written += warnings.iter().map(|w| w.text.len()).sum::<usize>();
                    check_round_trip(config);
                }
                ObjectOutcome::Refused(refusal) => {
                    assert!(!refusal.reason.contains(FAULT), "{}", refusal.reason);
                    assert!(document.line + refusal.line <= lines, "a line that the file does not have");
                    written += refusal.reason.len();
                }
                ObjectOutcome::Ignored { .. } => {}
            }
        }
    }
    assert!(written <= 64 * text.len() + 4096, "{written} bytes of findings about {} bytes", text.len());
}

/// The values of a text, and where they stand.
pub fn yaml_values(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for chunk in yaml::documents(&text) {
        assert!(!chunk.text.is_empty());
    }
    match yaml::values(&text) {
        Ok(values) => {
            let size: usize = values.iter().map(|v| v.to_string().len()).sum();
            // Aliases are copied where they are named: that is bounded.
            assert!(size <= (1 << 20) + 64 * text.len(), "{size} bytes out of {}", text.len());
        }
        Err(error) => assert!(error.reason.len() <= 4096 + 8 * text.len()),
    }
    let _ = yaml::locate(&text, std::marker::PhantomData::<Value>);
}

/// A JSON document, as another source hands it over.
pub fn json_documents(data: &[u8]) {
    let Ok(value) = serde_json::from_slice::<Value>(data) else { return };
    if let Ok((config, _)) = decode::with_warnings(&value, Origin::default()) {
        check_round_trip(&config);
        let _ = validation::admission(config.kind(), &value);
        let _ = validation::api_server_refusals(config.kind(), &value);
    }
}

/// Saved content: the bytes as they are, and with a head that fits them.
pub fn saved_content(data: &[u8]) {
    let _ = last_good::decode(data);
    let text = String::from_utf8_lossy(data);
    let values = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let configs = values.filter_map(|v| decode::from_value(&v, Origin::default()).ok()).map(Arc::new);
    let configs: Vec<Arc<Config>> = configs.filter(|c| c.kind() != model::Kind::Secret).collect();
    let Ok(file) = last_good::encode("fuzz", 7, &configs) else { return };
    let saved = last_good::decode(&file).unwrap_or_else(|error| panic!("{error}"));
    let keys = |list: &[Arc<Config>]| list.iter().map(|c| c.key()).collect::<Vec<_>>();
    assert_eq!(keys(&saved.configs), keys(&configs));
    for cut in [file.len() / 2, file.len().saturating_sub(1)] {
        assert!(last_good::decode(&file[..cut]).is_err(), "a file that is cut off is read");
    }
}

/// Mesh settings, the networks behind `---`.
pub fn mesh_config(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let values = |text: &str| yaml::values(text).ok().and_then(|v| v.into_iter().next()).unwrap_or_default();
    let (config, networks) = text.split_once("\n---\n").unwrap_or((&text, ""));
    let (config, networks) = (values(config), values(networks));
    let _ = (Mesh::unknown_fields("MeshConfig", &config), Mesh::unknown_fields("MeshNetworks", &networks));
    let read = || Mesh::from_values(&config, &networks, "cluster.local", "Kubernetes");
    if let (Ok(one), Ok(two)) = (read(), read()) {
        assert_eq!(one.stamp, two.stamp);
        let _ = (one.warnings(), Mesh::validated(&config, &networks, "cluster.local", "Kubernetes"));
        super::world::serve_with(one);
    }
}
