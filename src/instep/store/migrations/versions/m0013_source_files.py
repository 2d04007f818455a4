"""The files that a source of files has shown, and what is in each."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from instep.store.columns import Utc

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.create_table(
        "source_files",
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("options", sa.String(), nullable=False),
        sa.Column("shape", sa.JSON(), nullable=False),
        sa.Column("at", Utc(), nullable=False),
        sa.PrimaryKeyConstraint("source", "number", name="pk_source_files"),
    )


def downgrade() -> None:
    op.drop_table("source_files")
