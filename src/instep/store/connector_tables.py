"""What is known of the runs of connectors: how far each got, what it has shown, and operations that wait."""

from __future__ import annotations

from sqlalchemy import JSON, Column, Index, String, Table

from instep.store.columns import (
    Utc,
    connection_column,
    count_column,
    metadata,
    number_column,
    table_ref_columns,
    text_column,
)

connector_states = Table(
    "connector_states",
    metadata,
    connection_column(primary_key=True),
    text_column("state"),
    text_column("key"),
    text_column("wrapped"),
    Column("shape", JSON, nullable=False),
    text_column("run"),
    count_column("fence"),
    Column("at", Utc, nullable=False),
)

connector_held = Table(
    "connector_held",
    metadata,
    number_column(),
    connection_column(),
    *table_ref_columns(),
    Column("place", String, nullable=False),
    count_column("operations"),
    text_column("key"),
    Column("at", Utc, nullable=False),
    sqlite_autoincrement=True,
)
Index("ix_connector_held_connection", connector_held.c.connection)
