"""A node's life in the cluster: formatting, identity, log directories, registration, heartbeats, shutdown."""
