"""Reads the segments of tiered topics from the object store, without a broker."""
