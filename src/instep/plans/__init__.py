"""Plans as people read them, the same where a command makes one and where a worker does."""
