//! Names of cipher suites, as Istio's `cipherSuites` and Envoy's TLS library (BoringSSL) write them.

const SUITES: [&str; 15] = [
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-CHACHA20-POLY1305",
    "ECDHE-RSA-CHACHA20-POLY1305",
    "ECDHE-ECDSA-AES128-SHA",
    "ECDHE-RSA-AES128-SHA",
    "ECDHE-ECDSA-AES256-SHA",
    "ECDHE-RSA-AES256-SHA",
    "AES128-GCM-SHA256",
    "AES256-GCM-SHA384",
    "AES128-SHA",
    "AES256-SHA",
    "DES-CBC3-SHA",
];

/// Whether Envoy accepts this entry: a suite by its OpenSSL name, `ALL`, or an expression that begins with an operator (`-ALL`,
/// `[A|B]`).
#[must_use]
pub fn is_known(suite: &str) -> bool {
    let expression = suite.starts_with(|c: char| !c.is_alphanumeric());
    suite == "ALL" || expression || SUITES.contains(&suite)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_and_expressions_are_known() {
        for suite in ["ALL", "AES128-SHA", "-ALL", "[AES128-SHA|AES256-SHA]"] {
            assert!(is_known(suite), "{suite}");
        }
        assert!(!is_known("TLS_AES_128_GCM_SHA256") && !is_known(""));
    }
}
