"""`source test` for MySQL and MariaDB: each line says what was tried and, if it failed, what to run."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from instep.errors import InstepError
from instep.model import Check
from instep.sources.mysql.catalog import read_catalog
from instep.sources.mysql.connect import MySqlConfig, connect, first, run, translated
from instep.sources.mysql.sql import literal, quoted, quoted_table
from instep.sources.replicas import nearest

if TYPE_CHECKING:
    import pymysql

_APART = 5.0
"""Seconds that clocks may differ."""


def checks(config: MySqlConfig) -> list[Check]:
    """The login works; then what it may see and do; on the replica that would be read, if any is."""
    try:
        with nearest(config, connect) as at, translated(at.config):
            found = _inside(at.config, at.connection)
    except InstepError as error:
        return [Check("log in", False, error.message, error.hint)]
    return [*found, Check("replica", False, at.note, "check read_replica", needed=False)] if at.note else found


def _inside(config: MySqlConfig, connection: pymysql.Connection[Any]) -> list[Check]:
    version, account, comment = first(connection, "SELECT VERSION(), CURRENT_USER(), @@version_comment")
    name, _, host = str(account).rpartition("@")
    to = f"TO {literal(name)}@{literal(host)};"
    found = read_catalog(connection, config)
    return [
        Check("log in", True, f"{config.place} ({version})"),
        _encrypted(config, connection),
        _proxy(str(comment)),
        _replica(connection),
        _clock(connection),
        _tables(config, len(found.catalog.tables), to),
        *_denied(found.denied, to),
        _ids(bool(found.identity), to),
    ]


def _encrypted(config: MySqlConfig, connection: pymysql.Connection[Any]) -> Check:
    status = run(connection, "SHOW SESSION STATUS LIKE 'Ssl_cipher'")
    if not (status and status[0][1]):
        hint = "" if config.ssl == "disable" else "turn TLS on at the server, then set tls.mode to verify-full"
        return Check("tls", not hint, "the connection is not encrypted", hint, needed=False)
    checked = "is" if config.ssl.startswith("verify") else "is not"
    return Check("tls", True, f"encrypted; the server's certificate {checked} checked")


def _proxy(comment: str) -> Check:
    named = next((name for name in ("ProxySQL", "MaxScale") if name.lower() in comment.lower()), "")
    if not named:
        return Check("proxy", True, "none in between")
    hint = "set host and port to the server itself: a proxy may spread the queries of one read over servers"
    return Check("proxy", False, f"{named} is in between", hint, needed=False)


def _replica(connection: pymysql.Connection[Any]) -> Check:
    closed = first(connection, "SELECT @@global.read_only")[0]
    return Check("replica", True, "read only: a replica, most likely" if closed else "this server may be written to")


def _clock(connection: pymysql.Connection[Any]) -> Check:
    before = time.time()
    server = float(first(connection, "SELECT UNIX_TIMESTAMP(SYSDATE(6))")[0])
    apart = max(before - server, server - time.time(), 0.0)
    hint = "" if apart <= _APART else "synchronise the clocks: this one says when rows were synced"
    return Check("clock", not hint, f"{apart:.0f} s from this machine's", hint, needed=False)


def _tables(config: MySqlConfig, count: int, to: str) -> Check:
    hint = f"GRANT SELECT ON {quoted(config.database)}.* {to} -- or check `database`, `include` and `exclude`"
    return Check("list tables", bool(count), f"{count} tables and views", "" if count else hint)


def _denied(denied: Mapping[tuple[str, ...], str], to: str) -> Iterable[Check]:
    """Yield one line a table, its columns together."""
    tables: dict[tuple[str, str], list[str]] = {}
    for ref in sorted(denied):
        tables.setdefault((ref[0], ref[1]), []).extend(ref[2:])
    for (schema, table), columns in tables.items():
        what = f"SELECT ({', '.join(map(quoted, columns))})" if columns else "SELECT"
        why = denied[(schema, table, columns[0]) if columns else (schema, table)]
        named = f": {', '.join(columns)}" if columns else ""
        grant = f"GRANT {what} ON {quoted_table(schema, table)} {to}"
        yield Check(f"read {schema}.{table}", False, f"{why}{named}", grant)


def _ids(visible: bool, to: str) -> Check:
    if visible:
        return Check("see table ids", True, "table ids are visible")
    detail = "without the PROCESS privilege renamed tables are not recognised"
    return Check("see table ids", False, detail, f"GRANT PROCESS ON *.* {to}", needed=False)
