"""Produce and Fetch requests that repeat the last one of their connection, served without decoding."""
