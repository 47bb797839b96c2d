"""Tiered storage: closed segments in an object store, and reads from there."""
