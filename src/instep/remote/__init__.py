"""The client of a server: the same commands over its API."""
