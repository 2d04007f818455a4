"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from instep.store.columns import Utc

revision = "0001"
down_revision = None


def _connections() -> None:
    op.create_table(
        "connections",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("source", sa.Text(), server_default="", nullable=False),
        sa.Column("destination", sa.Text(), server_default="", nullable=False),
        sa.Column("namespace", sa.Text(), server_default="", nullable=False),
        sa.Column("config_hash", sa.Text(), server_default="", nullable=False),
        sa.Column("fence", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("created", Utc(), nullable=False),
        sa.Column("updated", Utc(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_connections"),
    )


def _events() -> None:
    op.create_table(
        "events",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("connection", sa.String(), nullable=False),
        sa.Column("at", Utc(), nullable=False),
        sa.Column("type", sa.String(), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_events"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_events_connection_number", "events", ["connection", "number"], unique=False)


def _steps() -> None:
    op.create_table(
        "steps",
        sa.Column("plan", sa.String(), nullable=False),
        sa.Column("step", sa.String(), nullable=False),
        sa.Column("run", sa.Text(), server_default="", nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("started", Utc(), nullable=False),
        sa.Column("ended", Utc(), nullable=True),
        sa.PrimaryKeyConstraint("plan", "step", name="pk_steps"),
    )


def _accepted() -> None:
    op.create_table(
        "accepted",
        sa.Column("connection", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("fingerprint", sa.String(), nullable=False),
        sa.Column("catalog", sa.JSON(), nullable=False),
        sa.Column("at", Utc(), nullable=False),
        sa.Column("who", sa.Text(), server_default="", nullable=False),
        sa.Column("why", sa.Text(), server_default="", nullable=False),
        sa.ForeignKeyConstraint(["connection"], ["connections.name"], name="fk_accepted_connection"),
        sa.PrimaryKeyConstraint("connection", "version", name="pk_accepted"),
    )


def _backfills() -> None:
    op.create_table(
        "backfills",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("connection", sa.String(), nullable=False),
        sa.Column("table_schema", sa.String(), nullable=False),
        sa.Column("table_name", sa.String(), nullable=False),
        sa.Column("column_name", sa.Text(), server_default="", nullable=False),
        sa.Column("scope", sa.String(), nullable=False),
        sa.Column("why", sa.Text(), server_default="", nullable=False),
        sa.Column("change", sa.Text(), server_default="", nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("run", sa.Text(), server_default="", nullable=False),
        sa.Column("wanted_at", Utc(), nullable=False),
        sa.Column("ended", Utc(), nullable=True),
        sa.ForeignKeyConstraint(["connection"], ["connections.name"], name="fk_backfills_connection"),
        sa.PrimaryKeyConstraint("number", name="pk_backfills"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "uq_backfills_wanted",
        "backfills",
        ["connection", "table_schema", "table_name", "column_name", "scope"],
        unique=True,
        sqlite_where=sa.text("status IN ('wanted', 'running')"),
        postgresql_where=sa.text("status IN ('wanted', 'running')"),
    )


def _cursors() -> None:
    op.create_table(
        "cursors",
        sa.Column("connection", sa.String(), nullable=False),
        sa.Column("table_schema", sa.String(), nullable=False),
        sa.Column("table_name", sa.String(), nullable=False),
        sa.Column("cursor", sa.Text(), nullable=False),
        sa.Column("run", sa.Text(), server_default="", nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("at", Utc(), nullable=False),
        sa.ForeignKeyConstraint(["connection"], ["connections.name"], name="fk_cursors_connection"),
        sa.PrimaryKeyConstraint("connection", "table_schema", "table_name", name="pk_cursors"),
    )


def _destination_names() -> None:
    op.create_table(
        "destination_names",
        sa.Column("destination", sa.String(), nullable=False),
        sa.Column("namespace", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("connection", sa.String(), nullable=False),
        sa.Column("table_schema", sa.String(), nullable=False),
        sa.Column("table_name", sa.String(), nullable=False),
        sa.Column("at", Utc(), nullable=False),
        sa.ForeignKeyConstraint(["connection"], ["connections.name"], name="fk_destination_names_connection"),
        sa.PrimaryKeyConstraint("destination", "namespace", "name", name="pk_destination_names"),
    )
    op.create_index(
        "uq_destination_names_table", "destination_names", ["connection", "table_schema", "table_name"], unique=True
    )


def _detections() -> None:
    op.create_table(
        "detections",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("connection", sa.String(), nullable=False),
        sa.Column("run", sa.String(), nullable=False),
        sa.Column("at", Utc(), nullable=False),
        sa.Column("fingerprint", sa.String(), nullable=False),
        sa.Column("counts", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["connection"], ["connections.name"], name="fk_detections_connection"),
        sa.PrimaryKeyConstraint("number", name="pk_detections"),
        sqlite_autoincrement=True,
    )
    op.create_index("uq_detections_run", "detections", ["connection", "run", "fingerprint"], unique=True)


def _discoveries() -> None:
    op.create_table(
        "discoveries",
        sa.Column("connection", sa.String(), nullable=False),
        sa.Column("fingerprint", sa.String(), nullable=False),
        sa.Column("identity", sa.Text(), server_default="", nullable=False),
        sa.Column("proves_absence", sa.Boolean(), nullable=False),
        sa.Column("stats", sa.JSON(), nullable=False),
        sa.Column("denied", sa.JSON(), nullable=False),
        sa.Column("catalog", sa.JSON(), nullable=False),
        sa.Column("at", Utc(), nullable=False),
        sa.ForeignKeyConstraint(["connection"], ["connections.name"], name="fk_discoveries_connection"),
        sa.PrimaryKeyConstraint("connection", name="pk_discoveries"),
    )


def _pauses() -> None:
    op.create_table(
        "pauses",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("connection", sa.String(), nullable=False),
        sa.Column("table_schema", sa.String(), nullable=False),
        sa.Column("table_name", sa.String(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("change", sa.Text(), server_default="", nullable=False),
        sa.Column("since", Utc(), nullable=False),
        sa.Column("ended", Utc(), nullable=True),
        sa.Column("ended_by", sa.Text(), server_default="", nullable=False),
        sa.ForeignKeyConstraint(["connection"], ["connections.name"], name="fk_pauses_connection"),
        sa.PrimaryKeyConstraint("number", name="pk_pauses"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "uq_pauses_active",
        "pauses",
        ["connection", "table_schema", "table_name", "change"],
        unique=True,
        sqlite_where=sa.text("ended IS NULL"),
        postgresql_where=sa.text("ended IS NULL"),
    )


def _plans() -> None:
    op.create_table(
        "plans",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("connection", sa.String(), nullable=False),
        sa.Column("at", Utc(), nullable=False),
        sa.Column("base_accepted", sa.Text(), server_default="", nullable=False),
        sa.Column("base_destination", sa.Text(), server_default="", nullable=False),
        sa.Column("plan", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["connection"], ["connections.name"], name="fk_plans_connection"),
        sa.PrimaryKeyConstraint("id", name="pk_plans"),
    )
    op.create_index("ix_plans_connection_at", "plans", ["connection", "at"], unique=False)


def _reviews() -> None:
    op.create_table(
        "reviews",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("connection", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("table_schema", sa.String(), nullable=False),
        sa.Column("table_name", sa.String(), nullable=False),
        sa.Column("column_name", sa.Text(), server_default="", nullable=False),
        sa.Column("summary", sa.Text(), server_default="", nullable=False),
        sa.Column("change", sa.JSON(), nullable=False),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("rule", sa.Text(), server_default="", nullable=False),
        sa.Column("why", sa.Text(), server_default="", nullable=False),
        sa.Column("modifiers", sa.JSON(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("source_fingerprint", sa.Text(), server_default="", nullable=False),
        sa.Column("first_seen", Utc(), nullable=False),
        sa.Column("last_seen", Utc(), nullable=False),
        sa.Column("seen", sa.Integer(), nullable=False),
        sa.Column("decided_by", sa.Text(), server_default="", nullable=False),
        sa.Column("decided_at", Utc(), nullable=True),
        sa.ForeignKeyConstraint(["connection"], ["connections.name"], name="fk_reviews_connection"),
        sa.PrimaryKeyConstraint("id", name="pk_reviews"),
    )
    op.create_index("ix_reviews_connection_key", "reviews", ["connection", "key"], unique=False)
    op.create_index(
        "uq_reviews_standing",
        "reviews",
        ["connection", "key"],
        unique=True,
        sqlite_where=sa.text("status IN ('open', 'approved', 'rejected')"),
        postgresql_where=sa.text("status IN ('open', 'approved', 'rejected')"),
    )


def _runs() -> None:
    op.create_table(
        "runs",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("connection", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("started", Utc(), nullable=False),
        sa.Column("ended", Utc(), nullable=True),
        sa.Column("error", sa.Text(), server_default="", nullable=False),
        sa.Column("detail", sa.JSON(), nullable=False),
        sa.Column("who", sa.Text(), server_default="", nullable=False),
        sa.Column("host", sa.Text(), server_default="", nullable=False),
        sa.Column("pid", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("pid_started", sa.Text(), server_default="", nullable=False),
        sa.Column("lease_until", Utc(), nullable=False),
        sa.ForeignKeyConstraint(["connection"], ["connections.name"], name="fk_runs_connection"),
        sa.PrimaryKeyConstraint("id", name="pk_runs"),
    )
    op.create_index("uq_runs_fence", "runs", ["connection", "fence"], unique=True)
    op.create_index(
        "uq_runs_running",
        "runs",
        ["connection"],
        unique=True,
        sqlite_where=sa.text("status = 'running'"),
        postgresql_where=sa.text("status = 'running'"),
    )


def _table_runs() -> None:
    op.create_table(
        "table_runs",
        sa.Column("run", sa.String(), nullable=False),
        sa.Column("table_schema", sa.String(), nullable=False),
        sa.Column("table_name", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("mode", sa.Text(), server_default="", nullable=False),
        sa.Column("read", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("inserted", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("updated", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("deleted", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("misfits", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("bytes", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("seconds", sa.Float(), server_default="0", nullable=False),
        sa.Column("error", sa.Text(), server_default="", nullable=False),
        sa.ForeignKeyConstraint(["run"], ["runs.id"], name="fk_table_runs_run"),
        sa.PrimaryKeyConstraint("run", "table_schema", "table_name", name="pk_table_runs"),
    )


TABLES = (
    _connections,
    _events,
    _steps,
    _accepted,
    _backfills,
    _cursors,
    _destination_names,
    _detections,
    _discoveries,
    _pauses,
    _plans,
    _reviews,
    _runs,
    _table_runs,
)


def upgrade() -> None:
    for create in TABLES:
        create()


def downgrade() -> None:
    for create in reversed(TABLES):
        op.drop_table(create.__name__.removeprefix("_"))
