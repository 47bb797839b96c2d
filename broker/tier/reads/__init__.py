"""Reads of segments from the object store."""
