"""Detection: changes at the source, what policy decides about them, and what waits for a person."""
