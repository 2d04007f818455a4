"""Rollouts: one patch over many connections, wave by wave, and what became of each connection."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from instep.store.columns import Utc

revision = "0019"
down_revision = "0018"


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=False, server_default="")


def upgrade() -> None:
    op.create_table(
        "rollouts",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("what", sa.JSON(), nullable=False),
        sa.Column("members", sa.JSON(), nullable=False),
        sa.Column("sizes", sa.JSON(), nullable=False),
        sa.Column("gates", sa.JSON(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("wave", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("waves", sa.Integer(), nullable=False, server_default="0"),
        _text("why"),
        _text("who"),
        sa.Column("created", Utc(), nullable=False),
        sa.Column("updated", Utc(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False, server_default="0"),
        _text("host"),
        sa.Column("pid", sa.BigInteger(), nullable=False, server_default="0"),
        _text("pid_started"),
        sa.Column("lease_until", Utc(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_rollouts"),
    )
    op.create_index("ix_rollouts_created", "rollouts", ["created"])
    op.create_table(
        "rollout_members",
        sa.Column("rollout", sa.String(), nullable=False),
        sa.Column("connection", sa.String(), nullable=False),
        sa.Column("wave", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("fit", sa.String(), nullable=False),
        _text("why"),
        sa.Column("attempt", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("before", sa.JSON(), nullable=False),
        _text("run"),
        _text("error"),
        sa.Column("findings", sa.JSON(), nullable=False),
        _text("accepted"),
        _text("who"),
        sa.Column("started", Utc(), nullable=True),
        sa.Column("ended", Utc(), nullable=True),
        sa.ForeignKeyConstraint(["rollout"], ["rollouts.id"], name="fk_rollout_members_rollout"),
        sa.PrimaryKeyConstraint("rollout", "connection", name="pk_rollout_members"),
    )
    op.create_index("ix_rollout_members_connection", "rollout_members", ["connection"])


def downgrade() -> None:
    op.drop_table("rollout_members")
    op.drop_table("rollouts")
