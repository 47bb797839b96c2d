"""Tiered storage without I/O: segments in the object store, and what to do with them next."""
