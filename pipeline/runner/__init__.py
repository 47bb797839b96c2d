"""A declared pipeline on Structured Streaming: session, stages, checkpoints, signals."""
