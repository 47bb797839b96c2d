"""Fetch sessions (KIP-227): of a leader, and of a follower."""
