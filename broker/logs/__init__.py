"""Logging: formatters (text and JSON), levels by logger, and the report of a log recovery."""
