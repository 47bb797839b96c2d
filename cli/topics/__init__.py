"""`trioka topics`, `produce` and `consume`."""
