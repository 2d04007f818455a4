"""The way to the server: its settings, its errors in our words, and Arrow over a connection.

The driver of Arrow has no clock of its own: whoever waits for it waits with a timeout.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

import psycopg
import pyarrow as pa
from adbc_driver_manager import Error as ArrowError
from adbc_driver_manager.dbapi import Connection
from psycopg.conninfo import make_conninfo

from instep.destinations.sql.merge import q
from instep.destinations.sql.session import SCHEMA
from instep.errors import Conflict, ConnectError, DestinationError, InstepError, SchemaError
from instep.project.sections.models import PostgresDestinationSection
from instep.project.sections.reach import VERIFY
from instep.stage.libpq_errors import without_row_value
from instep.stage.secret_files import as_file, private_file
from instep.stage.timeouts import ENDLESS, LIBPQ, SILENT, CallTimeout, Silence, opened, own_login, proof_of_password

T = TypeVar("T")

APPLICATION = "instep"


class PostgresServerConfig(PostgresDestinationSection):
    """A destination's server under the `name` that the project file has for it, which its staged files are below."""

    type: Literal["postgres"] = "postgres"
    name: str


@contextmanager
def conninfo(config: PostgresServerConfig) -> Iterator[str]:
    """Yield libpq's keywords, the password among them: they stay in this process and are never logged. The client's
    key is a file in memory for as long as the block runs."""
    tls = config.tls
    checked = tls.chosen in VERIFY and not tls.ca
    with private_file(tls.key) as key, as_file(tls.ca) as ca, as_file(tls.cert) as cert:
        parameters: dict[str, Any] = {
            "host": config.host,
            "port": config.port,
            "dbname": config.database,
            "user": config.user,
            "sslmode": tls.chosen,
            "sslrootcert": ssl.get_default_verify_paths().cafile if checked else ca,
            "sslcert": cert,
            "sslkey": key,
            "connect_timeout": config.connect_timeout,
            "require_auth": proof_of_password(tls.chosen, config.host),
        }
        options = {k: v for k, v in parameters.items() if v not in ("", 0, None)}
        options |= own_login(config.password, cert)
        yield make_conninfo("", **options, **LIBPQ, application_name=APPLICATION, client_encoding="UTF8")


@contextmanager
def translated(config: PostgresServerConfig) -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        raise clear(config, str(error), error.sqlstate or "") from error
    except ArrowError as error:
        raise clear(config, str(error), error.sqlstate or "") from None
    except Silence as error:
        raise clear(config, str(error), "") from None


_CONNECT = (
    ("password authentication failed|no password supplied", "check the destination's user and password"),
    ('database ".*" does not exist', "check the destination's database ({c.database})"),
    ("could not translate|failed to resolve|not known", "check the destination's host ({c.host})"),
    ("Connection refused|No such file", "check host and port, and that PostgreSQL runs and listens there"),
    (
        f"timeout expired|connection timeout|{ENDLESS}|No route|unreachable",
        "check host and firewall, or raise connect_timeout",
    ),
    (
        "requested a cleartext password",
        "give the server TLS and set tls.mode to require, or have it ask for scram-sha-256",
    ),
    ("no pg_hba.conf entry", "add a pg_hba.conf entry, or set tls.mode"),
    ("does not support SSL", "set tls.mode to prefer or disable"),
    ("certificate verify failed|root certificate", "set tls.ca to the authority of the certificate, if that is valid"),
    ("does not match host", "set host to a name that the certificate has, or tls.mode to verify-ca"),
    ("SSL", "see tls.mode, tls.cert and tls.key, and the server's log"),
    ("too many clients|remaining connection slots", "raise max_connections on the server"),
    (SILENT, "see what the server is at, then run this again; raise read_timeout if it needs longer"),
    (
        "the database system is|terminating connection|closed the connection|connection is lost"
        "|the connection is closed",
        "the server has closed the connection: wait until it is up, then run this again",
    ),
)
_STATES: tuple[tuple[str, type[InstepError], str], ...] = (
    ("55P03", Conflict, "another session holds the table: end it (see pg_stat_activity), or raise lock_timeout"),
    ("40", Conflict, "another session was faster: run this again"),
    ("42501", DestinationError, "grant {c.user} the right; `instep destination test` shows which are missing"),
    ("25006", DestinationError, "this server is read-only: connect to the primary"),
    ("2BP01", DestinationError, "drop what depends on it first: nothing is dropped in cascade"),
    ("42701", SchemaError, "give the column an alias: PostgreSQL keeps that name for itself"),
    ("42939", SchemaError, "choose another namespace: PostgreSQL keeps names that begin with pg_ for itself"),
    ("54", DestinationError, "PostgreSQL has no room for this: exclude the column, or hash it"),
    ("53100", DestinationError, "free disk space on the server, then run this again"),
    ("57014", DestinationError, "raise statement_timeout if it needs longer"),
)


def clear(config: PostgresServerConfig, text: str, sqlstate: str) -> InstepError:
    """Return the error for one of the server's (`sqlstate`) or of the driver's; without the password."""
    masked = without_row_value(_first_line(text.replace(config.password, "***") if config.password else text), sqlstate)
    for state, kind, hint in _STATES:
        if sqlstate.startswith(state):
            return kind(f"{config.place}: {masked}", hint=hint.format(c=config))
    for mark, hint in _CONNECT:
        if re.search(mark, masked):
            return ConnectError(f"{config.place}: {masked}", hint=hint.format(c=config))
    if sqlstate.startswith(("08", "28", "3D", "53", "57")):
        return ConnectError(f"{config.place}: {masked}", hint="see the server's log")
    return DestinationError(f"{config.place}: {masked}", hint="try again; if it fails again, see the server's log")


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    line = next((s for s in lines if "FATAL" in s or "ERROR" in s), lines[0] if lines else "")
    return re.sub(r"^.*?(?=(ERROR|FATAL): )", "", line)


class Arrow:
    """A connection; what uses it is called through `call`, which raises Silence."""

    def __init__(self, connection: Connection, timeout: CallTimeout) -> None:
        self.connection, self._timeout = connection, timeout

    def call(self, act: Callable[[], T]) -> T:
        return self._timeout.call(act)

    def rows(self, sql: str) -> Generator[pa.RecordBatch, None, None]:
        """Yield the result of a query."""
        return self._timeout.each(self._batches(sql))

    def _batches(self, sql: str) -> Generator[pa.RecordBatch, None, None]:
        with self.connection.cursor() as cursor:
            cursor.execute(sql)
            yield from cursor.fetch_record_batch()

    def append(self, table: str, rows: pa.RecordBatchReader, part: tuple[str, int] | None = None) -> None:
        """COPY the rows into an existing table and commit. Each batch that the server takes restarts the timeout.
        `part`: a table, and the number that it has once these rows are there, so that no other attempt copies them."""

        def watched() -> Iterator[pa.RecordBatch]:
            for batch in rows:
                self._timeout.restart()
                yield batch

        def copy() -> None:
            with self.connection.cursor() as cursor:
                if part is not None:
                    into = f"INSERT INTO {q(SCHEMA)}.{q(part[0])} VALUES ({part[1]})"  # noqa: S608 - a name of ours
                    cursor.execute(f"{into} ON CONFLICT DO NOTHING RETURNING 1")
                    if not cursor.fetchall():
                        self.connection.rollback()
                        return
                reader = pa.RecordBatchReader.from_batches(rows.schema, watched())
                cursor.adbc_ingest(table, reader, mode="append", db_schema_name=SCHEMA)
                self.connection.commit()

        self.call(copy)

    def close(self) -> None:
        self._timeout.close(self.connection.close)


def open_arrow(config: PostgresServerConfig) -> Arrow:
    from adbc_driver_postgresql import dbapi

    with translated(config), conninfo(config) as info:
        return opened(info, lambda to: Arrow(dbapi.connect(to), CallTimeout(config.read_timeout)))


def answers(arrow: Arrow) -> bool:
    """Return whether the server is still there."""

    def ask() -> None:
        with arrow.connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            cursor.fetchall()
        arrow.connection.rollback()

    try:
        arrow.call(ask)
    except (ArrowError, Silence):
        return False
    return True
