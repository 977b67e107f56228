//! The address of a server, as users write it for its clients.

/// A server, as a client dials it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Server<'a> {
    /// Host and port.
    Tcp(&'a str, u16),
    /// Path of a Unix socket.
    Unix(&'a str),
}

impl<'a> Server<'a> {
    /// Reads HOST:PORT or unix:PATH.
    pub(super) fn parse(text: &'a str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            // A path relative to the folder in which the client starts would be another one.
            let absolute = if path.starts_with("///") { &path[2..] } else { path };
            let is_one = absolute.starts_with('/') && !absolute.starts_with("//");
            return if is_one {
                Ok(Self::Unix(absolute))
            } else {
                Err(format!("--xds-address {text:?}: the path is not absolute"))
            };
        }
        let (host, port) = split_address(text).ok_or_else(|| format!("--xds-address {text:?} is not HOST:PORT"))?;
        Ok(Self::Tcp(host, port))
    }

    /// A name, which is to be resolved.
    pub(super) fn is_name(self) -> bool {
        matches!(self, Self::Tcp(host, _) if host.parse::<std::net::IpAddr>().is_err())
    }
}

/// Host (without brackets) and port of an address to dial.
pub(super) fn split_address(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    Some((host, port.parse().ok()?)).filter(|(host, port)| !host.is_empty() && *port != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_unix_socket_is_absolute() {
        assert_eq!(Server::parse("unix:///run/xds.sock"), Ok(Server::Unix("/run/xds.sock")));
        for wrong in ["unix:", "unix:xds.sock", "unix://host/xds.sock"] {
            assert!(Server::parse(wrong).unwrap_err().contains("absolute"), "{wrong}");
        }
    }

    #[test]
    fn addresses_need_a_host_and_a_port() {
        assert_eq!(split_address("[::1]:15010"), Some(("::1", 15010)));
        for wrong in ["15010", ":15010", "host:", "host:0", "host:99999"] {
            assert_eq!(split_address(wrong), None, "{wrong}");
        }
    }
}
