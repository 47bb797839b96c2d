"""TLS settings: key stores, trust stores, names in certificates."""
