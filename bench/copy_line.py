"""Reads tables as binary COPY and throws the bytes away: python copy_line.py URI SCHEMA TABLE..."""

from __future__ import annotations

import sys

import psycopg
from psycopg import sql

uri, schema, *tables = sys.argv[1:]
with psycopg.connect(uri) as connection:
    for table in tables:
        query = sql.SQL("copy {0} to stdout (format binary)").format(sql.Identifier(schema, table))
        with connection.cursor().copy(query) as blocks:
            size = sum(len(block) for block in blocks)
        print(table, size, "bytes")
