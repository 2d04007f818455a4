"""What a policy has listed off when it was found stays off; a schema config may be made before the first capture."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0027"


def upgrade() -> None:
    op.add_column("switches", sa.Column("listed_off", sa.Boolean(), server_default=sa.false(), nullable=False))
    op.add_column("connections", sa.Column("configured", sa.Boolean(), server_default=sa.false(), nullable=False))


def downgrade() -> None:
    op.drop_column("connections", "configured")
    op.execute("DELETE FROM switches WHERE enabled IS NULL AND hashed IS NULL")
    op.drop_column("switches", "listed_off")
