"""How far connectors got, what they have shown, and their operations that wait."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from instep.store.columns import Utc

revision = "0024"
down_revision = "0023"


def upgrade() -> None:
    op.create_table(
        "connector_states",
        sa.Column("connection", sa.String(), nullable=False),
        sa.Column("state", sa.Text(), server_default="", nullable=False),
        sa.Column("shape", sa.JSON(), nullable=False),
        sa.Column("run", sa.Text(), server_default="", nullable=False),
        sa.Column("fence", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("at", Utc(), nullable=False),
        sa.ForeignKeyConstraint(["connection"], ["connections.name"], name="fk_connector_states_connection"),
        sa.PrimaryKeyConstraint("connection", name="pk_connector_states"),
    )
    op.create_table(
        "connector_held",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("connection", sa.String(), nullable=False),
        sa.Column("table_schema", sa.String(), nullable=False),
        sa.Column("table_name", sa.String(), nullable=False),
        sa.Column("place", sa.String(), nullable=False),
        sa.Column("operations", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("key", sa.Text(), server_default="", nullable=False),
        sa.Column("at", Utc(), nullable=False),
        sa.ForeignKeyConstraint(["connection"], ["connections.name"], name="fk_connector_held_connection"),
        sa.PrimaryKeyConstraint("number", name="pk_connector_held"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_connector_held_connection", "connector_held", ["connection"])


def downgrade() -> None:
    op.drop_table("connector_held")
    op.drop_table("connector_states")
