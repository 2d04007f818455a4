"""Errors of PostgreSQL that repeat a value of a row, without it."""

from __future__ import annotations

import re

from instep.redaction import without_value

_UNKNOWN = re.compile(r"PGRES_FATAL_ERROR|^ERROR: ")
"""A statement failed while it sent rows: Arrow passes no SQLSTATE on."""
_RAISED = "P0001"
"""The SQLSTATE of RAISE EXCEPTION in PL/pgSQL."""


def without_row_value(text: str, sqlstate: str) -> str:
    """Return the line of an error without the value, if it is one of data (class 22), one that a trigger or a function
    has raised, or may be such."""
    may_have = sqlstate.startswith("22") or sqlstate == _RAISED or (not sqlstate and _UNKNOWN.search(text))
    return without_value(text) if may_have else text
