"""The rows of one sync: which are read, how, into which commit."""
