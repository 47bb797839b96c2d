"""Reads: which range of which file, and offsets by time."""
