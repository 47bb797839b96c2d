"""`trioka groups` and `lag`."""
