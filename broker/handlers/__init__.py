"""Request handlers, one module per API. `broker/api.py` lists the APIs and defines the contract of a handler."""
