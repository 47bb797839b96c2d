"""The HTTP listener: /metrics, /livez and /readyz, with limits on connections."""
