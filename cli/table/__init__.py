"""`trioka table`: tiered topics as tables."""
