"""Whether the set-up of a connection works, by its last test or run; digests of requests have a salt."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from instep.store.columns import Utc

revision = "0023"
down_revision = "0021"


def upgrade() -> None:
    op.create_table(
        "setups",
        sa.Column("connection", sa.String(), nullable=False),
        sa.Column("error", sa.Text(), nullable=False, server_default=""),
        sa.Column("at", Utc(), nullable=False),
        sa.PrimaryKeyConstraint("connection", name="pk_setups"),
    )
    op.execute("DELETE FROM idempotency")  # kept for a day, and made without a salt


def downgrade() -> None:
    op.execute("DELETE FROM idempotency")
    op.drop_table("setups")
