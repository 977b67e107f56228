//! Panic handling: catches panics that are survivable; all others end the process.

use std::{
    any::Any,
    cell::Cell,
    panic::{self, AssertUnwindSafe},
};

use super::Shutdown;

thread_local! {
    static GUARDED: Cell<u32> = const { Cell::new(0) };
}

/// A caught panic.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("panicked: {0}")]
pub struct Panicked(pub String);

/// Runs work whose panic is survivable. After a panic its state must not be used.
///
/// # Errors
/// [`Panicked`] with the panic's text.
pub fn catch<R>(work: impl FnOnce() -> R) -> Result<R, Panicked> {
    GUARDED.set(GUARDED.get() + 1);
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    GUARDED.set(GUARDED.get() - 1);
    result.map_err(|payload| Panicked(text(&*payload)))
}

fn text(payload: &(dyn Any + Send)) -> String {
    payload
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no text".to_string())
}

/// Logs every panic. A panic outside of [`catch`] begins a shutdown with an error. Rayon raises the panic of a worker again in
/// the thread that waits for it, so that thread decides.
pub fn install_panic_hook(shutdown: &Shutdown) {
    let shutdown = shutdown.clone();
    panic::set_hook(Box::new(move |info| {
        let guarded = GUARDED.get() > 0 || rayon::current_thread_index().is_some();
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        let what = text(info.payload());
        tracing::error!(guarded, place, panic = what, "panic");
        if !guarded {
            shutdown.fail(format!("panic at {place}: {what}"));
        }
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error_with_its_text() {
        assert_eq!(catch(|| 1), Ok(1));
        let caught = catch(|| std::hint::black_box(None::<u32>).unwrap());
        assert!(caught.is_err_and(|p| p.0.contains("None")));
    }
}
