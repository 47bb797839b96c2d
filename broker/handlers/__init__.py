"""One file per API: what the broker answers. `broker/api.py` says which APIs are served, and what a handler is."""
