//! File descriptors: every connection and every open file uses one.

/// Descriptors reserved for files, pages and other connections than those of proxies: a quarter, within these bounds.
const KEPT: (usize, usize) = (32, 1024);

/// Raises the soft limit of descriptors to the hard one, as Go programs do. Returns the limit; `None` if the system reports
/// none.
#[must_use]
pub fn raise_descriptor_limit() -> Option<usize> {
    match rlimit::increase_nofile_limit(u64::MAX) {
        Ok(limit) => usize::try_from(limit).ok(),
        Err(error) => {
            tracing::warn!(%error, "the limit of file descriptors cannot be raised");
            let (soft, _) = rlimit::getrlimit(rlimit::Resource::NOFILE).ok()?;
            usize::try_from(soft).ok()
        }
    }
}

/// The number of these descriptors that proxy connections may use.
#[must_use]
pub fn descriptors_for_connections(limit: usize) -> usize {
    limit.saturating_sub((limit / 4).clamp(KEPT.0, KEPT.1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn something_is_left_for_files() {
        assert_eq!([256, 1024, 20_000, 8].map(descriptors_for_connections), [192, 768, 18_976, 1]);
    }

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        let raised = raise_descriptor_limit();
        let (soft, hard) = rlimit::getrlimit(rlimit::Resource::NOFILE).unwrap();
        assert_eq!(soft, hard);
        assert_eq!(raised, usize::try_from(soft).ok());
    }
}
