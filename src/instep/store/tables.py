"""The control database's tables. The migrations build the same ones; a test compares both."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Dialect,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    text,
)


class Utc(TypeDecorator[datetime]):
    """An aware datetime, kept in UTC; databases without time zones store the UTC wall clock."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("the store keeps aware datetimes only")
        value = value.astimezone(UTC)
        return value.replace(tzinfo=None) if dialect.name == "sqlite" else value

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)


def _connection(primary_key: bool = False) -> Column[str]:
    return Column("connection", String, ForeignKey("connections.name"), primary_key=primary_key, nullable=False)


def _text(name: str) -> Column[str]:
    return Column(name, Text, nullable=False, server_default="")


def _count(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False, server_default="0")


def _table_ref(primary_key: bool = False) -> tuple[Column[Any], Column[Any]]:
    """(schema, name) of a table; an empty name means the whole connection."""
    return (
        Column("table_schema", String, primary_key=primary_key, nullable=False),
        Column("table_name", String, primary_key=primary_key, nullable=False),
    )


def _number() -> Column[int]:
    """A number that is never used again; SQLite counts only INTEGER keys."""
    return Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True)


def _one_while(name: str, table: Table, columns: tuple[str, ...], condition: str) -> None:
    """At most one row per `columns` while `condition` holds."""
    Index(
        name,
        *(table.c[column] for column in columns),
        unique=True,
        sqlite_where=text(condition),
        postgresql_where=text(condition),
    )


connections = Table(
    "connections",
    metadata,
    Column("name", String, primary_key=True),
    _text("source"),
    _text("destination"),
    _text("namespace"),
    _text("config_hash"),
    _count("fence"),
    Column("created", Utc, nullable=False),
    Column("updated", Utc, nullable=False),
)

accepted = Table(
    "accepted",
    metadata,
    _connection(primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("fingerprint", String, nullable=False),
    Column("catalog", JSON, nullable=False),
    Column("at", Utc, nullable=False),
    _text("who"),
    _text("why"),
    Column("major", Integer, nullable=False, server_default="1"),
    Column("minor", Integer, nullable=False, server_default="0"),
    _text("run"),
)

schemas = Table(
    "schemas",
    metadata,
    _connection(primary_key=True),
    Column("side", String, primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("fingerprint", String, nullable=False),
    Column("catalog", JSON, nullable=False),
    Column("at", Utc, nullable=False),
    _text("run"),
    Column("accepted", Integer, nullable=False, server_default="0"),
    _text("identity"),
)

reviews = Table(
    "reviews",
    metadata,
    Column("id", String, primary_key=True),
    _connection(),
    Column("key", String, nullable=False),
    Column("kind", String, nullable=False),
    *_table_ref(),
    _text("column_name"),
    _text("summary"),
    Column("change", JSON, nullable=False),
    Column("action", String, nullable=False),
    _text("rule"),
    _text("why"),
    Column("modifiers", JSON, nullable=False),
    Column("status", String, nullable=False),
    _text("source_fingerprint"),
    Column("first_seen", Utc, nullable=False),
    Column("last_seen", Utc, nullable=False),
    Column("seen", Integer, nullable=False),
    _text("decided_by"),
    Column("decided_at", Utc),
    _text("tables_fingerprint"),
    Column("snoozed_until", Utc),
    Column("evidence", JSON, nullable=False, server_default="{}"),
)
Index(None, reviews.c.connection, reviews.c.key)
_one_while("uq_reviews_standing", reviews, ("connection", "key"), "status IN ('open', 'approved', 'rejected')")

plans = Table(
    "plans",
    metadata,
    _number(),
    Column("id", String, nullable=False),
    _connection(),
    Column("at", Utc, nullable=False),
    _text("base_accepted"),
    _text("base_destination"),
    Column("plan", JSON, nullable=False),
    _text("run"),
    _text("who"),
    Column("status", String, nullable=False),
    Column("version", Integer, nullable=False, server_default="0"),
    Column("changes", JSON, nullable=False),
    Column("ended", Utc),
    _text("error"),
    sqlite_autoincrement=True,
)
Index("uq_plans_id", plans.c.id, unique=True)
Index(None, plans.c.connection, plans.c.number)

steps = Table(
    "steps",
    metadata,
    Column("plan", String, primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("step", String, nullable=False),
    _text("at_table"),
    _text("kind"),
    _text("text"),
    Column("status", String, nullable=False),
    _count("rows"),
    Column("started", Utc),
    Column("ended", Utc),
    _text("error"),
)

runs = Table(
    "runs",
    metadata,
    Column("id", String, primary_key=True),
    _connection(),
    Column("kind", String, nullable=False),
    Column("status", String, nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("started", Utc, nullable=False),
    Column("ended", Utc),
    _text("error"),
    Column("detail", JSON, nullable=False),
    _text("who"),
    _text("host"),
    _count("pid"),
    _text("pid_started"),
    Column("lease_until", Utc, nullable=False),
)
Index("uq_runs_fence", runs.c.connection, runs.c.fence, unique=True)
_one_while("uq_runs_running", runs, ("connection",), "status = 'running'")

table_runs = Table(
    "table_runs",
    metadata,
    Column("run", String, ForeignKey("runs.id"), primary_key=True),
    *_table_ref(primary_key=True),
    Column("status", String, nullable=False),
    _text("mode"),
    _count("read"),
    _count("inserted"),
    _count("updated"),
    _count("deleted"),
    _count("misfits"),
    _count("bytes"),
    Column("seconds", Float, nullable=False, server_default="0"),
    _text("error"),
)

cursors = Table(
    "cursors",
    metadata,
    _connection(primary_key=True),
    *_table_ref(primary_key=True),
    Column("cursor", Text, nullable=False),
    _text("run"),
    Column("fence", BigInteger, nullable=False),
    Column("at", Utc, nullable=False),
)

events = Table(
    "events",
    metadata,
    _number(),
    Column("connection", String, nullable=False),
    Column("at", Utc, nullable=False),
    Column("type", String, nullable=False),
    Column("data", JSON, nullable=False),
    sqlite_autoincrement=True,
)
Index(None, events.c.connection, events.c.number)

discoveries = Table(
    "discoveries",
    metadata,
    _connection(primary_key=True),
    Column("fingerprint", String, nullable=False),
    _text("identity"),
    Column("proves_absence", Boolean, nullable=False),
    Column("stats", JSON, nullable=False),
    Column("denied", JSON, nullable=False),
    Column("catalog", JSON, nullable=False),
    Column("at", Utc, nullable=False),
)

detections = Table(
    "detections",
    metadata,
    _number(),
    _connection(),
    Column("run", String, nullable=False),
    Column("at", Utc, nullable=False),
    Column("fingerprint", String, nullable=False),
    Column("counts", JSON, nullable=False),
    sqlite_autoincrement=True,
)
Index("uq_detections_run", detections.c.connection, detections.c.run, detections.c.fingerprint, unique=True)

mappings = Table(
    "mappings",
    metadata,
    _number(),
    _connection(),
    *_table_ref(),
    _text("old"),
    _text("new"),
    _text("who"),
    Column("at", Utc, nullable=False),
    Column("ended", Utc),
    sqlite_autoincrement=True,
)

undos = Table(
    "undos",
    metadata,
    _number(),
    _connection(),
    Column("changes", JSON, nullable=False),
    Column("drops", JSON, nullable=False),
    _text("who"),
    Column("at", Utc, nullable=False),
    Column("ended", Utc),
    sqlite_autoincrement=True,
)

copies = Table(
    "copies",
    metadata,
    _number(),
    _connection(),
    *_table_ref(),
    Column("namespace", String, nullable=False),
    Column("name", String, nullable=False),
    _text("why"),
    _count("rows"),
    Column("at", Utc, nullable=False),
    Column("ended", Utc),
    sqlite_autoincrement=True,
)

table_choices = Table(
    "table_choices",
    metadata,
    _connection(primary_key=True),
    *_table_ref(primary_key=True),
    Column("what", String, primary_key=True),
    Column("value", JSON, nullable=False),
    _text("start"),
    _text("who"),
    Column("at", Utc, nullable=False),
)

pauses = Table(
    "pauses",
    metadata,
    _number(),
    _connection(),
    *_table_ref(),
    Column("reason", Text, nullable=False),
    _text("change"),
    Column("since", Utc, nullable=False),
    Column("ended", Utc),
    _text("ended_by"),
    sqlite_autoincrement=True,
)
_one_while("uq_pauses_active", pauses, ("connection", "table_schema", "table_name", "change"), "ended IS NULL")

backfills = Table(
    "backfills",
    metadata,
    _number(),
    _connection(),
    *_table_ref(),
    _text("column_name"),
    Column("scope", String, nullable=False),
    _text("why"),
    _text("change"),
    Column("status", String, nullable=False),
    _text("run"),
    Column("wanted_at", Utc, nullable=False),
    Column("ended", Utc),
    sqlite_autoincrement=True,
)
_one_while(
    "uq_backfills_wanted",
    backfills,
    ("connection", "table_schema", "table_name", "column_name", "scope"),
    "status IN ('wanted', 'running')",
)

switches = Table(
    "switches",
    metadata,
    _connection(primary_key=True),
    *_table_ref(primary_key=True),
    Column("column_name", String, primary_key=True),
    Column("enabled", Boolean),
    Column("hashed", Boolean),
    Column("table_id", Text),
    Column("column_id", Text),
    _text("identity"),
    _text("who"),
    Column("at", Utc, nullable=False),
)

watermarks = Table(
    "watermarks",
    metadata,
    _connection(primary_key=True),
    Column("table_key", String, primary_key=True),
    Column("column_key", String, primary_key=True),
    Column("cursor", Text, nullable=False),
    Column("at", Utc, nullable=False),
)

loaded_columns = Table(
    "loaded_columns",
    metadata,
    _connection(primary_key=True),
    *_table_ref(primary_key=True),
    Column("columns", JSON, nullable=False),
    Column("at", Utc, nullable=False),
    Column("filter", JSON),
)

source_files = Table(
    "source_files",
    metadata,
    Column("source", String, primary_key=True),
    Column("number", BigInteger, primary_key=True),
    Column("path", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("version", String, nullable=False),
    Column("options", String, nullable=False),
    Column("shape", JSON, nullable=False),
    Column("at", Utc, nullable=False),
)

destination_names = Table(
    "destination_names",
    metadata,
    Column("destination", String, primary_key=True),
    Column("namespace", String, primary_key=True),
    Column("name", String, primary_key=True),
    _connection(),
    *_table_ref(),
    Column("at", Utc, nullable=False),
)
Index("uq_destination_names_table", destination_names.c.connection, destination_names.c.table_schema,
      destination_names.c.table_name, unique=True)  # fmt: skip

old_names = Table(
    "old_names",
    metadata,
    _number(),
    _connection(),
    Column("namespace", String, nullable=False),
    Column("name", String, nullable=False),
    Column("column_name", String, nullable=False),
    Column("old", String, nullable=False),
    Column("until", Utc, nullable=False),
    Column("at", Utc, nullable=False),
    _text("batch"),
    _text("shown"),
    _text("trouble"),
    sqlite_autoincrement=True,
)
Index("ix_old_names_connection", old_names.c.connection)

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
    _text("why"),
    _text("who"),
    Column("created", Utc, nullable=False),
    Column("updated", Utc, nullable=False),
    _count("fence"),
    _text("host"),
    _count("pid"),
    _text("pid_started"),
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
    _text("why"),
    Column("attempt", Integer, nullable=False, server_default="0"),
    Column("before", JSON, nullable=False),
    _text("run"),
    _text("error"),
    Column("findings", JSON, nullable=False),
    _text("accepted"),
    _text("who"),
    Column("started", Utc),
    Column("ended", Utc),
)
Index(None, rollout_members.c.connection)
