"""Tables of an Iceberg lake."""
