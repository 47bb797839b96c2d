"""Values of records: Avro, Protobuf, schema ids and decimals."""
