"""Readers of a destination: models and views as SQL, and how changes of its tables affect them. Only this room imports
sqlglot (the extra `lineage`)."""
