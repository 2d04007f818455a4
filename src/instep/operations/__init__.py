"""Everything that people and programs can ask for: one operation a file, with its request and its specification."""
