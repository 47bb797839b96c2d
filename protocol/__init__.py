"""The Kafka protocol: messages, records, frames and codecs."""
