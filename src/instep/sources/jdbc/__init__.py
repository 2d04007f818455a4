"""Any database with a JDBC driver: the driver's metadata for its catalog, Spark's reader for its rows."""
