"""What a pipeline writes: sinks, their commits, and the files below them."""
