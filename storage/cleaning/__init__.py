"""Deletion and compaction of old records."""
