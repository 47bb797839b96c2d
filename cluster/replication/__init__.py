"""A leader and its followers, without I/O."""
