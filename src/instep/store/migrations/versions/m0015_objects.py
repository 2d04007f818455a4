"""What a server manages, as documents of the project file's sections, and their sealed secrets."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from instep.store.columns import ByCharacter, Utc

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    op.create_table(
        "objects",
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("name", ByCharacter, nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.Column("created", Utc(), nullable=False),
        sa.Column("created_by", sa.Text(), server_default="", nullable=False),
        sa.Column("updated", Utc(), nullable=False),
        sa.Column("updated_by", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("kind", "name", name="pk_objects"),
    )
    op.create_index("uq_objects_id", "objects", ["id"], unique=True)
    op.create_table(
        "object_links",
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("name", ByCharacter, nullable=False),
        sa.Column("what", sa.String(), nullable=False),
        sa.Column("value", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "name", "what", "value", name="pk_object_links"),
    )
    op.create_index("ix_object_links_what_value_kind_name", "object_links", ["what", "value", "kind", "name"])
    _secrets()


def _secrets() -> None:
    op.create_table(
        "secrets",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("field", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("wrapped", sa.Text(), nullable=False),
        sa.Column("sealed", sa.Text(), nullable=False),
        sa.Column("origin", sa.Text(), server_default="", nullable=False),
        sa.Column("at", Utc(), nullable=False),
        sa.Column("who", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_secrets"),
    )
    op.create_index("uq_secrets_place", "secrets", ["kind", "name", "field", "version"], unique=True)
    op.create_index("ix_secrets_key_id", "secrets", ["key", "id"])


def downgrade() -> None:
    for table in ("secrets", "object_links", "objects"):
        op.drop_table(table)
