"""Migration scripts: their statements as edits of a schema. Nothing is executed."""
