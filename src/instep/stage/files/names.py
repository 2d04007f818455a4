"""File names of one chunk's attempt: unique, and never made from a table's name. What columns are called in files."""

from __future__ import annotations

import re
import uuid

import pyarrow as pa

STORED = "instep.stored"
"""The name that a column has in files, where it is not its own, in the metadata of an Arrow field."""
LOCAL_FILES = "instep.local-files"
"""The property of a file system that opens no file of this machine if it is "false"."""


def file_name(run: str, chunk: int, attempt: int, part: int) -> str:
    """Return `<run>-<chunk>-<attempt>-<part>-<random>.parquet`."""
    return f"{re.sub(r'[^A-Za-z0-9]+', '-', run)[:64]}-{chunk:05}-{attempt}-{part}-{uuid.uuid4().hex[:12]}.parquet"


def stored_name(field: pa.Field) -> str:
    """Return a column's name in files: formats that know columns by name there keep the first one for ever."""
    name: str = (field.metadata or {}).get(STORED.encode(), field.name.encode()).decode()
    return name


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema with the names that columns have in files."""
    if all(stored_name(f) == f.name for f in schema):
        return schema
    return pa.schema([f.with_name(stored_name(f)) for f in schema])
