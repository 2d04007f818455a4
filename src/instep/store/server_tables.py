"""The tables of the server's own API: keys, the audit log, answers that were given; and the indexes of its pages."""

from __future__ import annotations

from sqlalchemy import JSON, BigInteger, Column, ForeignKey, Index, Integer, String, Table, Text

from instep.store.columns import Utc, metadata
from instep.store.tables import reviews, runs

# The pages of changes and runs, newest first, of all connections or of one.
Index("ix_reviews_page", reviews.c.first_seen, reviews.c.id)
Index("ix_reviews_status_page", reviews.c.status, reviews.c.first_seen, reviews.c.id)
Index("ix_reviews_connection_page", reviews.c.connection, reviews.c.first_seen, reviews.c.id)
Index("ix_runs_page", runs.c.started, runs.c.id)

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", String, primary_key=True),
    Column("name", String, nullable=False),
    Column("role", String, nullable=False),
    Column("groups", JSON, nullable=False),
    Column("created", Utc, nullable=False),
    Column("created_by", Text, nullable=False, server_default=""),
    Column("ended", Utc),
    Column("ended_by", Text, nullable=False, server_default=""),
)

api_secrets = Table(
    "api_secrets",
    metadata,
    Column("digest", String, primary_key=True),
    Column("key", String, ForeignKey("api_keys.id"), nullable=False),
    Column("prefix", String, nullable=False),
    Column("created", Utc, nullable=False),
    Column("expires", Utc),
    Column("last_used", Utc),
)
Index("ix_api_secrets_key", api_secrets.c.key)

audit = Table(
    "audit",
    metadata,
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=False),
    Column("at", Utc, nullable=False),
    Column("actor", String, nullable=False),
    Column("action", String, nullable=False),
    Column("target", String, nullable=False),
    Column("detail", JSON, nullable=False),
    Column("previous", String, nullable=False),
    Column("digest", String, nullable=False),
)

idempotency = Table(
    "idempotency",
    metadata,
    Column("caller", String, primary_key=True),
    Column("token", String, primary_key=True),
    Column("request", String, nullable=False),
    Column("status", Integer, nullable=False),
    Column("body", JSON, nullable=False),
    Column("at", Utc, nullable=False),
)
Index("ix_idempotency_at", idempotency.c.at)
