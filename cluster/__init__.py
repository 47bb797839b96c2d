"""The cluster: metadata, Raft and replication rules as pure state machines."""
