"""Runs what waits in the queue: one process that claims and watches, and one for each lane that works."""
