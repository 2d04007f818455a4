"""All tables of the store as of instep 0.1.0: until that is released, as they are declared.

The first migration after the release writes them out here as they are in it, for the stores and backups that it made.
"""

from __future__ import annotations

from alembic import op

from instep.store.engine.migrate import create_statements
from instep.store.tables.all import metadata

revision = "0100"
down_revision = None


def upgrade() -> None:
    for statement in create_statements(op.get_bind().engine.url.drivername):
        op.get_bind().exec_driver_sql(statement)


def downgrade() -> None:
    metadata.drop_all(op.get_bind())
