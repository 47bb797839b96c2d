"""What a pipeline reads: topics, their ids, start offsets."""
