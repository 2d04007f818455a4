"""Delta Lake tables in a folder, written without a JVM."""
