"""What the server's own API keeps: keys, the audit log, answers to repeated requests; and indexes of its pages."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from instep.store.columns import Utc

revision = "0017"
down_revision = "0016"

_INDEXES = (
    ("ix_reviews_page", "reviews", ("first_seen", "id")),
    ("ix_reviews_status_page", "reviews", ("status", "first_seen", "id")),
    ("ix_reviews_connection_page", "reviews", ("connection", "first_seen", "id")),
    ("ix_runs_page", "runs", ("started", "id")),
)


def upgrade() -> None:
    for name, table, columns in _INDEXES:
        op.create_index(name, table, columns)
    _keys()
    op.create_table(
        "audit",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer, "sqlite"), autoincrement=False),
        sa.Column("at", Utc, nullable=False),
        sa.Column("actor", sa.String, nullable=False),
        sa.Column("action", sa.String, nullable=False),
        sa.Column("target", sa.String, nullable=False),
        sa.Column("detail", sa.JSON, nullable=False),
        sa.Column("previous", sa.String, nullable=False),
        sa.Column("digest", sa.String, nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_audit"),
    )
    op.create_table(
        "idempotency",
        sa.Column("caller", sa.String, nullable=False),
        sa.Column("token", sa.String, nullable=False),
        sa.Column("request", sa.String, nullable=False),
        sa.Column("status", sa.Integer, nullable=False),
        sa.Column("body", sa.JSON, nullable=False),
        sa.Column("at", Utc, nullable=False),
        sa.PrimaryKeyConstraint("caller", "token", name="pk_idempotency"),
    )
    op.create_index("ix_idempotency_at", "idempotency", ["at"])


def _keys() -> None:
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String, nullable=False),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("role", sa.String, nullable=False),
        sa.Column("groups", sa.JSON, nullable=False),
        sa.Column("created", Utc, nullable=False),
        sa.Column("created_by", sa.Text, nullable=False, server_default=""),
        sa.Column("ended", Utc),
        sa.Column("ended_by", sa.Text, nullable=False, server_default=""),
        sa.PrimaryKeyConstraint("id", name="pk_api_keys"),
    )
    op.create_table(
        "api_secrets",
        sa.Column("digest", sa.String, nullable=False),
        sa.Column("key", sa.String, nullable=False),
        sa.Column("prefix", sa.String, nullable=False),
        sa.Column("created", Utc, nullable=False),
        sa.Column("expires", Utc),
        sa.Column("last_used", Utc),
        sa.PrimaryKeyConstraint("digest", name="pk_api_secrets"),
        sa.ForeignKeyConstraint(["key"], ["api_keys.id"], name="fk_api_secrets_key"),
    )
    op.create_index("ix_api_secrets_key", "api_secrets", ["key"])


def downgrade() -> None:
    for table in ("idempotency", "audit", "api_secrets", "api_keys"):
        op.drop_table(table)
    for name, table, _ in reversed(_INDEXES):
        op.drop_index(name, table)
