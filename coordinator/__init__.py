"""Group and transaction coordinators. Pure: `broker/coordinators/runtime.py` does the I/O."""
