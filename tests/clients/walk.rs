//! A chapter of the guide, walked as it is printed. The guide's own conventions are read:
//!
//! - A block of `sh` runs on the machine that its first line names (`# on vm1`), else on that of the block before. A command that ends
//!   in `&` stays, until `kill %NAME` ends it; `systemctl` starts, stops and restarts the units that the chapter makes, and
//!   `journalctl` shows what they said.
//! - A block of `text` after it is the output of its last command, which is repeated until it is that; `…` stands for any text, on a
//!   line of its own for any lines.
//! - A block of another language whose first line is a comment with a path is that file.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    network::Machine,
    process::{Process, wait_until},
    skipped::skipped,
    two_machines::{Shell, commands_of},
};

/// A fenced block.
struct Block<'a> {
    /// The heading above it.
    section: &'a str,
    language: &'a str,
    text: &'a str,
    /// The output that follows it.
    expected: Option<&'a str>,
}

/// The blocks of a chapter.
fn blocks(chapter: &str) -> Vec<Block<'_>> {
    let mut blocks: Vec<Block<'_>> = Vec::new();
    let mut section = "";
    let mut parts = chapter.split("\n```");
    while let (Some(prose), Some(fenced)) = (parts.next(), parts.next()) {
        let mut headings = prose.lines().filter_map(|line| line.strip_prefix('#'));
        section = headings.next_back().map_or(section, |heading| heading.trim_start_matches('#').trim());
        let (language, text) = fenced.split_once('\n').expect("a block has a line");
        match blocks.last_mut().filter(|last| language == "text" && last.language == "sh" && last.expected.is_none()) {
            Some(last) => last.expected = Some(text),
            None => blocks.push(Block { section, language, text, expected: None }),
        }
    }
    blocks
}

/// Whether a text is as the pattern has it; runs of spaces count as one.
fn matches(pattern: &str, text: &str) -> bool {
    let lines = |text: &str| -> Vec<String> {
        text.trim().lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    };
    lines_match(&lines(pattern), &lines(text))
}

fn lines_match(pattern: &[String], text: &[String]) -> bool {
    match (pattern.split_first(), text.split_first()) {
        (None, rest) => rest.is_none(),
        (Some((any, rest)), _) if any == "…" => (0..=text.len()).any(|at| lines_match(rest, &text[at..])),
        (Some((line, rest)), Some((first, others))) => line_matches(line, first) && lines_match(rest, others),
        (Some(_), None) => false,
    }
}

fn line_matches(pattern: &str, line: &str) -> bool {
    let Some((before, after)) = pattern.split_once('…') else { return pattern == line };
    let Some(rest) = line.strip_prefix(before) else { return false };
    let starts = rest.char_indices().map(|(at, _)| at).chain([rest.len()]);
    starts.into_iter().any(|at| line_matches(after, &rest[at..]))
}

/// A program that stays: as it was typed, or the unit that started it.
struct Running {
    name: String,
    process: Process,
}

/// One machine of a chapter.
pub struct Host<'a> {
    name: &'static str,
    shell: Shell<'a>,
    running: RefCell<Vec<Running>>,
    units: RefCell<BTreeMap<String, PathBuf>>,
}

impl<'a> Host<'a> {
    pub fn new(name: &'static str, machine: &'a Machine) -> Self {
        Self { name, shell: Shell::new(machine), running: RefCell::default(), units: RefCell::default() }
    }

    /// Its folder, which is the working directory of its shell.
    pub fn folder(&self) -> &Path {
        &self.shell.folder
    }

    /// A program of this name on its path.
    pub fn put(&self, name: &str, script: &str) {
        use std::os::unix::fs::PermissionsExt;
        let file = self.folder().join("bin").join(name);
        fs::write(&file, format!("#!/bin/bash\n{script}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Everything that its programs have said last.
    fn said(&self) -> String {
        let running = self.running.borrow();
        let tails = running.iter().map(|r| format!("--- {}: {}\n{}\n", self.name, r.name, r.process.tail()));
        tails.collect()
    }

    /// The output of one command, and whether it succeeded.
    fn run(&self, command: &str) -> (String, bool) {
        let done = (String::new(), true);
        let words: Vec<&str> = command.split_whitespace().collect();
        match words.as_slice() {
            ["kill", job] if job.starts_with('%') => self.end(&job[1..]),
            ["systemctl", "enable", "--now", unit] => self.enable(&self.folder().join(unit)),
            ["systemctl", "stop", unit] => self.stop(unit),
            ["systemctl", "start", unit] => self.start(unit),
            ["systemctl", "restart", unit] => {
                self.stop(unit);
                self.start(unit);
            }
            ["journalctl", "-u", unit, ..] => {
                let running = self.running.borrow();
                let log = running.iter().find(|r| r.name == *unit).expect(unit).process.log.display().to_string();
                return self.output(&command.replacen(&format!("journalctl -u {unit}"), &format!("cat {log}"), 1));
            }
            [.., "&"] => self.stay(command.strip_suffix('&').unwrap().trim()),
            _ => return self.output(command),
        }
        done
    }

    fn output(&self, command: &str) -> (String, bool) {
        let mut shell = self.shell.bash(&format!("exec 2>&1\n{command}"));
        let output = self.shell.within(|| shell.output()).unwrap();
        (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.success())
    }

    fn stay(&self, command: &str) {
        // The shell gives its place to the program, so that the program is killed.
        let is_variable = |word: &&str| word.split_once('=').is_some_and(|(name, _)| !name.contains(['-', '/', '.']));
        let variables: Vec<&str> = command.split(' ').take_while(is_variable).collect();
        let program = command.split(' ').skip(variables.len()).collect::<Vec<_>>().join(" ");
        let mut shell = self.shell.bash(&format!("{} exec {program}", variables.join(" ")));
        let process = self.shell.within(|| Process::start("program", &mut shell));
        self.running.borrow_mut().push(Running { name: program, process });
    }

    /// Ends the newest program whose command begins so.
    fn end(&self, name: &str) {
        let mut running = self.running.borrow_mut();
        let at = running.iter().rposition(|r| r.name.starts_with(name)).unwrap_or_else(|| panic!("no job {name}"));
        running.remove(at);
    }

    fn enable(&self, unit: &Path) {
        let name = unit.file_stem().unwrap().to_string_lossy().into_owned();
        assert_valid(unit);
        self.units.borrow_mut().insert(name.clone(), unit.to_path_buf());
        self.start(&name);
    }

    fn start(&self, name: &str) {
        // The unit's place of Envoy is not that of the tests.
        let command = self.of_unit(name, "ExecStart").replace("/usr/local/bin/envoy", "envoy");
        let mut shell = self.shell.bash(&format!("exec {command}"));
        let process = self.shell.within(|| Process::start(name, &mut shell));
        self.running.borrow_mut().push(Running { name: name.to_string(), process });
    }

    fn stop(&self, name: &str) {
        let (said, ended) = self.output(&self.of_unit(name, "ExecStop").replacen('-', "", 1));
        assert!(ended, "{name}: {said}");
        self.end(name);
    }

    /// A command of a unit, for a shell.
    fn of_unit(&self, name: &str, key: &str) -> String {
        let text = fs::read_to_string(&self.units.borrow()[name]).unwrap();
        let command = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('=')).expect(key);
        // `$$` and `%%` are one character each; a shell would read a `$` in double quotes.
        command.replace("%%", "%").replace("$$", "\\$")
    }
}

/// systemd takes the unit, where there is a systemd to ask.
fn assert_valid(unit: &Path) {
    let copy = unit.with_file_name("checked.service");
    fs::write(&copy, fs::read_to_string(unit).unwrap().replace("/usr/local/bin/envoy", "/bin/true")).unwrap();
    match Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&copy).output() {
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => skipped(&format!("systemd-analyze: {error}")),
    }
}

/// Walks a chapter (`NAME.md`) without some of its sections, on these machines, of which the first is that of blocks before any other
/// is named; gives the number of outputs that it compared.
pub fn walk(chapter: &str, hosts: &[&Host<'_>], without: &[String]) -> usize {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/guide").join(chapter);
    let text = fs::read_to_string(file).unwrap();
    let (mut host, mut compared) = (hosts[0], 0);
    for block in blocks(&text).into_iter().filter(|block| without.iter().all(|section| section != block.section)) {
        if block.language != "sh" {
            write(host, &block);
            continue;
        }
        if let Some(name) = block.text.lines().next().and_then(|line| line.strip_prefix("# on ")) {
            host = hosts.iter().find(|host| host.name == name).unwrap_or_else(|| panic!("no machine {name}"));
        }
        let mut commands = commands_of(&format!("{}\n", block.text));
        commands.retain(|command| !command.starts_with('#') && !command.is_empty());
        let all = || hosts.iter().map(|host| host.said()).collect::<String>();
        let last = block.expected.map(|expected| (commands.pop().expect("a command"), expected));
        for command in commands {
            let (said, succeeded) = host.run(&command);
            assert!(succeeded, "{chapter}, {}: {command}\n{said}\n{}", host.name, all());
        }
        if let Some((command, expected)) = last {
            wait_until(&format!("{chapter}, {}: {command}", host.name), || {
                let (said, _) = host.run(&command);
                if matches(expected, &said) {
                    Ok(())
                } else {
                    Err(format!("\n{said}\nin place of\n{expected}\n{}", all()))
                }
            });
            compared += 1;
        }
    }
    compared
}

/// The file that a block is, if it is one.
fn write(host: &Host<'_>, block: &Block<'_>) {
    let first = block.text.lines().next().unwrap_or_default();
    let Some(path) = first.trim_start_matches(['#', '/', '<', '!', '-', ' ']).strip_prefix("target/try/") else {
        return;
    };
    let path = path.trim_end_matches("-->").trim_end();
    let path = host.folder().join("target/try").join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("{}\n", block.text)).unwrap();
}

#[test]
fn outputs_are_compared_with_their_gaps() {
    assert!(matches("a  b\n", "a b"));
    assert!(matches("a … c\n…\nend", "a b c\nmore\nlines\nend\n"));
    assert!(!matches("a … c", "a b d"));
    assert!(!matches("a", "a\nb"));
    assert!(!matches("a\nb", "a"));
}
