"""Plans on record, with what became of each step. Nothing wrote to the tables that were there before."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from instep.store.columns import Utc

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    _drop("ix_plans_connection_at")
    op.create_table(
        "plans",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        *_facts(),
        sa.Column("run", sa.Text(), server_default="", nullable=False),
        sa.Column("who", sa.Text(), server_default="", nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), server_default="0", nullable=False),
        sa.Column("changes", sa.JSON(), nullable=False),
        sa.Column("ended", Utc(), nullable=True),
        sa.Column("error", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_plans"),
        sqlite_autoincrement=True,
    )
    op.create_index("uq_plans_id", "plans", ["id"], unique=True)
    op.create_index("ix_plans_connection_number", "plans", ["connection", "number"], unique=False)
    op.create_table(
        "steps",
        sa.Column("plan", sa.String(), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("step", sa.String(), nullable=False),
        sa.Column("at_table", sa.Text(), server_default="", nullable=False),
        sa.Column("kind", sa.Text(), server_default="", nullable=False),
        sa.Column("text", sa.Text(), server_default="", nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("rows", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("started", Utc(), nullable=True),
        sa.Column("ended", Utc(), nullable=True),
        sa.Column("error", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("plan", "number", name="pk_steps"),
    )


def downgrade() -> None:
    op.drop_index("uq_plans_id", "plans")
    _drop("ix_plans_connection_number")
    op.create_table("plans", *_facts(), sa.PrimaryKeyConstraint("id", name="pk_plans"))
    op.create_index("ix_plans_connection_at", "plans", ["connection", "at"], unique=False)
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


def _drop(index: str) -> None:
    op.drop_table("steps")
    op.drop_index(index, "plans")
    op.drop_table("plans")


def _facts() -> tuple[sa.Column[object] | sa.ForeignKeyConstraint, ...]:
    """What both forms of `plans` have."""
    return (
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("connection", sa.String(), nullable=False),
        sa.Column("at", Utc(), nullable=False),
        sa.Column("base_accepted", sa.Text(), server_default="", nullable=False),
        sa.Column("base_destination", sa.Text(), server_default="", nullable=False),
        sa.Column("plan", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["connection"], ["connections.name"], name="fk_plans_connection"),
    )
