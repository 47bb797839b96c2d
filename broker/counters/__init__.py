"""Counters that requests update: traffic, latency histograms, error codes. `metrics` reads them."""
