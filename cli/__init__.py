"""The command line: a client of the wire, and the one place that starts a broker (`node/server.py`)."""
