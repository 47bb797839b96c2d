"""REST: the version 2 dialect that Confluent's REST Proxy, Karapace, pandaproxy and the Strimzi bridge share.

`http.py` is the ASGI application and has the table of endpoints, `openapi.py` describes it, `formats.py` and
`schemas.py` convert keys and values, `produce.py`, `metadata.py`, `consumers.py` and `read.py` do the work.
"""
