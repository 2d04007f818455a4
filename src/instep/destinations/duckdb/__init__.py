"""A DuckDB file as a destination: one transaction a table for schema, rows, cursor and fence."""
