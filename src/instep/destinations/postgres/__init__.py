"""A PostgreSQL database as a destination: one transaction a table for schema, rows, cursor and fence."""
