//! The running process: it answers successors until one of them serves.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    net::{UnixListener, UnixStream},
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    PATIENCE, PROTOCOL,
    message::{Answer, Offer, Question, READY, receive, send},
    own_user,
};
use crate::runtime::Shutdown;

/// Most connections at once; more are closed.
const MOST_ASKING: usize = 8;

/// A successor serves. It waits for the end of the connection, which says that the path is free.
#[derive(Debug)]
pub struct TakenOver {
    /// Its process id, where the system tells it.
    pub process: Option<i32>,
    _stream: UnixStream,
}

/// Offers the sockets to successors until one of them serves; `None` where the shutdown begins first. The sockets of the offers
/// and the listener are closed then.
pub async fn hand_over(listener: UnixListener, offers: Vec<Offer>, shutdown: &Shutdown) -> Option<TakenOver> {
    let (offers, taking, mut asking) = (Arc::new(offers), Arc::<Mutex<Option<i32>>>::default(), JoinSet::new());
    loop {
        tokio::select! {
            () = shutdown.begun() => return None,
            Some(answered) = asking.join_next() => if let Ok(Some(taken)) = answered {
                return Some(taken);
            },
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) if asking.len() < MOST_ASKING => {
                    asking.spawn(answer(stream, offers.clone(), taking.clone()));
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(%error, "a successor cannot be accepted");
                    sleep(Duration::from_secs(1)).await;
                }
            }
        }
    }
}

/// The right of one successor to take over; given back when it ends.
struct Claim(Arc<Mutex<Option<i32>>>);

impl Drop for Claim {
    fn drop(&mut self) {
        *self.0.lock() = None;
    }
}

async fn answer(stream: UnixStream, offers: Arc<Vec<Offer>>, taking: Arc<Mutex<Option<i32>>>) -> Option<TakenOver> {
    let peer = stream.peer_cred().ok()?;
    let process = peer.pid();
    let claim = match asked(&stream, peer.uid()).await.and_then(|()| claim(&taking, process)) {
        Ok(claim) => claim,
        Err(reason) => {
            tracing::warn!(process, reason, "no socket is handed over");
            if let Ok(line) = serde_json::to_string(&Answer::new(Some(reason), &[])) {
                // It may have ended by now.
                let _ = timeout(PATIENCE, send(&stream, &line, &[])).await;
            }
            return None;
        }
    };
    let line = serde_json::to_string(&Answer::new(None, &offers)).ok()?;
    if let Err(error) = timeout(PATIENCE, send(&stream, &line, &offers)).await.unwrap_or_else(|late| Err(late.into())) {
        tracing::warn!(process, %error, "the sockets are not handed over");
        return None;
    }
    tracing::info!(process, sockets = offers.len(), "a successor has the sockets; it is waited for until it is ready");
    // It may take long: its sources decide.
    let ready = matches!(receive(&stream).await, Ok(Some((word, _))) if word == READY);
    if !ready {
        tracing::warn!(process, "the successor ended before it was ready; this process serves on");
        return None;
    }
    drop(claim);
    Some(TakenOver { process, _stream: stream })
}

/// The reason that a question is refused.
async fn asked(stream: &UnixStream, user: u32) -> Result<(), String> {
    let own = own_user();
    if user != own && user != 0 {
        return Err(format!("it is a process of user {own}, and the one that asks of user {user}"));
    }
    let line = match timeout(PATIENCE, receive(stream)).await {
        Ok(Ok(Some((line, _)))) => line,
        Ok(Ok(None)) => return Err("nothing was asked".to_string()),
        Ok(Err(error)) => return Err(error.to_string()),
        Err(_) => return Err(format!("nothing was asked within {PATIENCE:?}")),
    };
    let question: Question =
        serde_json::from_str(&line).map_err(|error| format!("the question is not one of a pilothouse: {error}"))?;
    match question.handover {
        PROTOCOL => Ok(()),
        // The other end reads the form of the answer, and says both.
        other => Err(format!(
            "version {} takes over in form {other}, this one hands over in form {PROTOCOL}",
            question.version
        )),
    }
}

fn claim(taking: &Arc<Mutex<Option<i32>>>, process: Option<i32>) -> Result<Claim, String> {
    let mut now = taking.lock();
    match *now {
        Some(other) => Err(format!("process {other} is taking over already")),
        None => {
            *now = Some(process.unwrap_or_default());
            Ok(Claim(taking.clone()))
        }
    }
}
