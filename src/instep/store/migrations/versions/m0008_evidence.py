"""What makes a suspected rename likely."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.add_column("reviews", sa.Column("evidence", sa.JSON(), server_default="{}", nullable=False))


def downgrade() -> None:
    op.drop_column("reviews", "evidence")
