"""`trioka tier`: what tiered storage has in the object store, according to its records and to the store."""
