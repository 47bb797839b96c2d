"""The cluster room: how brokers agree."""
