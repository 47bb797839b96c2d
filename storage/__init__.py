"""Storage: segment files, indexes, recovery, retention and compaction."""
