"""The resident engine: a process of the user's that has everything imported, and runs the commands of one project."""
