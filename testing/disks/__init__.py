"""Simulated disks: in memory, failing, slow, corrupted, or after a power loss."""
