"""Replicas on this broker: applying metadata changes, fetching from leaders, ISR proposals, healing and scrubbing."""
