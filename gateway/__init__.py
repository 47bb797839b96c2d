"""The gateway: gRPC, REST and a schema registry in front of any Kafka. A Kafka client, not a part of the broker."""
