"""States of connectors are sealed where there are master keys."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
_COLUMNS = ("key", "wrapped")


def upgrade() -> None:
    for name in _COLUMNS:
        op.add_column("connector_states", sa.Column(name, sa.Text(), server_default="", nullable=False))


def downgrade() -> None:
    """What is sealed cannot be read without these: such a connector begins from the start."""
    op.execute("UPDATE connector_states SET state = '' WHERE key <> ''")
    for name in reversed(_COLUMNS):
        op.drop_column("connector_states", name)
