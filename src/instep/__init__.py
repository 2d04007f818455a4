"""Replicates tables into a lakehouse on Spark and manages their schema changes."""

__version__ = "0.1.0"
