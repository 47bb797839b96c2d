"""Limits of connections and requests: quotas, throttled channels."""
