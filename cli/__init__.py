"""The command line: a client of Kafka's protocol, and the one place that starts a broker (`node/server.py`)."""
