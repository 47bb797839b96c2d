"""Disks for tests: in memory, failing, slow, losing power, damaged."""
