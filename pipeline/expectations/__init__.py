"""Rules about rows: they warn, drop or fail, and each is counted."""
