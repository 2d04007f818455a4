"""What a plan tells people: the same where a command makes it and where a worker does."""
