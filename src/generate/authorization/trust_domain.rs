//! Trust domains of principals: a policy that names the mesh's own trust domain, one of its aliases or `cluster.local` means
//! all of them (Istio's `trustdomain`).

/// The alias `cluster.local` of the trust domain in policies, whatever its real name.
const LOCAL: &str = "cluster.local";

/// The principals with those of the mesh repeated for each of its trust domains; without trust domains they stay.
pub(super) fn principals(written: &[String], domains: &[&str]) -> Vec<String> {
    if domains.is_empty() {
        return written.to_vec();
    }
    let mut all = Vec::with_capacity(written.len());
    for principal in written {
        match split(principal) {
            Some((domain, rest)) if domain == LOCAL || domains.iter().any(|own| is_like(domain, own)) => {
                let mut of_all: Vec<String> = Vec::with_capacity(domains.len());
                for own in domains {
                    let covers = domain.strip_prefix('*').is_some_and(|end| own.ends_with(end));
                    let named = if covers { principal.clone() } else { format!("{own}{rest}") };
                    if !of_all.contains(&named) {
                        of_all.push(named);
                    }
                }
                all.extend(of_all);
            }
            _ => all.push(principal.clone()),
        }
    }
    all
}

/// The trust domains with one of the mesh standing for all of them.
pub(super) fn domains(written: &[String], domains: &[&str]) -> Vec<String> {
    let mut all: Vec<String> = Vec::with_capacity(written.len());
    for domain in written {
        let known = domains.contains(&domain.as_str());
        let named = if known { domains.iter().map(|d| (*d).to_string()).collect() } else { vec![domain.clone()] };
        for name in named {
            if !all.contains(&name) {
                all.push(name);
            }
        }
    }
    all
}

/// The trust domain of a principal `domain/ns/…/sa/…` and the rest; none where the principal has no domain.
fn split(principal: &str) -> Option<(&str, &str)> {
    let at = principal.find('/')?;
    (principal.matches('/').count() == 4 && &principal[..at] != "*").then(|| principal.split_at(at))
}

/// Whether one of two names is the other one, or a pattern for it.
fn is_like(a: &str, b: &str) -> bool {
    let covers = |pattern: &str, name: &str| {
        pattern.strip_suffix('*').is_some_and(|start| name.starts_with(start))
            || pattern.strip_prefix('*').is_some_and(|end| name.ends_with(end))
    };
    a == b || b == "*" || covers(a, b) || covers(b, a)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(principal: &str, own: &[&str]) -> Vec<String> {
        principals(&[principal.to_string()], own)
    }

    #[test]
    fn own_principals_are_repeated_and_foreign_ones_stay() {
        let own = ["new", "old"];
        assert_eq!(of("old/ns/a/sa/b", &own), ["new/ns/a/sa/b", "old/ns/a/sa/b"]);
        assert_eq!(of("cluster.local/ns/a/sa/b", &own), ["new/ns/a/sa/b", "old/ns/a/sa/b"]);
        for same in ["far/ns/a/sa/b", "*/ns/a/sa/b", "*", "sa/b", "old/ns/a/sa/b/c"] {
            assert_eq!(of(same, &own), [same]);
        }
        assert_eq!(of("*-td/ns/a/sa/b", &["new-td", "old-td"]), ["*-td/ns/a/sa/b"]);
        assert_eq!(of("*ew/ns/a/sa/b", &own), ["*ew/ns/a/sa/b", "old/ns/a/sa/b"]);
        assert_eq!(of("cluster.local/ns/a/sa/b", &[]), ["cluster.local/ns/a/sa/b"]);
    }

    #[test]
    fn a_trust_domain_of_the_mesh_stands_for_all() {
        let written = ["old", "far", "new"].map(String::from);
        assert_eq!(domains(&written, &["new", "old"]), ["new", "old", "far"]);
    }
}
