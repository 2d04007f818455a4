"""The table of what was counted."""

from __future__ import annotations

from sqlalchemy import Column, Float, String, Table

from instep.store.columns import metadata

totals = Table(
    "totals",
    metadata,
    Column("name", String, primary_key=True),
    Column("labels", String, primary_key=True),
    Column("value", Float, nullable=False),
)
