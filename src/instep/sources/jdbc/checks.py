"""What `source test` says of a JDBC source beyond that it can be reached."""

from __future__ import annotations

import re
from collections.abc import Iterator

from instep.errors import InstepError
from instep.model import Check
from instep.schema.read import ColumnRead, TableRead
from instep.schema.table import Catalog, Table
from instep.sources.base import Discovery
from instep.sources.jdbc.config import JdbcConfig
from instep.sources.jdbc.sql import Sql
from instep.spark.jdbc import Connection

SOUND = {"postgresql": (42, 7, 12)}
"""The first version of a driver without a published flaw."""
_TLS = {
    "postgresql": ("sslmode", ("verify-full", "verify-ca", "require")),
    "mysql": ("sslMode", ("VERIFY_IDENTITY", "VERIFY_CA", "REQUIRED")),
    "mariadb": ("sslMode", ("verify-full", "verify-ca", "trust")),
    "sqlserver": ("encrypt", ("true", "strict")),
}
"""By subprotocol: the option that asks for TLS, and its values that insist on it."""
_TRIED = 200


def checks(config: JdbcConfig, connection: Connection, found: Discovery) -> list[Check]:
    """One line for the driver, the login, TLS where it is a server's, the tables, and each table that refuses."""
    meta = connection.metadata()
    driver = f"{meta.getDriverName()} {meta.getDriverVersion()}"
    server = f"{meta.getDatabaseProductName()} {str(meta.getDatabaseProductVersion()).splitlines()[0]}"
    quote = meta.getIdentifierQuoteString() or ""
    count = len(found.catalog.tables)
    hint = "" if count else "check `schemas`, `include` and `exclude`, and the rights of the login"
    return [
        _driver(config, driver),
        Check("connect", True, f"{config.address}: {server}"),
        *_tls(config),
        Check("list tables", bool(count), f"{count} tables and views", hint),
        *(Check(f"read {'.'.join(ref)}", False, why, "`exclude` the table") for ref, why in found.denied.items()),
        *_unreadable(connection, Sql(config.dialect, quote), found.catalog),
    ]


def _driver(config: JdbcConfig, text: str) -> Check:
    sound, found = SOUND.get(config.kind), re.search(r"(\d+)\.(\d+)\.(\d+)", text)
    if sound and found and tuple(map(int, found.groups())) < sound:
        wanted = ".".join(map(str, sound))
        return Check("driver", False, f"{text} has published flaws", f"use {wanted} or newer", needed=False)
    return Check("driver", True, text)


def _tls(config: JdbcConfig) -> Iterator[Check]:
    if config.kind not in _TLS:
        return
    option, strict = _TLS[config.kind]
    said = {name.lower(): value for name, value in config.options.items()}.get(option.lower(), "")
    if said.lower() in [s.lower() for s in strict]:
        yield Check("tls", True, f"{option}={said}")
    else:
        hint = f"set {option}: {strict[0]} under `options`"
        yield Check("tls", False, "the connection may be in clear, or to anybody", hint, needed=False)


def _unreadable(connection: Connection, sql: Sql, catalog: Catalog) -> Iterator[Check]:
    """Tables that cannot be read, of the first ones; a driver lists what the login may not read, too."""
    for table in catalog.tables[:_TRIED]:
        try:
            with connection.describing(f"reading {table.path}"):
                connection.texts(sql.none(_whole(table)))
        except InstepError as error:
            grant = f"GRANT SELECT ON {sql.table(table)} TO the login, or `exclude` the table"
            yield Check(f"read {table.path}", False, error.message, grant)


def _whole(table: Table) -> TableRead:
    return TableRead(table, table, tuple(ColumnRead(c, c) for c in table.columns))
