"""Raft, and the files of `__cluster_metadata-0`: log records, snapshots, the quorum's state."""
