"""The tables of what a server keeps: objects, what they refer to, sealed secrets."""

from __future__ import annotations

from sqlalchemy import JSON, Column, Index, Integer, String, Table, Text

from instep.store.columns import ByCharacter, Utc, metadata, text_column

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
