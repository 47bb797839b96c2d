"""Keys and values of the records that Kafka keeps for itself."""
