//! `pilothouse man`: manual pages.

use std::{fs, path::PathBuf, process::ExitCode};

use clap::{Args, CommandFactory};

use super::{Refusal, output::print};

/// Arguments of `man`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:\n  pilothouse man | man -l -\n  pilothouse man --dir /usr/local/share/man/man1")]
pub struct ManArgs {
    /// Folder to write a page for each command to, made if it is absent; without it the page of the program goes to standard
    /// output.
    #[arg(long, env = "PILOTHOUSE_DIR", value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// Writes the pages.
///
/// # Errors
/// A folder that cannot be written to.
pub fn run(args: ManArgs) -> anyhow::Result<ExitCode> {
    let command = super::Cli::command();
    match &args.dir {
        Some(dir) => {
            let written = fs::create_dir_all(dir).and_then(|()| clap_mangen::generate_to(command, dir));
            written.map_err(|error| Refusal(format!("--dir {}: {error}", dir.display())))?;
        }
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(command).render(&mut page)?;
            print(&String::from_utf8_lossy(&page))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
