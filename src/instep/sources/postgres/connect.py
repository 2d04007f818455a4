"""Connections to PostgreSQL: settings that make text stable, and errors that say what to do."""

from __future__ import annotations

import re
import socket
import ssl
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from instep.errors import AccessDenied, ConnectError, InstepError, ProjectError, ReadError, SourceLost
from instep.project.sections.databases import PostgresSourceSection
from instep.project.sections.reach import VERIFY, Tls
from instep.sources.postgres.types import literal
from instep.sources.server import with_files
from instep.sources.ssh import ServerAddress, through
from instep.stage.libpq_errors import without_row_value
from instep.stage.secret_files import as_file, private_file
from instep.stage.timeouts import ENDLESS, LIBPQ, SILENT, opened, own_login, proof_of_password, timed_connection

if TYPE_CHECKING:
    import psycopg


_REQUEST = struct.pack("!ii", 8, 80877103)


def refusal(host: str, port: int, authority: str, timeout: float) -> str:
    """Return the fault of the certificate in OpenSSL's words, "" if unknown. `authority` is a file, "" for the
    system's authorities."""
    with suppress(OSError, ValueError), socket.create_connection((host, port), timeout=timeout or None) as plain:
        plain.sendall(_REQUEST)
        if plain.recv(1) != b"S":
            return ""
        context = ssl.create_default_context(cafile=authority or None)
        context.check_hostname = False
        context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
        try:
            context.wrap_socket(plain).close()
        except ssl.SSLCertVerificationError as error:
            return str(error.verify_message)
    return ""


Opened = TypeVar("Opened")
LOCKED = "55P03"
"""The SQLSTATE of a lock that was waited for in vain."""


def conninfo(config: PostgresSourceSection, address: ServerAddress | None = None, key: str = "") -> str:
    """Return libpq's keywords, the password among them: they stay in this process and are never logged. `address`:
    where to connect instead (the server's certificate is still that of `host`); `key`: the file with the client's
    key."""
    from psycopg.conninfo import make_conninfo

    parameters: dict[str, Any] = {
        "host": config.host,
        "hostaddr": address.address if address else "",
        "port": (address.port if address else 0) or config.port,
        "dbname": config.database,
        "user": config.user,
        "sslmode": config.tls.chosen,
        "sslrootcert": config.tls.ca or _authorities(config.tls),
        "sslcert": config.tls.cert,
        "sslkey": key,
        "connect_timeout": config.connect_timeout,
        "options": config.options,
        "require_auth": "" if config.ssh else proof_of_password(config.tls.chosen, config.host),
    }
    options = {k: v for k, v in parameters.items() if v not in ("", 0)}
    options |= own_login(config.password, config.tls.cert)
    return make_conninfo("", **options, **LIBPQ, application_name=config.application_name, client_encoding="UTF8")


def _authorities(tls: Tls) -> str:
    """Return the system's authorities, where a certificate is checked and no authority is named."""
    return ssl.get_default_verify_paths().cafile or "" if tls.chosen in VERIFY else ""


def dial(config: PostgresSourceSection, open: Callable[[str], Opened]) -> Opened:
    """Return what `open` makes of libpq keywords that reach the server, through SSH if so configured. Errors are
    `open`'s own, or a ConnectError that names the SSH server if it is at fault."""
    with (
        private_file(config.tls.key) as key,
        as_file(config.tls.ca) as authority,
        as_file(config.tls.cert) as certificate,
        through(config.ssh, config.host, config.port, config.connect_timeout) as server,
    ):
        try:
            return opened(conninfo(with_files(config, authority, certificate), server, key), open)
        except Exception as error:
            server.explain()
            if _UNTRUSTED in str(error):
                host, port = (server.address or config.host, server.port or config.port)
                why = refusal(host, port, authority, config.connect_timeout)
                raise translate(config, f"{_UNTRUSTED}: {why}", "", otherwise=ConnectError) from None
            raise


def settings(config: PostgresSourceSection) -> dict[str, str]:
    """Return the server settings of every transaction: texts that do not depend on the server's defaults, no idle
    timeout."""
    return {
        "search_path": "pg_catalog",
        "standard_conforming_strings": "on",  # a filter is judged by where its texts end
        "datestyle": "ISO, YMD",
        "intervalstyle": "iso_8601",
        "timezone": "UTC",
        "extra_float_digits": "1",
        "bytea_output": "hex",
        "idle_in_transaction_session_timeout": "0",
        "statement_timeout": f"{int(config.statement_timeout * 1000)}",
        "lock_timeout": "1000",
    }


def set_statement(values: Mapping[str, str]) -> str:
    """Return one statement that makes the settings hold until the transaction ends (a pooler sees no trace)."""
    return "SELECT " + ", ".join(f"set_config({literal(k)}, {literal(v)}, true)" for k, v in values.items())


_UNTRUSTED = "certificate verify failed"


@contextmanager
def connect(config: PostgresSourceSection) -> Iterator[psycopg.Connection[Any]]:
    """Open a connection in a READ ONLY, REPEATABLE READ transaction with `settings`; errors of connecting are
    translated, those of the body are not (they may be another server's)."""
    import psycopg

    with translated(config, otherwise=ConnectError):
        connection = dial(
            config, lambda info: timed_connection(config.read_timeout).connect(info, prepare_threshold=None)
        )
    try:
        with translated(config):
            connection.read_only = True
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.execute(set_statement(settings(config)).encode())
        yield connection
    finally:
        connection.close()


@contextmanager
def translated(
    config: PostgresSourceSection, what: str = "", otherwise: type[InstepError] = ReadError
) -> Iterator[None]:
    """Turn psycopg's errors into ours; `what` names the table at hand, `otherwise` is for those not known."""
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        raise translate(config, str(error), error.sqlstate or "", what, otherwise) from None


def translate(
    config: PostgresSourceSection, text: str, sqlstate: str, what: str = "", otherwise: type[InstepError] = ReadError
) -> InstepError:
    """Return our error for one of the server's or of libpq's. Some come without an SQLSTATE: then the text decides."""
    text = config.redacted(_first_line(text))
    if sqlstate != "2201B":
        text = without_row_value(text, sqlstate)
    subject = what or config.place
    if sqlstate == "42501" or "permission denied for" in text:
        hint = f"grant the SELECT privilege on it to {config.user}, or put it into the source's exclude list"
        return AccessDenied(f"{subject}: can no longer be read: {text}", hint=hint)
    if sqlstate in ("42P01", "42703", "3F000"):
        return ReadError(f"{subject}: changed while it was being read: {text}", hint="sync again")
    if sqlstate == "2201B":
        return ProjectError(f"{subject}: a pattern of the source is not a valid regular expression: {text}")
    if "conflict with recovery" in text:
        hint = "sync again; set hot_standby_feedback = on at the standby, or raise its max_standby_streaming_delay"
        return ReadError(f"{subject}: the standby cancelled the read to go on replaying: {text}", hint=hint)
    if sqlstate == LOCKED:
        hint = "sync again when that is over; pg_locks and pg_blocking_pids say who it is"
        return ReadError(f"{subject}: another session keeps it locked (ALTER TABLE, LOCK TABLE): {text}", hint=hint)
    if sqlstate == "57014" or "canceling statement due to" in text:
        return ReadError(f"{subject}: cancelled: {text}", hint="raise statement_timeout if the query needs longer")
    if SILENT in text:
        hint = "check the server and the network in between, then sync again; raise read_timeout if it needs longer"
        return SourceLost(f"{subject}: {text}", hint=hint)
    for mark, message, hint in _CONNECT:
        if re.search(mark, text):
            return ConnectError(f"{subject}: {message} ({text})", hint=hint.format(c=config))
    if sqlstate.startswith(("08", "28", "3D", "53")):
        return ConnectError(f"{subject}: {text}", hint="see the server's log")
    hint = "see the server's log and `instep source test`, then run `instep sync` again"
    if otherwise is ReadError and (sqlstate.startswith("57P") or _GONE.search(text)):
        otherwise = SourceLost
    return otherwise(f"{subject}: {text}", hint=hint)


_GONE = re.compile(
    r"clos(ed|ing) the connection|connection (is|was|has been) (closed|lost)|connection reset|terminating connection"
    r"|could not (receive|send) data|broken pipe|Failed to connect",
    re.IGNORECASE,
)


_CONNECT = (
    ("password authentication failed", "wrong user or password", "check the source's user and password"),
    ("server requested a cleartext password", "the server asks for the password itself over a connection without TLS",
     "give the server TLS and set tls.mode to require, connect through ssh, or have it ask for scram-sha-256"),
    (ENDLESS, "no answer in time", "check host, port and firewall, and what answers there, or raise connect_timeout"),
    ("incorrect server signature", "the server does not know the password: it is not the one it says it is",
     "check host and port, and set tls.mode to verify-full"),
    ("no password supplied", "the server asks for a password", "set the source's password"),
    ('database ".*" does not exist', "the server has no such database", "check the source's database ({c.database})"),
    (
        "invalid response to SSL negotiation",
        "the server there is not PostgreSQL",
        "check host and port, and the source's `type`",
    ),
    ("could not translate host name", "the host is unknown", "check the source's host ({c.host})"),
    ("failed to resolve host", "the host is unknown", "check the source's host ({c.host})"),
    ("Name or service not known", "the host is unknown", "check the source's host ({c.host})"),
    ("Connection refused", "nothing listens there", "check host and port, and that PostgreSQL runs and listens on it"),
    ("No such file or directory", "nothing listens there", "check host and port, and that PostgreSQL runs there"),
    ("timeout expired", "no answer in time", "check host, port and firewall, or raise connect_timeout"),
    ("connection timeout", "no answer in time", "check host, port and firewall, or raise connect_timeout"),
    ("No route to host", "the host cannot be reached", "check host and network"),
    ("Network is unreachable", "the host cannot be reached", "check host and network"),
    ("does not support SSL", "the server has no TLS", "set tls.mode to prefer or disable"),
    ("no pg_hba.conf entry", "this user cannot connect from here", "add a pg_hba.conf entry, or set tls.mode"),
    ("expired", "the server's certificate has expired", "renew it at the server"),
    ("does not match host name", "the server's certificate is for another host",
     "set host to a name in the certificate, or tls.mode to verify-ca"),
    ("certificate verify failed", "the server's certificate is not trusted", "set tls.ca to its authority"),
    ("root certificate file", "the authority's certificate cannot be read", "correct tls.ca"),
    ("statement pooling", "a pooler in between pools statements, so that nothing can be read consistently",
     "set its pool_mode to transaction or session, or connect to the server itself"),
    ("SSL required", "the server asks for TLS", "set tls.mode to require or more"),
    ("query_wait_timeout", "the pooler has no free connection to the server",
     "raise its pool_size, or lower max_connections"),
    ("unsupported startup parameter: replication", "a pooler in between does not pass the log on",
     "connect to the server itself, or use PgBouncer 1.23 or later"),
    ("unsupported startup parameter", "the pooler refuses an option", "leave the source's `options` out"),
    ("too many clients", "the server has no free connection", "raise max_connections or lower parallelism"),
    ("remaining connection slots", "the server has no free connection", "raise max_connections or lower parallelism"),
    ("the database system is", "the server is not ready", "wait until it has started, then try again"),
)  # fmt: skip


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line for line in lines if "FATAL" in line or "ERROR" in line), lines[0] if lines else "")
