"""A delivery that is tried again by hand has its tries anew: how many came before is kept with it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"


def upgrade() -> None:
    op.add_column("deliveries", sa.Column("spent", sa.Integer(), server_default="0", nullable=False))


def downgrade() -> None:
    op.drop_column("deliveries", "spent")
