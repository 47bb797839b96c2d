"""The metadata image: what the replayed records say of topics, brokers, configurations and access."""
