"""The tables of what was counted, and of the store's own id."""

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

installation = Table("installation", metadata, Column("id", String, primary_key=True))
