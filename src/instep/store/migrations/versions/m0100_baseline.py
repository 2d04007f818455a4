"""All tables of the store as of instep 0.1.0."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0100"
down_revision = None

_TIME = sa.DateTime(timezone=True)
_BY_CHARACTER = sa.String().with_variant(sa.String(collation="C"), "postgresql")
_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_CONNECTION = ("connection", "connections.name")
_TABLES = (
    "connections",
    "destination_names",
    "setups",
    "installation",
    "totals",
    "accepted",
    "schemas",
    "discoveries",
    "detections",
    "looks",
    "detectors",
    "reviews",
    "mappings",
    "undos",
    "pauses",
    "switches",
    "table_choices",
    "runs",
    "table_runs",
    "plans",
    "steps",
    "events",
    "cursors",
    "watermarks",
    "loaded_columns",
    "source_files",
    "backfills",
    "copies",
    "old_names",
    "objects",
    "object_links",
    "secrets",
    "jobs",
    "workers",
    "schedules",
    "api_keys",
    "api_secrets",
    "audit",
    "idempotency",
    "outbox",
    "deliveries",
    "delivery_attempts",
    "closed_channels",
    "rollouts",
    "rollout_members",
    "connector_states",
    "connector_held",
)
"""In the order in which they are created: a table comes after those that it refers to."""

_INDEXES = (
    "CREATE UNIQUE INDEX uq_destination_names_table ON destination_names (connection, table_schema, table_name)",
    "CREATE UNIQUE INDEX uq_detections_run ON detections (connection, run, fingerprint)",
    'CREATE INDEX ix_reviews_connection_key ON reviews (connection, "key")',
    "CREATE INDEX ix_reviews_connection_page ON reviews (connection, first_seen, id)",
    "CREATE INDEX ix_reviews_page ON reviews (first_seen, id)",
    "CREATE INDEX ix_reviews_status_page ON reviews (status, first_seen, id)",
    'CREATE UNIQUE INDEX uq_reviews_standing ON reviews (connection, "key")'
    " WHERE status IN ('open', 'approved', 'rejected')",
    "CREATE UNIQUE INDEX uq_pauses_active ON pauses (connection, table_schema, table_name, change) WHERE ended IS NULL",
    "CREATE INDEX ix_runs_page ON runs (started, id)",
    "CREATE UNIQUE INDEX uq_runs_fence ON runs (connection, fence)",
    "CREATE UNIQUE INDEX uq_runs_running ON runs (connection) WHERE status = 'running'",
    "CREATE INDEX ix_table_runs_held ON table_runs (run) WHERE invalid_values > 0",
    "CREATE INDEX ix_plans_connection_number ON plans (connection, number)",
    "CREATE UNIQUE INDEX uq_plans_id ON plans (id)",
    "CREATE INDEX ix_events_connection_number ON events (connection, number)",
    "CREATE INDEX ix_events_maintained ON events (type, connection, number) WHERE type = 'table.maintained'",
    "CREATE UNIQUE INDEX uq_backfills_wanted ON backfills (connection, table_schema, table_name, column_name, scope)"
    " WHERE status IN ('wanted', 'running')",
    "CREATE INDEX ix_old_names_connection ON old_names (connection)",
    "CREATE UNIQUE INDEX uq_objects_id ON objects (id)",
    "CREATE INDEX ix_object_links_what_value_kind_name ON object_links (what, value, kind, name)",
    'CREATE INDEX ix_secrets_key_id ON secrets ("key", id)',
    "CREATE UNIQUE INDEX uq_secrets_place ON secrets (kind, name, field, version)",
    "CREATE INDEX ix_jobs_connection ON jobs (connection, created)",
    "CREATE INDEX ix_jobs_created ON jobs (created)",
    "CREATE INDEX ix_jobs_queue ON jobs (status, priority, due)",
    "CREATE UNIQUE INDEX uq_jobs_queued ON jobs (connection, kind, \"key\") WHERE status = 'queued'",
    "CREATE UNIQUE INDEX uq_jobs_running ON jobs (connection)"
    " WHERE status = 'running' AND connection <> '' AND kind <> 'test_connection'",
    "CREATE INDEX ix_schedules_next_due ON schedules (next_due)",
    'CREATE INDEX ix_api_secrets_key ON api_secrets ("key")',
    "CREATE INDEX ix_idempotency_at ON idempotency (at)",
    "CREATE INDEX ix_outbox_delivery ON outbox (delivery, due)",
    "CREATE UNIQUE INDEX uq_outbox_event ON outbox (channel, event)",
    "CREATE INDEX ix_deliveries_batch ON deliveries (channel, batch, created)",
    "CREATE INDEX ix_deliveries_status ON deliveries (status, due)",
    "CREATE UNIQUE INDEX uq_deliveries_id ON deliveries (id)",
    "CREATE INDEX ix_rollouts_created ON rollouts (created)",
    "CREATE INDEX ix_rollout_members_connection ON rollout_members (connection)",
    "CREATE INDEX ix_connector_held_connection ON connector_held (connection)",
)


def upgrade() -> None:
    _connections()
    _schemas()
    _changes()
    _runs()
    _rows()
    _objects()
    _queue()
    _api()
    _notices()
    columns = _strings("id") + _json("what", "members", "sizes", "gates") + _strings("status")
    columns += _integers("wave", "waves", default="0") + _texts("why", "who") + _times("created", "updated")
    columns += _counts("fence") + _texts("host") + _counts("pid") + _texts("pid_started")
    columns += _times("lease_until", nullable=True)
    _create("rollouts", columns, key=("id",))

    columns = _strings("rollout", "connection") + _integers("wave") + _strings("status", "fit") + _texts("why")
    columns += _integers("attempt", default="0") + _json("before") + _texts("run", "error") + _json("findings")
    columns += _texts("accepted", "who") + _times("started", "ended", nullable=True)
    _create("rollout_members", columns, key=("rollout", "connection"), refers=("rollout", "rollouts.id"))
    _connectors()
    for statement in _INDEXES:
        op.execute(statement)


def downgrade() -> None:
    for table in reversed(_TABLES):
        op.drop_table(table)


def _connections() -> None:
    columns = _strings("name") + _texts("source", "destination", "namespace", "config_hash") + _counts("fence")
    columns += _times("created", "updated") + _columns(sa.Boolean(), "configured", default=sa.false())
    _create("connections", columns, key=("name",))

    columns = _strings("destination", "namespace", "name", "connection", "table_schema", "table_name")
    columns += _times("at")
    _create("destination_names", columns, key=("destination", "namespace", "name"), refers=_CONNECTION)

    _create("setups", _strings("connection") + _texts("error") + _times("at"), key=("connection",))

    _create("installation", _strings("id"), key=("id",))

    columns = _strings("name", "labels") + _columns(sa.Float(), "value")
    _create("totals", columns, key=("name", "labels"))


def _schemas() -> None:
    columns = _strings("connection") + _integers("version") + _strings("fingerprint") + _json("catalog")
    columns += _times("at") + _texts("who", "why") + _integers("major", default="1")
    columns += _integers("minor", default="0") + _texts("run")
    _create("accepted", columns, key=("connection", "version"), refers=_CONNECTION)

    columns = _strings("connection", "side") + _integers("version") + _strings("fingerprint") + _json("catalog")
    columns += _times("at") + _texts("run") + _integers("accepted", default="0") + _texts("identity")
    _create("schemas", columns, key=("connection", "side", "version"), refers=_CONNECTION)

    columns = _strings("connection", "fingerprint") + _texts("identity")
    columns += _columns(sa.Boolean(), "proves_absence") + _json("stats", "denied", "catalog") + _times("at")
    _create("discoveries", columns, key=("connection",), refers=_CONNECTION)

    columns = _number() + _strings("connection", "run") + _times("at") + _strings("fingerprint")
    columns += _json("counts")
    _create("detections", columns, key=("number",), refers=_CONNECTION)

    columns = _strings("source", "settings", "connection", "fingerprint") + _times("begun")
    _create("looks", columns, key=("source",))

    columns = _strings("connection") + _texts("disabled") + _times("disabled_at", "error_at", nullable=True)
    _create("detectors", columns, key=("connection",))


def _changes() -> None:
    columns = _strings("id", "connection", "key", "kind", "table_schema", "table_name")
    columns += _texts("column_name", "summary") + _json("change") + _strings("action") + _texts("rule", "why")
    columns += _json("modifiers") + _strings("status") + _texts("source_fingerprint")
    columns += _times("first_seen", "last_seen") + _integers("seen") + _texts("decided_by")
    columns += _times("decided_at", nullable=True) + _texts("tables_fingerprint")
    columns += _times("snoozed_until", nullable=True) + _json("evidence", default="{}")
    _create("reviews", columns, key=("id",), refers=_CONNECTION)

    columns = _number() + _strings("connection", "table_schema", "table_name") + _texts("old", "new", "who")
    columns += _times("at") + _times("ended", nullable=True)
    _create("mappings", columns, key=("number",), refers=_CONNECTION)

    columns = _number() + _strings("connection") + _json("changes", "drops") + _texts("who") + _times("at")
    columns += _times("ended", nullable=True)
    _create("undos", columns, key=("number",), refers=_CONNECTION)

    columns = _number() + _strings("connection", "table_schema", "table_name") + _columns(sa.Text(), "reason")
    columns += _texts("change") + _times("since") + _times("ended", nullable=True) + _texts("ended_by")
    _create("pauses", columns, key=("number",), refers=_CONNECTION)

    columns = _strings("connection", "table_schema", "table_name", "column_name")
    columns += _columns(sa.Boolean(), "enabled", "hashed", nullable=True)
    columns += _columns(sa.Text(), "table_id", "column_id", nullable=True) + _texts("identity", "who")
    columns += _times("at") + _columns(sa.Boolean(), "listed_off", default=sa.false())
    _create("switches", columns, key=("connection", "table_schema", "table_name", "column_name"), refers=_CONNECTION)

    columns = _strings("connection", "table_schema", "table_name", "what") + _json("value")
    columns += _texts("start", "who") + _times("at")
    _create("table_choices", columns, key=("connection", "table_schema", "table_name", "what"), refers=_CONNECTION)


def _runs() -> None:
    columns = _strings("id", "connection", "kind", "status") + _columns(sa.BigInteger(), "fence")
    columns += _times("started") + _times("ended", nullable=True) + _texts("error") + _json("detail")
    columns += _texts("who", "host") + _counts("pid") + _texts("pid_started") + _times("lease_until")
    _create("runs", columns, key=("id",), refers=_CONNECTION)

    columns = _strings("run", "table_schema", "table_name", "status") + _texts("mode")
    columns += _counts("read", "inserted", "updated", "deleted", "invalid_values", "bytes")
    columns += _columns(sa.Float(), "seconds", default="0") + _texts("error")
    _create("table_runs", columns, key=("run", "table_schema", "table_name"), refers=("run", "runs.id"))

    columns = _number() + _strings("id", "connection") + _times("at")
    columns += _texts("base_accepted", "base_destination") + _json("plan") + _texts("run", "who")
    columns += _strings("status") + _integers("version", default="0") + _json("changes")
    columns += _times("ended", nullable=True) + _texts("error")
    _create("plans", columns, key=("number",), refers=_CONNECTION)

    columns = _strings("plan") + _integers("number") + _strings("step") + _texts("at_table", "kind", "text")
    columns += _strings("status") + _counts("rows") + _times("started", "ended", nullable=True)
    columns += _texts("error")
    _create("steps", columns, key=("plan", "number"))

    columns = _number() + _strings("connection") + _times("at") + _strings("type") + _json("data")
    _create("events", columns, key=("number",))


def _rows() -> None:
    columns = _strings("connection", "table_schema", "table_name") + _columns(sa.Text(), "cursor")
    columns += _texts("proof", "run") + _columns(sa.BigInteger(), "fence") + _times("at")
    _create("cursors", columns, key=("connection", "table_schema", "table_name"), refers=_CONNECTION)

    columns = _strings("connection", "table_key", "column_key") + _columns(sa.Text(), "cursor") + _times("at")
    _create("watermarks", columns, key=("connection", "table_key", "column_key"), refers=_CONNECTION)

    columns = _strings("connection", "table_schema", "table_name") + _json("columns") + _times("at")
    columns += _json("filter", nullable=True)
    _create("loaded_columns", columns, key=("connection", "table_schema", "table_name"), refers=_CONNECTION)

    columns = _strings("source") + _columns(sa.BigInteger(), "number") + _columns(sa.Text(), "path")
    columns += _columns(sa.BigInteger(), "size") + _strings("version", "options") + _json("shape")
    columns += _times("at")
    _create("source_files", columns, key=("source", "number"))

    columns = _number() + _strings("connection", "table_schema", "table_name") + _texts("column_name")
    columns += _strings("scope") + _texts("why", "change") + _strings("status") + _texts("run")
    columns += _times("wanted_at") + _times("ended", nullable=True)
    _create("backfills", columns, key=("number",), refers=_CONNECTION)

    columns = _number() + _strings("connection", "table_schema", "table_name", "namespace", "name")
    columns += _texts("why") + _counts("rows") + _times("at") + _times("ended", nullable=True)
    _create("copies", columns, key=("number",), refers=_CONNECTION)

    columns = _number() + _strings("connection", "namespace", "name", "column_name", "old")
    columns += _times("until", "at") + _texts("batch", "shown", "trouble")
    _create("old_names", columns, key=("number",), refers=_CONNECTION)


def _objects() -> None:
    columns = _strings("kind") + _columns(_BY_CHARACTER, "name") + _strings("id") + _json("spec")
    columns += _integers("version") + _json("tags") + _times("created") + _texts("created_by")
    columns += _times("updated") + _texts("updated_by")
    _create("objects", columns, key=("kind", "name"))

    columns = _strings("kind") + _columns(_BY_CHARACTER, "name") + _strings("what", "value")
    _create("object_links", columns, key=("kind", "name", "what", "value"))

    columns = _strings("id", "kind", "name") + _columns(sa.Text(), "field") + _integers("version")
    columns += _strings("key") + _columns(sa.Text(), "wrapped", "sealed") + _texts("origin") + _times("at")
    columns += _texts("who")
    _create("secrets", columns, key=("id",))


def _queue() -> None:
    columns = _strings("id", "connection", "kind") + _json("options") + _integers("priority", default="0")
    columns += _strings("key", default="") + _strings("status") + _times("due")
    columns += _integers("attempt", default="0") + _integers("attempts", default="1")
    columns += _texts("why", "who", "error") + _times("created")
    columns += _times("started", "ended", "lease_until", nullable=True) + _strings("owner", default="")
    columns += _counts("fence") + _texts("stop", "run") + _json("result", default="{}")
    columns += _strings("source", default="")
    _create("jobs", columns, key=("id",))

    columns = _strings("id", "host") + _columns(sa.BigInteger(), "pid") + _texts("pid_started")
    columns += _integers("lanes") + _times("started", "seen") + _columns(sa.Boolean(), "stopping")
    _create("workers", columns, key=("id",))

    columns = _strings("connection", "kind", "spec", "timezone") + _strings("key", default="")
    columns += _json("options") + _times("next_due", "last_due", nullable=True) + _strings("source", default="")
    _create("schedules", columns, key=("connection", "kind"))


def _api() -> None:
    columns = _strings("id", "name", "role") + _json("groups") + _times("created") + _texts("created_by")
    columns += _times("ended", nullable=True) + _texts("ended_by")
    _create("api_keys", columns, key=("id",))

    columns = _strings("digest", "key", "prefix") + _times("created")
    columns += _times("expires", "last_used", nullable=True)
    _create("api_secrets", columns, key=("digest",), refers=("key", "api_keys.id"))

    columns = _number(counted=False) + _times("at") + _strings("actor", "action", "target") + _json("detail")
    columns += _strings("previous", "digest")
    _create("audit", columns, key=("number",))

    columns = _strings("caller", "token", "request") + _integers("status") + _json("body") + _times("at")
    _create("idempotency", columns, key=("caller", "token"))


def _notices() -> None:
    columns = _number() + _columns(sa.BigInteger(), "event")
    columns += _strings("channel", "connection", "batch", "notice", "severity")
    columns += _columns(sa.Boolean(), "urgent") + _times("due", "at")
    columns += _columns(sa.BigInteger(), "delivery", nullable=True)
    _create("outbox", columns, key=("number",))

    columns = _number() + _strings("id", "channel", "batch") + _columns(sa.Boolean(), "urgent")
    columns += _integers("notices") + _strings("status") + _integers("attempt", default="0") + _times("due")
    columns += _times("lease_until", nullable=True) + _times("created") + _times("ended", nullable=True)
    columns += _texts("error") + _integers("spent", default="0")
    _create("deliveries", columns, key=("number",))

    columns = _columns(sa.BigInteger(), "delivery") + _integers("attempt") + _times("at")
    columns += _columns(sa.Float(), "seconds") + _integers("code", default="0") + _texts("error")
    _create("delivery_attempts", columns, key=("delivery", "attempt"))

    columns = _strings("channel") + _columns(sa.Text(), "why") + _times("at")
    _create("closed_channels", columns, key=("channel",))


def _connectors() -> None:
    columns = _strings("connection") + _texts("state", "key", "wrapped") + _json("shape") + _texts("run")
    columns += _counts("fence") + _times("at")
    _create("connector_states", columns, key=("connection",), refers=_CONNECTION)

    columns = _number() + _strings("connection", "table_schema", "table_name", "place") + _counts("operations")
    columns += _texts("key") + _times("at")
    _create("connector_held", columns, key=("number",), refers=_CONNECTION)


def _create(
    table: str, columns: list[sa.Column[Any]], key: tuple[str, ...], refers: tuple[str, str] | None = None
) -> None:
    """Create a table with its primary key and, for `refers`, a foreign key from that column to "table.column"."""
    limits: list[sa.Constraint] = [sa.PrimaryKeyConstraint(*key, name=f"pk_{table}")]
    if refers:
        column, target = refers
        limits.append(sa.ForeignKeyConstraint([column], [target], name=f"fk_{table}_{column}"))
    never_again = any(column.autoincrement is True for column in columns)
    op.create_table(table, *columns, *limits, sqlite_autoincrement=never_again)


def _number(*, counted: bool = True) -> list[sa.Column[Any]]:
    """Return a key of numbers: the database counts them and never gives out one twice, unless not `counted`."""
    return [sa.Column("number", _NUMBER, autoincrement=counted, nullable=False)]


def _columns(
    type_: sa.types.TypeEngine[Any], *names: str, nullable: bool = False, default: Any = None
) -> list[sa.Column[Any]]:
    return [sa.Column(name, type_, nullable=nullable, server_default=default) for name in names]


def _strings(*names: str, default: str | None = None) -> list[sa.Column[Any]]:
    return _columns(sa.String(), *names, default=default)


def _texts(*names: str) -> list[sa.Column[Any]]:
    return _columns(sa.Text(), *names, default="")


def _times(*names: str, nullable: bool = False) -> list[sa.Column[Any]]:
    return _columns(_TIME, *names, nullable=nullable)


def _json(*names: str, nullable: bool = False, default: str | None = None) -> list[sa.Column[Any]]:
    return _columns(sa.JSON(), *names, nullable=nullable, default=default)


def _integers(*names: str, default: str | None = None) -> list[sa.Column[Any]]:
    return _columns(sa.Integer(), *names, default=default)


def _counts(*names: str) -> list[sa.Column[Any]]:
    return _columns(sa.BigInteger(), *names, default="0")
