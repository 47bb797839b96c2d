"""Avro, Protobuf and JSON Schema: what a schema's text means, and which schemas read what others wrote.

`parsed.py` says what each format offers, `parse.py` picks the format, `avro.py`, `protobuf.py` and `json_schema.py` are
the formats. Their libraries are in the extra `trioka[gateway]`.
"""
