"""The metadata quorum: the driver of the Raft state machine, its files, its RPCs, and voter changes."""
