//! An address to listen on, in the forms of istiod's flags.

use std::{fmt, net::SocketAddr, str::FromStr};

/// `HOST:PORT` to bind. Port 0 lets the system choose; `:PORT`, Go's form, means all interfaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenAddress(String);

/// The text is not `HOST:PORT`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not HOST:PORT")]
pub struct ListenAddressError(String);

impl ListenAddress {
    /// A port of the loopback interface.
    #[must_use]
    pub fn loopback(port: u16) -> Self {
        Self(format!("127.0.0.1:{port}"))
    }

    /// The text to resolve and bind.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<SocketAddr> for ListenAddress {
    fn from(address: SocketAddr) -> Self {
        Self(address.to_string())
    }
}

impl FromStr for ListenAddress {
    type Err = ListenAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ListenAddressError(text.to_string());
        let (host, port) = text.rsplit_once(':').ok_or_else(error)?;
        let port: u16 = port.parse().map_err(|_| error())?;
        let bare_v6 = host.contains(':') && !(host.starts_with('[') && host.ends_with(']'));
        if bare_v6 {
            return Err(error());
        }
        let host = if host.is_empty() || host == "*" { "0.0.0.0" } else { host };
        Ok(Self(format!("{host}:{port}")))
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_the_forms_that_istiod_takes() {
        let parsed = |text: &str| text.parse::<ListenAddress>().map(|a| a.to_string());
        assert_eq!(parsed(":15010").unwrap(), "0.0.0.0:15010");
        assert_eq!(parsed("localhost:0").unwrap(), "localhost:0");
        assert_eq!(parsed("[::1]:80").unwrap(), "[::1]:80");
        for wrong in ["", "15010", "host:", "host:70000", "::1:80"] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
}
