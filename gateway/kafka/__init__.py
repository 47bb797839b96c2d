"""A client of Kafka's protocol on asyncio: connections, metadata, requests to the right broker.

It has what reading and administration need. Records are written by librdkafka (gateway/producing), which retries and
keeps their order; Kafka batches that a caller made itself are written by a Produce request of this client.
"""
