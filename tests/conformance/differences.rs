//! The cases of `differences.yaml`: those that differ on purpose, and those whose recorded input is incomplete.

use std::{collections::BTreeMap, fs, path::Path};

use serde::Deserialize;

/// Case → reason.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Differences {
    /// We do something else on purpose.
    pub differs: BTreeMap<String, String>,
    /// The recorded input lacks something that the recorded expectation needs.
    pub incomplete: BTreeMap<String, String>,
}

impl Differences {
    /// Reads the file.
    pub fn read() -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance/differences.yaml");
        let read: Self = serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        let mut all = read.differs.iter().chain(&read.incomplete);
        assert!(all.all(|(_, reason)| reason.len() > 20), "a difference without a reason");
        read
    }
}
