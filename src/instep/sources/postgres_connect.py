"""Connections to PostgreSQL: settings that make text stable, and errors that say what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from instep.errors import AccessLost, ConnectError, InstepError, ProjectError, ReadError
from instep.sources.postgres_sql import literal

if TYPE_CHECKING:
    import psycopg

APPLICATION = "instep"


@dataclass(frozen=True)
class PostgresConfig:
    """Where and as whom to connect, and which tables are looked at.

    `include` and `exclude` are patterns for `schema.table`: the exact text, a glob, or `re:` and a regular
    expression; an empty `include` means all. Timeouts are in seconds, 0 means none. `options` is passed to
    the server as libpq's `options`.
    """

    host: str
    database: str
    user: str
    port: int = 5432
    password: str = field(default="", repr=False)
    sslmode: str = "prefer"
    sslrootcert: str = ""
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    connect_timeout: int = 10
    statement_timeout: float = 0
    options: str = ""

    @property
    def place(self) -> str:
        """`user@host:port/database`, for messages."""
        return f"{self.user}@{self.host}:{self.port}/{self.database}"


def conninfo(config: PostgresConfig) -> str:
    """libpq keywords, the password among them: stays inside the process, is never logged."""
    from psycopg.conninfo import make_conninfo

    given: dict[str, Any] = {
        "host": config.host,
        "port": config.port,
        "dbname": config.database,
        "user": config.user,
        "password": config.password,
        "sslmode": config.sslmode,
        "sslrootcert": config.sslrootcert,
        "connect_timeout": config.connect_timeout,
        "options": config.options,
    }
    kept = {k: v for k, v in given.items() if v not in ("", 0)}
    return make_conninfo("", **kept, application_name=APPLICATION, client_encoding="UTF8", keepalives_idle=60)


def settings(config: PostgresConfig) -> dict[str, str]:
    """Server settings of every transaction: texts that do not depend on the server's defaults, no idle end."""
    return {
        "search_path": "pg_catalog",
        "datestyle": "ISO, YMD",
        "intervalstyle": "iso_8601",
        "timezone": "UTC",
        "extra_float_digits": "1",
        "bytea_output": "hex",
        "idle_in_transaction_session_timeout": "0",
        "statement_timeout": f"{int(config.statement_timeout * 1000)}",
    }


def set_statement(values: Mapping[str, str]) -> str:
    """One statement that makes the settings hold until the transaction ends (a pooler sees no trace)."""
    return "SELECT " + ", ".join(f"set_config({literal(k)}, {literal(v)}, true)" for k, v in values.items())


@contextmanager
def connect(config: PostgresConfig) -> Iterator[psycopg.Connection[Any]]:
    """A connection in a READ ONLY, REPEATABLE READ transaction with `settings`; errors of connecting are
    translated, those of the body are not (they may be another server's)."""
    import psycopg

    with translated(config, otherwise=ConnectError):
        connection = psycopg.connect(conninfo(config), prepare_threshold=None)
    try:
        with translated(config):
            connection.read_only = True
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.execute(set_statement(settings(config)).encode())
        yield connection
    finally:
        connection.close()


@contextmanager
def translated(config: PostgresConfig, what: str = "", otherwise: type[InstepError] = ReadError) -> Iterator[None]:
    """Turns psycopg's errors into ours; `what` names the table at hand, `otherwise` is for those not known."""
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        raise translate(config, str(error), error.sqlstate or "", what, otherwise) from None


def translate(
    config: PostgresConfig, text: str, sqlstate: str, what: str = "", otherwise: type[InstepError] = ReadError
) -> InstepError:
    """Our error for one of the server's or of libpq's. Some come without an SQLSTATE: then the text decides."""
    text = _first_line(_without_secret(text, config.password))
    subject = what or config.place
    if sqlstate == "42501" or "permission denied for" in text:
        hint = f"grant the SELECT privilege on it to {config.user}, or put it into the source's exclude list"
        return AccessLost(f"{subject}: may not be read any more: {text}", hint=hint)
    if sqlstate in ("42P01", "42703", "3F000"):
        return ReadError(f"{subject}: changed while it was being read: {text}", hint="sync again")
    if sqlstate == "2201B":
        return ProjectError(f"{subject}: a pattern of the source is no valid regular expression: {text}")
    if sqlstate == "57014" or "canceling statement due to" in text:
        return ReadError(f"{subject}: cancelled: {text}", hint="raise statement_timeout if the query needs longer")
    for mark, message, hint in _CONNECT:
        if re.search(mark, text):
            return ConnectError(f"{subject}: {message} ({text})", hint=hint.format(c=config))
    if sqlstate.startswith(("08", "28", "3D", "53")):
        return ConnectError(f"{subject}: {text}", hint="see the server's log")
    return otherwise(f"{subject}: {text}", hint="try again; if it fails again, see the server's log")


_CONNECT = (
    ("password authentication failed", "wrong user or password", "check the source's user and password"),
    ("no password supplied", "the server asks for a password", "set the source's password"),
    ('database ".*" does not exist', "the server has no such database", "check the source's database ({c.database})"),
    ("could not translate host name", "the host is unknown", "check the source's host ({c.host})"),
    ("failed to resolve host", "the host is unknown", "check the source's host ({c.host})"),
    ("Name or service not known", "the host is unknown", "check the source's host ({c.host})"),
    ("Connection refused", "nothing listens there", "check host and port, and that PostgreSQL runs and listens on it"),
    ("No such file or directory", "nothing listens there", "check host and port, and that PostgreSQL runs there"),
    ("timeout expired", "no answer in time", "check host, port and firewall, or raise connect_timeout"),
    ("connection timeout", "no answer in time", "check host, port and firewall, or raise connect_timeout"),
    ("No route to host", "the host cannot be reached", "check host and network"),
    ("Network is unreachable", "the host cannot be reached", "check host and network"),
    ("no pg_hba.conf entry", "this user may not come from here", "add a pg_hba.conf entry, or set sslmode"),
    ("does not support SSL", "the server has no TLS", "set sslmode to prefer or disable"),
    ("certificate verify failed", "the server's certificate is not trusted", "set sslrootcert to its authority"),
    ("too many clients", "the server has no free connection", "raise max_connections or lower parallelism"),
    ("remaining connection slots", "the server has no free connection", "raise max_connections or lower parallelism"),
    ("the database system is", "the server is not ready", "wait until it has started, then try again"),
)  # fmt: skip


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line for line in lines if "FATAL" in line or "ERROR" in line), lines[0] if lines else "")


def _without_secret(text: str, secret: str) -> str:
    return text.replace(secret, "***") if secret else text
