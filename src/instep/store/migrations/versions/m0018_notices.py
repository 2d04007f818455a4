"""Notices: what is to be told to which channel, its deliveries with every attempt, and channels that are closed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from instep.store.columns import Utc

revision = "0018"
down_revision = "0017"


def _number() -> sa.Column[int]:
    number = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    return sa.Column("number", number, autoincrement=True, nullable=False)


def upgrade() -> None:
    _outbox()
    _deliveries()
    op.create_table(
        "delivery_attempts",
        sa.Column("delivery", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("at", Utc(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("code", sa.Integer(), server_default="0", nullable=False),
        sa.Column("error", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("delivery", "attempt", name="pk_delivery_attempts"),
    )
    op.create_table(
        "closed_channels",
        sa.Column("channel", sa.String(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("at", Utc(), nullable=False),
        sa.PrimaryKeyConstraint("channel", name="pk_closed_channels"),
    )


def _outbox() -> None:
    op.create_table(
        "outbox",
        _number(),
        sa.Column("event", sa.BigInteger(), nullable=False),
        sa.Column("channel", sa.String(), nullable=False),
        sa.Column("connection", sa.String(), nullable=False),
        sa.Column("batch", sa.String(), nullable=False),
        sa.Column("notice", sa.String(), nullable=False),
        sa.Column("severity", sa.String(), nullable=False),
        sa.Column("urgent", sa.Boolean(), nullable=False),
        sa.Column("due", Utc(), nullable=False),
        sa.Column("at", Utc(), nullable=False),
        sa.Column("delivery", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("number", name="pk_outbox"),
        sqlite_autoincrement=True,
    )
    op.create_index("uq_outbox_event", "outbox", ["channel", "event"], unique=True)
    op.create_index("ix_outbox_delivery", "outbox", ["delivery", "due"])


def _deliveries() -> None:
    op.create_table(
        "deliveries",
        _number(),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("channel", sa.String(), nullable=False),
        sa.Column("batch", sa.String(), nullable=False),
        sa.Column("urgent", sa.Boolean(), nullable=False),
        sa.Column("notices", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("attempt", sa.Integer(), server_default="0", nullable=False),
        sa.Column("due", Utc(), nullable=False),
        sa.Column("lease_until", Utc(), nullable=True),
        sa.Column("created", Utc(), nullable=False),
        sa.Column("ended", Utc(), nullable=True),
        sa.Column("error", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_deliveries"),
        sqlite_autoincrement=True,
    )
    op.create_index("uq_deliveries_id", "deliveries", ["id"], unique=True)
    op.create_index("ix_deliveries_status", "deliveries", ["status", "due"])
    op.create_index("ix_deliveries_batch", "deliveries", ["channel", "batch", "created"])


def downgrade() -> None:
    for table in ("closed_channels", "delivery_attempts", "deliveries", "outbox"):
        op.drop_table(table)
