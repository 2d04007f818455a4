"""The protocol of Delta tables: their logs, checkpoints and the records beside them."""
