"""`source test` for PostgreSQL: each line says what was tried and, if it failed, what to do."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

from instep.errors import ConnectError, InstepError
from instep.model import Check
from instep.sources.base import Discovery
from instep.sources.postgres_catalog import Names, read_catalog
from instep.sources.postgres_connect import PostgresConfig, connect, translated
from instep.sources.postgres_snapshot import export
from instep.sources.postgres_sql import quote

if TYPE_CHECKING:
    import psycopg

OLDEST = 120_000
SHOWN = 5
"""How many tables a line names before it says how many more there are."""


def checks(config: PostgresConfig) -> list[Check]:
    """Reachable, login, then what the login may see and do."""
    reachable = _reachable(config)
    if not reachable.ok:
        return [reachable]
    try:
        with connect(config) as connection, translated(config):
            return [reachable, Check("login", True, config.place), *_inside(config, connection)]
    except ConnectError as error:
        return [reachable, Check("login", False, error.message, error.hint)]
    except InstepError as error:
        return [reachable, Check("login", True, config.place), Check("catalog", False, error.message, error.hint)]


def _reachable(config: PostgresConfig) -> Check:
    """A TCP connection; a host that is a folder or empty means a local socket, which the login tries."""
    place = f"{config.host}:{config.port}"
    if not config.host or config.host.startswith("/"):
        return Check("reachable", True, f"local socket {config.host}")
    try:
        socket.create_connection((config.host, config.port), timeout=config.connect_timeout or None).close()
    except OSError as error:
        hint = "check the source's host and port, and that PostgreSQL runs and listens there"
        return Check("reachable", False, f"{place}: {error.strerror or error}", hint)
    return Check("reachable", True, place)


def _inside(config: PostgresConfig, connection: psycopg.Connection[Any]) -> list[Check]:
    found = read_catalog(connection, Names(config.include, config.exclude))
    return [
        _version(connection),
        _encoding(connection),
        _tables(config, found),
        _privileges(found),
        _identity(config, found),
        _snapshot(config, connection),
        _row_security(connection, found),
    ]


def _version(connection: psycopg.Connection[Any]) -> Check:
    number = connection.info.server_version
    hint = "" if number >= OLDEST else "upgrade the server to PostgreSQL 12 or later"
    return Check("version", number >= OLDEST, f"PostgreSQL {number // 10000}.{number % 10000}", hint)


def _encoding(connection: psycopg.Connection[Any]) -> Check:
    encoding = connection.info.parameter_status("server_encoding") or ""
    hint = "text of an SQL_ASCII database may not be valid UTF-8: convert it" if encoding == "SQL_ASCII" else ""
    return Check("encoding", not hint, encoding, hint)


def _tables(config: PostgresConfig, found: Discovery) -> Check:
    count = len(found.catalog.tables)
    hint = "" if count else f"check the source's include and exclude patterns ({len(config.include)} included)"
    return Check("tables", count > 0, f"{count} tables and views", hint)


def _privileges(found: Discovery) -> Check:
    if not found.denied:
        return Check("privileges", True, "every table may be read")
    grants = sorted(set(found.denied.values()))
    names = _few([".".join(ref) for ref in sorted(found.denied)])
    return Check("privileges", False, f"no SELECT on {names}", " ".join(grants))


def _identity(config: PostgresConfig, found: Discovery) -> Check:
    if found.identity:
        return Check("identity", True, "renames are recognised by id")
    hint = f"GRANT EXECUTE ON FUNCTION pg_control_system() TO {quote(config.user)};"
    return Check("identity", False, "the system identifier is hidden: tables are matched by name only", hint)


def _snapshot(config: PostgresConfig, connection: psycopg.Connection[Any]) -> Check:
    _, note = export(config, connection)
    if not note:
        return Check("snapshot", True, "one consistent read point for all tasks")
    hint = "connect to the server itself, not through a pooler, to read tables in parallel"
    return Check("snapshot", False, f"cannot be shared, tables are read one after another: {note}", hint)


def _row_security(connection: psycopg.Connection[Any], found: Discovery) -> Check:
    rows = connection.execute(
        "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.relrowsecurity AND row_security_active(c.oid)"
    ).fetchall()
    names = [".".join(r) for r in sorted(rows) if tuple(r) in found.catalog.by_ref]
    if not names:
        return Check("row security", True, "no policy hides rows")
    hint = "ALTER ROLE ... BYPASSRLS, or accept that only the visible rows are replicated"
    return Check("row security", False, f"policies hide rows of {_few(names)}", hint)


def _few(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
