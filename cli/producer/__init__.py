"""The producer of `trioka produce`: rules in `state.py`, batches in `batches.py`, sockets in `sender.py`."""
