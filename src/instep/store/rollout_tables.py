"""The tables of rollouts and their connections."""

from __future__ import annotations

from sqlalchemy import JSON, Column, ForeignKey, Index, Integer, String, Table

from instep.store.columns import Utc, count_column, error_column, metadata, text_column

rollouts = Table(
    "rollouts",
    metadata,
    Column("id", String, primary_key=True),
    Column("what", JSON, nullable=False),
    Column("members", JSON, nullable=False),
    Column("sizes", JSON, nullable=False),
    Column("gates", JSON, nullable=False),
    Column("status", String, nullable=False),
    Column("wave", Integer, nullable=False, server_default="0"),
    Column("waves", Integer, nullable=False, server_default="0"),
    text_column("why"),
    text_column("who"),
    Column("created", Utc, nullable=False),
    Column("updated", Utc, nullable=False),
    count_column("fence"),
    text_column("host"),
    count_column("pid"),
    text_column("pid_started"),
    Column("lease_until", Utc),
)
Index(None, rollouts.c.created)

rollout_members = Table(
    "rollout_members",
    metadata,
    Column("rollout", String, ForeignKey("rollouts.id"), primary_key=True),
    Column("connection", String, primary_key=True),
    Column("wave", Integer, nullable=False),
    Column("status", String, nullable=False),
    Column("fit", String, nullable=False),
    text_column("why"),
    Column("attempt", Integer, nullable=False, server_default="0"),
    Column("before", JSON, nullable=False),
    text_column("run"),
    error_column(),
    Column("findings", JSON, nullable=False),
    text_column("accepted"),
    text_column("who"),
    Column("started", Utc),
    Column("ended", Utc),
)
Index(None, rollout_members.c.connection)
