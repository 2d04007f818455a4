"""What destinations share that are databases with transactions: the record of a table, its next columns, its merge."""
