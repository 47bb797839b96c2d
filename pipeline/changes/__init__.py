"""Change data: rows that insert, update and delete rows of a table."""
