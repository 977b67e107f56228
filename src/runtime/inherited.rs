//! Listening sockets that a service manager opened before the process began (`LISTEN_FDS`, `LISTEN_FDNAMES`): they stay open
//! while a process replaces another one, so no connection is refused in between.

use std::{collections::BTreeMap, env, io, net::TcpListener};

use listenfd::ListenFd;

/// Sockets by the names that the service manager gives them.
pub type Inherited = BTreeMap<String, TcpListener>;

/// The inherited sockets, each once. To be called before the process has other threads: the environment is cleared of the
/// variables, so that no program started by this one takes them for its own.
///
/// # Errors
/// A socket without a name, with another one's name, or that is none for TCP.
pub fn inherited_sockets() -> io::Result<Inherited> {
    let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut sockets = ListenFd::from_env();
    let mut inherited = Inherited::new();
    for (at, name) in named(&names, sockets.len())?.into_iter().enumerate() {
        let Some(socket) = sockets.take_tcp_listener(at)? else { continue };
        inherited.insert(name, socket);
    }
    Ok(inherited)
}

/// The names of so many sockets.
fn named(names: &str, count: usize) -> io::Result<Vec<String>> {
    let wrong = |text: String| io::Error::new(io::ErrorKind::InvalidInput, text);
    if count == 0 {
        return Ok(Vec::new());
    }
    let names: Vec<String> = names.split(':').filter(|name| !name.is_empty()).map(str::to_string).collect();
    if names.len() != count {
        return Err(wrong(format!("{count} sockets and {} names for them (LISTEN_FDNAMES)", names.len())));
    }
    match names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)) {
        Some((_, twice)) => Err(wrong(format!("more than one socket has the name {twice:?} (LISTEN_FDNAMES)"))),
        None => Ok(names),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_socket_has_a_name_of_its_own() {
        assert_eq!(named("grpc:http", 2).unwrap(), ["grpc", "http"]);
        assert_eq!(named("connection", 0).unwrap(), [""; 0]);
        for (names, count, says) in
            [("", 1, "1 sockets and 0 names"), ("a", 2, "2 sockets and 1"), ("a:b:a", 3, "\"a\"")]
        {
            assert!(named(names, count).unwrap_err().to_string().contains(says), "{names}");
        }
    }
}
