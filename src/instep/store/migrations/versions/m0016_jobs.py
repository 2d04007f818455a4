"""Jobs that wait for workers, the workers, schedules, and how scheduled detectors stand."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from instep.store.columns import Utc

revision = "0016"
down_revision = "0015"
_ALONE = sa.text("status = 'running' AND connection <> '' AND kind <> 'test_connection'")
_QUEUED = sa.text("status = 'queued'")


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=False, server_default="")


def upgrade() -> None:
    _jobs()
    op.create_table(
        "workers",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("pid", sa.BigInteger(), nullable=False),
        _text("pid_started"),
        sa.Column("lanes", sa.Integer(), nullable=False),
        sa.Column("started", Utc(), nullable=False),
        sa.Column("seen", Utc(), nullable=False),
        sa.Column("stopping", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_workers"),
    )
    op.create_table(
        "schedules",
        sa.Column("connection", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("spec", sa.String(), nullable=False),
        sa.Column("timezone", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False, server_default=""),
        sa.Column("options", sa.JSON(), nullable=False),
        sa.Column("next_due", Utc()),
        sa.Column("last_due", Utc()),
        sa.Column("source", sa.String(), nullable=False, server_default=""),
        sa.PrimaryKeyConstraint("connection", "kind", name="pk_schedules"),
    )
    op.create_index("ix_schedules_next_due", "schedules", ["next_due"])
    op.create_table(
        "detectors",
        sa.Column("connection", sa.String(), nullable=False),
        _text("disabled"),
        sa.Column("disabled_at", Utc()),
        sa.Column("error_at", Utc()),
        sa.PrimaryKeyConstraint("connection", name="pk_detectors"),
    )


def _jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("connection", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("options", sa.JSON(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("key", sa.String(), nullable=False, server_default=""),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("due", Utc(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("attempts", sa.Integer(), nullable=False, server_default="1"),
        *(_text(name) for name in ("why", "who", "error")),
        sa.Column("created", Utc(), nullable=False),
        *(sa.Column(name, Utc()) for name in ("started", "ended", "lease_until")),
        sa.Column("owner", sa.String(), nullable=False, server_default=""),
        sa.Column("fence", sa.BigInteger(), nullable=False, server_default="0"),
        *(_text(name) for name in ("stop", "run")),
        sa.Column("result", sa.JSON(), nullable=False, server_default="{}"),
        sa.Column("source", sa.String(), nullable=False, server_default=""),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
    )
    op.create_index("ix_jobs_queue", "jobs", ["status", "priority", "due"])
    op.create_index("ix_jobs_connection", "jobs", ["connection", "created"])
    op.create_index("ix_jobs_created", "jobs", ["created"])
    _one_while("uq_jobs_running", ["connection"], _ALONE)
    _one_while("uq_jobs_queued", ["connection", "kind", "key"], _QUEUED)


def _one_while(name: str, columns: list[str], condition: sa.TextClause) -> None:
    op.create_index(name, "jobs", columns, unique=True, sqlite_where=condition, postgresql_where=condition)


def downgrade() -> None:
    for table in ("detectors", "schedules", "workers", "jobs"):
        op.drop_table(table)
