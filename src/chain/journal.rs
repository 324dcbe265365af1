//! Files of the embedded databases that nodes of several families use.

/// Files of goleveldb and pebbledb that are no part of a commit: their own logs of what they do, locks, and catalogues and
/// tables, which compaction writes from time to time on another thread. A commit is what goes into the journal, `NNNNNN.log`.
pub(super) const NOT_JOURNAL: [&str; 9] =
    ["LOG", "LOG.old", "LOCK", "CURRENT*", "MANIFEST-*", "*.ldb", "*.sst", "OPTIONS-*", "marker.*"];
