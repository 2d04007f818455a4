"""What reads the lake: models and views as SQL, and what changes of its tables do to them. The only room that imports
sqlglot (the extra `lineage`)."""
