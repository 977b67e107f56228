//! The cases of `differences.yaml`: those that differ on purpose, and those whose recorded input is incomplete, and
//! those that need a capability that is not built yet.

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
    /// A capability that the case needs is not built yet.
    pub not_built: BTreeMap<String, String>,
}

impl Differences {
    /// Reads the file.
    pub fn read() -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance/differences.yaml");
        let read: Self = serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        let mut all = read.differs.iter().chain(&read.incomplete).chain(&read.not_built);
        assert!(all.all(|(_, reason)| reason.len() > 20), "a difference without a reason");
        read
    }

    /// Whether a failure of this case stands by name.
    pub fn names(&self, id: &str) -> bool {
        [&self.differs, &self.incomplete, &self.not_built].into_iter().any(|list| list.contains_key(id))
    }
}
