"""Indexes of the few rows that the status of many connections is made of: what held values, and what was maintained."""

from __future__ import annotations

from alembic import op

revision = "0027"
down_revision = "0026"


def upgrade() -> None:
    op.execute("CREATE INDEX ix_table_runs_held ON table_runs (run) WHERE misfits > 0")
    op.execute("CREATE INDEX ix_events_maintained ON events (type, connection, number) WHERE type = 'table.maintained'")


def downgrade() -> None:
    op.drop_index("ix_events_maintained", "events")
    op.drop_index("ix_table_runs_held", "table_runs")
