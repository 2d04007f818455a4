"""The tables of notices, in the same metadata as the others."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Float, Index, Integer, String, Table, Text

from instep.store.tables.columns import Utc, error_column, metadata, number_column

outbox = Table(
    "outbox",
    metadata,
    number_column(),
    Column("event", BigInteger, nullable=False),
    Column("channel", String, nullable=False),
    Column("connection", String, nullable=False),
    Column("batch", String, nullable=False),
    Column("notice", String, nullable=False),
    Column("severity", String, nullable=False),
    Column("urgent", Boolean, nullable=False),
    Column("due", Utc, nullable=False),
    Column("at", Utc, nullable=False),
    Column("delivery", BigInteger),
    sqlite_autoincrement=True,
)
Index("uq_outbox_event", outbox.c.channel, outbox.c.event, unique=True)
Index("ix_outbox_delivery", outbox.c.delivery, outbox.c.due)

deliveries = Table(
    "deliveries",
    metadata,
    number_column(),
    Column("id", String, nullable=False),
    Column("channel", String, nullable=False),
    Column("batch", String, nullable=False),
    Column("urgent", Boolean, nullable=False),
    Column("notices", Integer, nullable=False),
    Column("status", String, nullable=False),
    Column("attempt", Integer, nullable=False, server_default="0"),
    Column("due", Utc, nullable=False),
    Column("lease_until", Utc),
    Column("created", Utc, nullable=False),
    Column("ended", Utc),
    error_column(),
    Column("spent", Integer, nullable=False, server_default="0"),
    sqlite_autoincrement=True,
)
Index("uq_deliveries_id", deliveries.c.id, unique=True)
Index("ix_deliveries_status", deliveries.c.status, deliveries.c.due)
Index("ix_deliveries_batch", deliveries.c.channel, deliveries.c.batch, deliveries.c.created)

delivery_attempts = Table(
    "delivery_attempts",
    metadata,
    Column("delivery", BigInteger, primary_key=True, autoincrement=False),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("at", Utc, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("code", Integer, nullable=False, server_default="0"),
    error_column(),
)

closed_channels = Table(
    "closed_channels",
    metadata,
    Column("channel", String, primary_key=True),
    Column("why", Text, nullable=False),
    Column("at", Utc, nullable=False),
)


totals = Table(
    "totals",
    metadata,
    Column("name", String, primary_key=True),
    Column("labels", String, primary_key=True),
    Column("value", Float, nullable=False),
)

installation = Table("installation", metadata, Column("id", String, primary_key=True))
