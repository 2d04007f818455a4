"""The store has a name of its own, which what is made at the servers of sources is called by."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"


def upgrade() -> None:
    op.create_table(
        "installation",
        sa.Column("id", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_installation"),
    )


def downgrade() -> None:
    op.drop_table("installation")
