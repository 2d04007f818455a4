"""Files in a folder or an object store as a source: Parquet, CSV and JSON lines; a folder of them is a table."""
