//! The guide and README: each `pilothouse` command parses, each document validates, each linked file exists.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use clap::Parser;
use pilothouse::{analysis::Code, cli::Cli};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// README and the chapters, each with its text.
fn pages() -> Vec<(PathBuf, String)> {
    let files = fs::read_dir(root().join("src/guide")).unwrap().map(|entry| entry.unwrap().path());
    let chapters = files.filter(|path| path.extension().is_some_and(|e| e == "md"));
    let pages = chapters.chain([root().join("README.md")]);
    pages.map(|path| (path.clone(), fs::read_to_string(&path).unwrap())).collect()
}

/// The fenced blocks of one language.
fn blocks<'a>(text: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("```{language}\n");
    text.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

/// The words of a shell line up to a redirection or `&`; single quotes group.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (at, part) in line.split('\'').enumerate() {
        if at % 2 == 1 {
            words.push(part.to_string());
            continue;
        }
        for word in part.split_whitespace() {
            if [">", "&", "#", "|"].contains(&word) {
                return words;
            }
            words.push(word.to_string());
        }
    }
    words
}

#[test]
fn every_command_of_the_guide_parses() {
    let mut parsed = 0;
    for (path, text) in pages() {
        for block in blocks(&text, "sh") {
            let joined = block.replace("\\\n", " ");
            for line in joined.lines().filter(|line| line.starts_with("pilothouse ")) {
                // `--flag ''` is an empty value.
                let line = line.replace("''", "--empty--");
                let words = words(&line).into_iter().map(|word| word.replace("--empty--", ""));
                Cli::try_parse_from(words).unwrap_or_else(|e| panic!("{}: {line}\n{e}", path.display()));
                parsed += 1;
            }
        }
    }
    assert!(parsed >= 8, "the guide has {parsed} commands only: the blocks were not found");
}

#[test]
fn every_document_of_the_guide_validates() {
    let folder = tempfile::tempdir().unwrap();
    let mut validated = 0;
    for (path, text) in pages() {
        let heredocs = blocks(&text, "sh").into_iter().filter_map(|block| {
            let (_, rest) = block.split_once("<<'END'\n")?;
            Some(rest.split("\nEND\n").next().unwrap())
        });
        for document in blocks(&text, "yaml").into_iter().chain(heredocs) {
            let file = folder.path().join(format!("{validated}.yaml"));
            fs::write(&file, document).unwrap();
            let output = Command::new(env!("CARGO_BIN_EXE_pilothouse")).arg("validate").arg(&file).output().unwrap();
            assert!(output.status.success(), "{}: {}", path.display(), String::from_utf8_lossy(&output.stdout));
            validated += 1;
        }
    }
    assert!(validated >= 2, "the guide has {validated} documents only: the blocks were not found");
}

#[test]
fn every_linked_file_exists() {
    for (path, text) in pages() {
        for target in text.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()) {
            if !target.contains("://") {
                let linked = path.parent().unwrap().join(target.split('#').next().unwrap());
                assert!(linked.exists(), "{}: {target} does not exist", path.display());
            }
        }
    }
}

/// A viewer of files takes a picture from its path, `cargo doc` from the text beside it.
#[test]
fn every_picture_is_small_and_the_same_in_both_forms() {
    let chapter = fs::read_to_string(root().join("src/guide/dashboard.md")).unwrap();
    let pages = fs::read_to_string(root().join("src/guide.rs")).unwrap();
    let defined = chapter.lines().filter_map(|line| line.strip_prefix('[')?.split_once("]: "));
    let mut pictures = 0;
    for (name, path) in defined {
        assert!(chapter.contains(&format!("][{name}]")), "{name} is not shown");
        let file = root().join("src/guide").join(path);
        let picture = fs::read(&file).unwrap();
        assert!(picture.len() <= 60_000, "{path} has {} bytes", picture.len());
        let text = fs::read_to_string(file.with_extension("webp.base64")).unwrap();
        assert_eq!(text, STANDARD.encode(&picture), "{path}: base64 -w0 {path} > {path}.base64");
        assert!(pages.contains(&format!("[{name}]: data:image/webp;base64,")), "{name} is not in cargo doc");
        pictures += 1;
    }
    assert_eq!(pictures, 4);
}

#[test]
fn the_chapter_of_findings_has_every_code_as_the_program_tells_it() {
    let chapter = fs::read_to_string(root().join("src/guide/findings.md")).unwrap();
    let told: Vec<&str> = chapter.lines().filter(|l| l.starts_with("| `IST") || l.starts_with("| `PH")).collect();
    let row = |code: &Code| {
        let (level, meaning, way_out) = (code.level(), code.meaning(), code.way_out());
        format!("| `{code}` | {level} | {meaning} | {way_out} |")
    };
    assert_eq!(told, Code::ALL.iter().map(row).collect::<Vec<_>>());
}
