"""Spark's own Kafka connector as a client: the steps, and the two brokers that they are taken against."""
