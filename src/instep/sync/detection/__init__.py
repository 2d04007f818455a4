"""What changed at the source, what policy says about it, and what waits for a person."""
