//! Forms of an answer, and writing it where a reader may have gone.

use std::io::Write;

use clap::ValueEnum;
use serde_json::Value;

use crate::sources::yaml;

/// Form of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Output {
    /// For people; istioctl's name for it works, too.
    #[default]
    #[value(alias = "short")]
    Table,
    /// One JSON document.
    Json,
    /// The same in YAML.
    Yaml,
}

impl Output {
    /// Writes an answer: the value, or the text that people read.
    ///
    /// # Errors
    /// Output that cannot be written.
    pub(super) fn write(self, value: &Value, text: impl FnOnce(&Value) -> String) -> anyhow::Result<()> {
        print(&match self {
            Self::Table => text(value),
            Self::Json => serde_json::to_string_pretty(value)? + "\n",
            Self::Yaml => yaml::text_of(value)?,
        })
    }
}

/// Writes to standard output. A reader that has seen enough and closes its pipe is no error.
///
/// # Errors
/// Output that cannot be written.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    let mut output = std::io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
