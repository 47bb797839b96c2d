"""Connections to other nodes: a peer with its request queue, its link, and the socket below it."""
