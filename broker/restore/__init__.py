"""Builds the data directory of a new cluster from what the old one left in the object store."""
