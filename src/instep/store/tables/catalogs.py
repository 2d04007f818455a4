"""The control database's tables of connections, schemas, changes and runs; the others are beside it. The migrations
build the same ones; a test compares both."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from sqlalchemy import JSON, BigInteger, Boolean, Column, Float, ForeignKey, Index, Integer, String, Table, Text

from instep.store.tables.columns import (
    Redacted,
    Utc,
    connection_column,
    count_column,
    error_column,
    flag_column,
    metadata,
    number_column,
    one_while,
    some_while,
    table_ref_columns,
    text_column,
)

connections = Table(
    "connections",
    metadata,
    Column("name", String, primary_key=True),
    text_column("destination"),
    text_column("namespace"),
    count_column("fence"),
    Column("created", Utc, nullable=False),
    Column("updated", Utc, nullable=False),
    flag_column("configured"),
)

accepted = Table(
    "accepted",
    metadata,
    connection_column(primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("fingerprint", String, nullable=False),
    Column("catalog", JSON, nullable=False),
    Column("at", Utc, nullable=False),
    text_column("who"),
    text_column("why"),
    Column("major", Integer, nullable=False, server_default="1"),
    Column("minor", Integer, nullable=False, server_default="0"),
    text_column("run"),
)

schemas = Table(
    "schemas",
    metadata,
    connection_column(primary_key=True),
    Column("side", String, primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("fingerprint", String, nullable=False),
    Column("catalog", JSON, nullable=False),
    Column("at", Utc, nullable=False),
    text_column("run"),
    Column("accepted", Integer, nullable=False, server_default="0"),
    text_column("identity"),
)


def change_digest(row: Mapping[str, Any]) -> str:
    """Return a digest that the same change has on any connection: of its kind, the name of its object and its words."""
    named = (row[name] for name in ("kind", "table_schema", "table_name"))
    parts = [*named, row.get("column_name", ""), row.get("summary", "")]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


reviews = Table(
    "reviews",
    metadata,
    Column("id", String, primary_key=True),
    connection_column(),
    Column("key", String, nullable=False),
    Column("kind", String, nullable=False),
    *table_ref_columns(),
    text_column("column_name"),
    text_column("summary"),
    Column("change", JSON, nullable=False),
    Column("action", String, nullable=False),
    text_column("rule"),
    text_column("why"),
    Column("modifiers", JSON, nullable=False),
    Column("status", String, nullable=False),
    text_column("source_fingerprint"),
    Column("first_seen", Utc, nullable=False),
    Column("last_seen", Utc, nullable=False),
    Column("seen", Integer, nullable=False),
    text_column("decided_by"),
    Column("decided_at", Utc),
    text_column("tables_fingerprint"),
    Column("snoozed_until", Utc),
    Column("evidence", JSON, nullable=False, server_default="{}"),
    text_column("assignee"),
    Column("likeness", String, nullable=False, default=lambda made: change_digest(made.get_current_parameters())),
)
Index(None, reviews.c.connection, reviews.c.key)
Index("ix_reviews_object", reviews.c.table_name, reviews.c.column_name, reviews.c.kind)
one_while("uq_reviews_standing", reviews, ("connection", "key"), "status IN ('open', 'approved', 'rejected')")
some_while("ix_reviews_likeness", reviews, ("likeness", "connection"), "status IN ('open', 'approved', 'rejected')")
UNSETTLED = "other.status IN ('open', 'approved', 'rejected')"
"""As a database must read it to take the index of these, of the table as `other`: bound values would not do."""

comments = Table(
    "comments",
    metadata,
    number_column(),
    connection_column(),
    Column("change", String, nullable=False),
    text_column("who"),
    Column("at", Utc, nullable=False),
    Column("text", Redacted, nullable=False),
    sqlite_autoincrement=True,
)
Index(None, comments.c.change, comments.c.number)

plans = Table(
    "plans",
    metadata,
    number_column(),
    Column("id", String, nullable=False),
    connection_column(),
    Column("at", Utc, nullable=False),
    text_column("base_accepted"),
    text_column("base_destination"),
    Column("plan", JSON, nullable=False),
    text_column("run"),
    text_column("who"),
    Column("status", String, nullable=False),
    Column("version", Integer, nullable=False, server_default="0"),
    Column("changes", JSON, nullable=False),
    Column("ended", Utc),
    error_column(),
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
    text_column("at_table"),
    text_column("kind"),
    text_column("text"),
    Column("status", String, nullable=False),
    count_column("rows"),
    Column("started", Utc),
    Column("ended", Utc),
    error_column(),
)

runs = Table(
    "runs",
    metadata,
    Column("id", String, primary_key=True),
    connection_column(),
    Column("kind", String, nullable=False),
    Column("status", String, nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("started", Utc, nullable=False),
    Column("ended", Utc),
    error_column(),
    Column("detail", JSON, nullable=False),
    text_column("who"),
    text_column("host"),
    count_column("pid"),
    text_column("pid_started"),
    Column("lease_until", Utc, nullable=False),
)
Index("uq_runs_fence", runs.c.connection, runs.c.fence, unique=True)
one_while("uq_runs_running", runs, ("connection",), "status = 'running'")

table_runs = Table(
    "table_runs",
    metadata,
    Column("run", String, ForeignKey("runs.id"), primary_key=True),
    *table_ref_columns(primary_key=True),
    Column("status", String, nullable=False),
    text_column("mode"),
    count_column("read"),
    count_column("inserted"),
    count_column("updated"),
    count_column("deleted"),
    count_column("invalid_values"),
    count_column("bytes"),
    Column("seconds", Float, nullable=False, server_default="0"),
    error_column(),
)

QUARANTINED = "table_runs.invalid_values > 0"
some_while("ix_table_runs_held", table_runs, ("run",), "invalid_values > 0")

fresh_tables = Table(
    "fresh_tables",
    metadata,
    connection_column(primary_key=True),
    *table_ref_columns(primary_key=True),
    Column("as_of", Utc, nullable=False),
    Column("late", Utc),
)

cursors = Table(
    "cursors",
    metadata,
    connection_column(primary_key=True),
    *table_ref_columns(primary_key=True),
    Column("cursor", Text, nullable=False),
    text_column("proof"),
    text_column("run"),
    Column("fence", BigInteger, nullable=False),
    Column("at", Utc, nullable=False),
)

events = Table(
    "events",
    metadata,
    number_column(),
    Column("connection", String, nullable=False),
    Column("at", Utc, nullable=False),
    Column("type", String, nullable=False),
    Column("data", JSON, nullable=False),
    sqlite_autoincrement=True,
)
Index(None, events.c.connection, events.c.number)
MAINTAINED = "events.type = 'table.maintained'"
"""As a database must read it to take the index of these: a bound value would not do."""
some_while("ix_events_maintained", events, ("type", "connection", "number"), "type = 'table.maintained'")

discoveries = Table(
    "discoveries",
    metadata,
    connection_column(primary_key=True),
    Column("fingerprint", String, nullable=False),
    text_column("identity"),
    Column("proves_absence", Boolean, nullable=False),
    Column("stats", JSON, nullable=False),
    Column("denied", JSON, nullable=False),
    Column("catalog", JSON, nullable=False),
    Column("at", Utc, nullable=False),
)

mappings = Table(
    "mappings",
    metadata,
    number_column(),
    connection_column(),
    *table_ref_columns(),
    text_column("old"),
    text_column("new"),
    text_column("who"),
    Column("at", Utc, nullable=False),
    Column("ended", Utc),
    sqlite_autoincrement=True,
)

undos = Table(
    "undos",
    metadata,
    number_column(),
    connection_column(),
    Column("changes", JSON, nullable=False),
    Column("drops", JSON, nullable=False),
    text_column("who"),
    Column("at", Utc, nullable=False),
    Column("ended", Utc),
    sqlite_autoincrement=True,
)

copies = Table(
    "copies",
    metadata,
    number_column(),
    connection_column(),
    *table_ref_columns(),
    Column("namespace", String, nullable=False),
    Column("name", String, nullable=False),
    text_column("why"),
    count_column("rows"),
    Column("at", Utc, nullable=False),
    Column("ended", Utc),
    sqlite_autoincrement=True,
)

table_choices = Table(
    "table_choices",
    metadata,
    connection_column(primary_key=True),
    *table_ref_columns(primary_key=True),
    Column("what", String, primary_key=True),
    Column("value", JSON, nullable=False),
    text_column("start"),
    text_column("who"),
    Column("at", Utc, nullable=False),
)

pauses = Table(
    "pauses",
    metadata,
    number_column(),
    connection_column(),
    *table_ref_columns(),
    Column("reason", Redacted, nullable=False),
    text_column("change"),
    Column("since", Utc, nullable=False),
    Column("ended", Utc),
    text_column("ended_by"),
    sqlite_autoincrement=True,
)
one_while("uq_pauses_active", pauses, ("connection", "table_schema", "table_name", "change"), "ended IS NULL")

backfills = Table(
    "backfills",
    metadata,
    number_column(),
    connection_column(),
    *table_ref_columns(),
    text_column("column_name"),
    Column("scope", String, nullable=False),
    text_column("why"),
    text_column("change"),
    Column("status", String, nullable=False),
    text_column("run"),
    Column("requested_at", Utc, nullable=False),
    Column("ended", Utc),
    sqlite_autoincrement=True,
)
one_while(
    "uq_backfills_requested",
    backfills,
    ("connection", "table_schema", "table_name", "column_name", "scope"),
    "status IN ('requested', 'running')",
)

switches = Table(
    "switches",
    metadata,
    connection_column(primary_key=True),
    *table_ref_columns(primary_key=True),
    Column("column_name", String, primary_key=True),
    Column("enabled", Boolean),
    Column("hashed", Boolean),
    Column("table_id", Text),
    Column("column_id", Text),
    text_column("identity"),
    text_column("who"),
    Column("at", Utc, nullable=False),
    flag_column("listed_off"),
)

watermarks = Table(
    "watermarks",
    metadata,
    connection_column(primary_key=True),
    Column("table_key", String, primary_key=True),
    Column("column_key", String, primary_key=True),
    Column("cursor", Text, nullable=False),
    Column("at", Utc, nullable=False),
)

loaded_columns = Table(
    "loaded_columns",
    metadata,
    connection_column(primary_key=True),
    *table_ref_columns(primary_key=True),
    Column("columns", JSON, nullable=False),
    Column("at", Utc, nullable=False),
    Column("filter", JSON),
)

quarantine_counts = Table(
    "quarantine_counts",
    metadata,
    connection_column(primary_key=True),
    Column("place", Text, primary_key=True),
    Column("files", String, nullable=False),
    count_column("waiting"),
    Column("at", Utc, nullable=False),
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
    connection_column(),
    *table_ref_columns(),
    Column("at", Utc, nullable=False),
)
Index(
    "uq_destination_names_table",
    destination_names.c.connection,
    destination_names.c.table_schema,
    destination_names.c.table_name,
    unique=True,
)

old_names = Table(
    "old_names",
    metadata,
    number_column(),
    connection_column(),
    Column("namespace", String, nullable=False),
    Column("name", String, nullable=False),
    Column("column_name", String, nullable=False),
    Column("old", String, nullable=False),
    Column("until", Utc, nullable=False),
    Column("at", Utc, nullable=False),
    text_column("batch"),
    text_column("shown"),
    text_column("trouble"),
    sqlite_autoincrement=True,
)
Index("ix_old_names_connection", old_names.c.connection)


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

connector_versions = Table(
    "connector_versions",
    metadata,
    number_column(),
    connection_column(),
    Column("source", String, nullable=False),
    Column("before", String, nullable=False),
    Column("after", String, nullable=False),
    text_column("state"),
    text_column("key"),
    text_column("wrapped"),
    text_column("who"),
    Column("at", Utc, nullable=False),
    sqlite_autoincrement=True,
)
Index("ix_connector_versions_connection", connector_versions.c.connection)

open_fields = Table(
    "open_fields",
    metadata,
    Column("source", String, primary_key=True),
    Column("program", String, nullable=False),
    Column("fields", JSON, nullable=False),
)

connector_pending = Table(
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
Index("ix_connector_held_connection", connector_pending.c.connection)
