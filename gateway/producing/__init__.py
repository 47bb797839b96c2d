"""Writing records: by librdkafka, in transactions for named producers, and whole batches by Produce requests."""
