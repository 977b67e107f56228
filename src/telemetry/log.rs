//! Structured logs on standard error. Logging never waits for the reader, and the length of each line is bounded.

use std::{
    fs::File,
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, IsTerminal},
    os::fd::AsFd,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};
use tracing::{Event, Level, Subscriber, level_filters::LevelFilter};
use tracing_subscriber::{
    EnvFilter, Layer, Registry,
    layer::{Context, SubscriberExt},
    reload,
    util::SubscriberInitExt,
};

use super::{
    line::{Line, LogFormat},
    repeats::Repeats,
    scopes::{Levels, Scope, ScopeLevel},
    writer::Queue,
};

/// The log of this process, once installed.
static LOG: OnceLock<Log> = OnceLock::new();

/// The levels of the log in force, and the filter that they are applied by.
static LEVELS: OnceLock<(Mutex<Levels>, reload::Handle<EnvFilter, Registry>)> = OnceLock::new();

#[derive(Debug, Clone)]
struct Log {
    format: LogFormat,
    colours: bool,
    repeats: Arc<Mutex<Repeats>>,
    queue: Queue,
}

/// Installs the log. `level` is a level (`info`) or a list of `target=level`; levels of Istio's scopes come on top. A second
/// call has no effect.
///
/// # Errors
/// A text, when `level` is invalid or the writer thread cannot be started.
pub fn init_log(level: &str, scopes: &[ScopeLevel], format: LogFormat) -> Result<(), String> {
    let mut start = filter_of(level).map(|_| level.to_string())?;
    if !level.contains("kube") {
        // kube logs an error for each refused connection; the sources report them themselves, once.
        start.push_str(",kube_client=off,kube_runtime=off");
    }
    let mut levels = Levels::of(&start);
    let without_lines: Vec<&str> =
        scopes.iter().filter(|scope| !levels.set(scope)).map(|(name, _)| name.as_str()).collect();
    levels.begin();
    let (filter, handle) = reload::Layer::new(filter_of(&levels.directives())?);
    let log = Log::start(format).map_err(|e| format!("log: {e}"))?;
    if tracing_subscriber::registry().with(filter).with(log.clone()).try_init().is_ok() {
        let _ = LOG.set(log);
        let _ = LEVELS.set((Mutex::new(levels), handle));
    }
    if !without_lines.is_empty() {
        tracing::warn!(scopes = without_lines.join(","), "logging scopes of Istio without lines of their own here");
    }
    Ok(())
}

/// The scopes of the log with their levels; none where the log is not this program's.
#[must_use]
pub fn log_scopes() -> Vec<Scope> {
    LEVELS.get().map(|(levels, _)| levels.lock().scopes()).unwrap_or_default()
}

/// Sets the levels of scopes, all of them or none; without any, all levels are those of the start again.
///
/// # Errors
/// A text that names a scope without lines, or says that the log is not this program's.
pub fn set_log_levels(scopes: &[ScopeLevel]) -> Result<(), String> {
    let (levels, handle) = LEVELS.get().ok_or("the log is not this program's")?;
    let mut levels = levels.lock();
    let mut next = levels.clone();
    if scopes.is_empty() {
        next.reset();
    }
    if let Some((name, _)) = scopes.iter().find(|scope| !next.set(scope)) {
        return Err(format!("the scope {name:?} has no lines of its own here"));
    }
    let filter = filter_of(&next.directives())?;
    handle.reload(filter).map_err(|error| error.to_string())?;
    *levels = next;
    Ok(())
}

/// Writes all waiting lines, within this time. Returns whether all were written. Call it at the very end of the process.
pub fn flush_log(limit: Duration) -> bool {
    LOG.get().is_none_or(|log| {
        log.left_out(true).into_iter().for_each(|line| log.queue.push(line));
        log.queue.flush(limit)
    })
}

/// Validates a level or a list of directives.
///
/// # Errors
/// A text that names the invalid directive.
pub fn log_level(text: &str) -> Result<String, String> {
    filter_of(text).map(|_| text.to_string())
}

/// The filter would read an unknown word as a target at the lowest level, and disable all other targets.
fn filter_of(text: &str) -> Result<EnvFilter, String> {
    for directive in text.split(',').map(str::trim).filter(|d| !d.is_empty() && !d.contains('[')) {
        let level = directive.rsplit_once('=').map_or(directive, |(_, level)| level);
        if level.parse::<LevelFilter>().is_err() {
            let known = "error, warn, info, debug, trace, off, or TARGET=LEVEL";
            return Err(format!("{directive:?} is not a level ({known})"));
        }
    }
    EnvFilter::try_new(text).map_err(|e| format!("{text:?}: {e}"))
}

impl Log {
    fn start(format: LogFormat) -> io::Result<Self> {
        let stderr = io::stderr();
        let colours = format == LogFormat::Text && stderr.is_terminal();
        // The standard library's handle has a lock, which a blocked write would hold.
        let output = File::from(stderr.as_fd().try_clone_to_owned()?);
        let repeats = Arc::<Mutex<Repeats>>::default();
        let mut log = Self { format, colours, repeats, queue: Queue::default() };
        let (summing, telling) = (log.clone(), log.clone());
        let told = move |dropped: u64| {
            let line = Line::new(Level::WARN, module_path!(), "lines were dropped, standard error was blocked");
            telling.rendered(&line.with_number("dropped", dropped))
        };
        log.queue = Queue::start(output, move || summing.left_out(false), told)?;
        Ok(log)
    }

    fn rendered(&self, line: &Line) -> String {
        line.render(self.format, self.colours)
    }

    fn repeats(&self) -> MutexGuard<'_, Repeats> {
        self.repeats.lock()
    }

    fn left_out(&self, all: bool) -> Vec<String> {
        let lines = self.repeats().due(Instant::now(), all);
        lines.iter().map(|line| self.rendered(line)).collect()
    }
}

impl<S: Subscriber> Layer<S> for Log {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let line = Line::of(event);
        // Levels below INFO are enabled explicitly, so their lines are not suppressed.
        let bounded = line.level <= Level::INFO;
        if bounded && !self.repeats().admits(kind(event, &line), &line, Instant::now()) {
            metrics::counter!("pilothouse_log_lines_suppressed").increment(1);
            return;
        }
        self.queue.push(self.rendered(&line));
    }
}

/// The callsite, and the target for events of the `log` crate, which share one callsite.
fn kind(event: &Event<'_>, line: &Line) -> u64 {
    let mut hasher = DefaultHasher::new();
    (event.metadata().callsite(), &line.target).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_no_level_is_refused() {
        for good in ["info", "WARN", "off", "info,pilothouse::sources=debug", "pilothouse=trace,", "a[span{x=1}]=debug"]
        {
            assert_eq!(log_level(good).as_deref(), Ok(good));
        }
        for bad in ["loud", "info,loud", "pilothouse::xds", "pilothouse=loud"] {
            assert!(log_level(bad).is_err_and(|e| e.contains("is not a level")), "{bad}");
        }
    }
}
