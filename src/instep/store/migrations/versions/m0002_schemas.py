"""Versions of the source's and the destination's schemas; `major.minor` and the run of accepted ones.

Going up, what is known already is kept: the last discovery as the source's first version, and the numbers that
follow from the accepted catalogs. Going down forgets it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import sqlalchemy as sa
from alembic import op

from instep.schema.table import Catalog, catalog_from_dict, fingerprint
from instep.schema.version import Label, next_label
from instep.store.columns import Utc

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    with op.batch_alter_table("accepted") as table:
        table.add_column(sa.Column("major", sa.Integer(), server_default="1", nullable=False))
        table.add_column(sa.Column("minor", sa.Integer(), server_default="0", nullable=False))
        table.add_column(sa.Column("run", sa.Text(), server_default="", nullable=False))
    _number_accepted(op.get_bind())
    kept = op.create_table(
        "schemas",
        sa.Column("connection", sa.String(), nullable=False),
        sa.Column("side", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("fingerprint", sa.String(), nullable=False),
        sa.Column("catalog", sa.JSON(), nullable=False),
        sa.Column("at", Utc(), nullable=False),
        sa.Column("run", sa.Text(), server_default="", nullable=False),
        sa.Column("accepted", sa.Integer(), server_default="0", nullable=False),
        sa.Column("identity", sa.Text(), server_default="", nullable=False),
        sa.ForeignKeyConstraint(["connection"], ["connections.name"], name="fk_schemas_connection"),
        sa.PrimaryKeyConstraint("connection", "side", "version", name="pk_schemas"),
    )
    _keep_discoveries(op.get_bind(), kept)


def _number_accepted(connection: sa.Connection) -> None:
    accepted = sa.table(
        "accepted", sa.column("connection"), sa.column("version"), sa.column("major"), sa.column("minor"),
        sa.column("catalog", sa.JSON()),
    )  # fmt: skip
    c = accepted.c
    keys = connection.execute(sa.select(c.connection, c.version).order_by(c.connection, c.version)).all()
    name, label, before = None, None, Catalog()
    for key in keys:
        where = (c.connection == key.connection, c.version == key.version)
        now = catalog_from_dict(connection.execute(sa.select(c.catalog).where(*where)).scalar_one())
        same = key.connection == name
        numbers: Label = next_label(label if same else None, before, now)
        connection.execute(sa.update(accepted).where(*where).values(major=numbers[0], minor=numbers[1]))
        name, label, before = key.connection, numbers, now


def _keep_discoveries(connection: sa.Connection, kept: sa.Table) -> None:
    columns: list[Any] = [sa.column("connection"), sa.column("identity")]
    columns += [sa.column("catalog", sa.JSON()), sa.column("at", Utc())]
    newest = sa.text("SELECT COALESCE(MAX(version), 0) FROM accepted WHERE connection = :name")
    for row in connection.execute(sa.select(*columns).select_from(sa.table("discoveries"))).all():
        at: datetime = row.at
        values: dict[str, Any] = {
            "connection": row.connection, "side": "source", "version": 1, "identity": row.identity, "at": at,
            "catalog": row.catalog, "fingerprint": fingerprint(catalog_from_dict(row.catalog)),
            "accepted": connection.execute(newest, {"name": row.connection}).scalar_one(),
        }  # fmt: skip
        connection.execute(sa.insert(kept).values(**values))


def downgrade() -> None:
    op.drop_table("schemas")
    with op.batch_alter_table("accepted") as table:
        for name in ("run", "minor", "major"):
            table.drop_column(name)
