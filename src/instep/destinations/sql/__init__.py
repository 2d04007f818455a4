"""Parts that destinations in databases share: the record of a table, its next columns, its merge."""
