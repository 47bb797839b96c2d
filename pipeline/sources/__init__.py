"""The topics that a pipeline reads, their ids, and start offsets."""
