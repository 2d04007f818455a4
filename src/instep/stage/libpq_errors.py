"""Errors of PostgreSQL that repeat a value of a row, without it."""

from __future__ import annotations

import re

from instep.redaction import without_value

_UNKNOWN = re.compile(r"PGRES_FATAL_ERROR|^ERROR: ")
"""A statement failed while it sent rows: Arrow passes no SQLSTATE on."""


def without_row_value(text: str, sqlstate: str) -> str:
    """Return the line of an error without the value, if it is one of data (class 22), or may be."""
    return without_value(text) if sqlstate.startswith("22") or (not sqlstate and _UNKNOWN.search(text)) else text
