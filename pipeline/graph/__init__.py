"""A graph of tables, views, sinks and flows, defined with Spark's own decorators or SQL."""
