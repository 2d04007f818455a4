"""The write-ahead log of PostgreSQL: `mode: cdc`."""
