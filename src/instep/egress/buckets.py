"""The object stores that an address of an API key's may name."""

from __future__ import annotations

BUCKETS = ("s3", "s3a", "s3n", "gs", "abfs", "abfss")
"""The schemes of their URIs: what has another one, or none, could be a file of this machine."""
