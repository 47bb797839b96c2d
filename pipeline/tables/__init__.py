"""The outputs of a pipeline: sinks, their commits, and the files below them."""
