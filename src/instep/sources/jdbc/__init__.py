"""Any database with a JDBC driver: the driver's own words for its catalog, Spark's reader for its rows."""
