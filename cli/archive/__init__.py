"""`trioka archive`: tiered topics read from the object store, without a broker."""
