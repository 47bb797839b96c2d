"""The schema registry: Confluent's HTTP interface over Confluent's records in the topic `_schemas`.

`records.py` reads and writes the records, `state.py` replays them, `register.py` and `changes.py` decide which records
a request adds, `formats/` knows Avro, Protobuf and JSON Schema. All of these are pure. `store.py` reads and writes the
topic, `service.py` joins both, `http.py` is the ASGI application, `part.py` adds it to the gateway's process.
"""
