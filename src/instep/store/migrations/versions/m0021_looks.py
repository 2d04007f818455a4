"""Who looked at a source last."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from instep.store.columns import Utc

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    op.create_table(
        "looks",
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("settings", sa.String(), nullable=False),
        sa.Column("connection", sa.String(), nullable=False),
        sa.Column("fingerprint", sa.String(), nullable=False),
        sa.Column("begun", Utc(), nullable=False),
        sa.PrimaryKeyConstraint("source", name="pk_looks"),
    )


def downgrade() -> None:
    op.drop_table("looks")
