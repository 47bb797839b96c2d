"""Connections to other nodes: a peer with its request queue, its connection, and the socket below it."""
