"""Running flows: streaming queries, materialized views, and what they deliver to."""
