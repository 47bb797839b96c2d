"""`trioka cluster` and `doctor`: local clusters, health, reassignment."""
