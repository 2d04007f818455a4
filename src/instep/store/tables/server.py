"""The tables of a server's objects, their references and sealed secrets."""

from __future__ import annotations

from sqlalchemy import JSON, BigInteger, Column, ForeignKey, Index, Integer, String, Table, Text

from instep.store.tables.catalogs import reviews, runs
from instep.store.tables.columns import ByCharacter, Utc, metadata, text_column

objects = Table(
    "objects",
    metadata,
    Column("kind", String, primary_key=True),
    Column("name", ByCharacter, primary_key=True),
    Column("id", String, nullable=False),
    Column("spec", JSON, nullable=False),
    Column("version", Integer, nullable=False),
    Column("tags", JSON, nullable=False),
    Column("created", Utc, nullable=False),
    text_column("created_by"),
    Column("updated", Utc, nullable=False),
    text_column("updated_by"),
)
Index("uq_objects_id", objects.c.id, unique=True)

object_links = Table(
    "object_links",
    metadata,
    Column("kind", String, primary_key=True),
    Column("name", ByCharacter, primary_key=True),
    Column("what", String, primary_key=True),
    Column("value", String, primary_key=True),
)
Index(None, object_links.c.what, object_links.c.value, object_links.c.kind, object_links.c.name)

secrets = Table(
    "secrets",
    metadata,
    Column("id", String, primary_key=True),
    Column("kind", String, nullable=False),
    Column("name", String, nullable=False),
    Column("field", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("key", String, nullable=False),
    Column("wrapped", Text, nullable=False),
    Column("sealed", Text, nullable=False),
    text_column("origin"),
    Column("at", Utc, nullable=False),
    text_column("who"),
)
Index("uq_secrets_place", secrets.c.kind, secrets.c.name, secrets.c.field, secrets.c.version, unique=True)
Index(None, secrets.c.key, secrets.c.id)


# The pages of changes and runs, newest first, of all connections or of one.
Index("ix_reviews_page", reviews.c.first_seen, reviews.c.id)
Index("ix_reviews_status_page", reviews.c.status, reviews.c.first_seen, reviews.c.id)
Index("ix_reviews_connection_page", reviews.c.connection, reviews.c.first_seen, reviews.c.id)
Index("ix_reviews_both_page", reviews.c.connection, reviews.c.status, reviews.c.first_seen, reviews.c.id)
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

passwords = Table(
    "passwords",
    metadata,
    Column("key", String, ForeignKey("api_keys.id"), primary_key=True),
    Column("hash", Text, nullable=False),
    Column("changed", Utc, nullable=False),
)

sessions = Table(
    "sessions",
    metadata,
    Column("digest", String, primary_key=True),
    Column("key", String, ForeignKey("api_keys.id"), nullable=False),
    Column("secret", String),
    Column("created", Utc, nullable=False),
    Column("expires", Utc, nullable=False),
)
Index("ix_sessions_key", sessions.c.key)
Index("ix_sessions_expires", sessions.c.expires)

sign_in_links = Table(
    "sign_in_links",
    metadata,
    Column("digest", String, primary_key=True),
    Column("key", String, ForeignKey("api_keys.id"), nullable=False),
    Column("expires", Utc, nullable=False),
)

saved_filters = Table(
    "saved_filters",
    metadata,
    Column("key", String, primary_key=True),
    Column("name", String, primary_key=True),
    Column("filter", JSON, nullable=False),
    Column("at", Utc, nullable=False),
)

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
