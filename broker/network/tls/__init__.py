"""TLS of the network: handshakes in a worker thread, records in the network task."""
