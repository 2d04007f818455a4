"""Changes that are being taken back."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from instep.store.columns import Utc

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.create_table(
        "undos",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("connection", sa.String(), nullable=False),
        sa.Column("changes", sa.JSON(), nullable=False),
        sa.Column("drops", sa.JSON(), nullable=False),
        sa.Column("who", sa.Text(), server_default="", nullable=False),
        sa.Column("at", Utc(), nullable=False),
        sa.Column("ended", Utc(), nullable=True),
        sa.ForeignKeyConstraint(["connection"], ["connections.name"], name="fk_undos_connection"),
        sa.PrimaryKeyConstraint("number", name="pk_undos"),
        sqlite_autoincrement=True,
    )


def downgrade() -> None:
    op.drop_table("undos")
