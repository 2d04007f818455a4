"""Connections to MySQL and MariaDB: settings that make text stable, and errors that say what to do."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from instep.errors import AccessDenied, ConnectError, InstepError, ProjectError, ReadError, SetupError, SourceLost
from instep.loopback import is_near
from instep.project.sections.databases import MySqlSourceSection
from instep.project.sections.reach import VERIFY, Tls
from instep.redaction import without_value
from instep.sources.mysql.wire import MALFORMED, translated_errors
from instep.sources.server import with_files
from instep.sources.ssh import ServerAddress, through
from instep.stage import timeouts
from instep.stage.secret_files import as_file, private_file
from instep.stage.timeouts import KEEPALIVES, Silence, call_within

if TYPE_CHECKING:
    import pymysql

_SETTINGS = (
    "SET SESSION time_zone = '+00:00', sql_mode = '', net_write_timeout = 3600, wait_timeout = 86400,"
    " transaction_isolation = 'REPEATABLE-READ'"
)


def driver() -> Any:
    """Return the pymysql module; raises SetupError that names the extra when it is not installed."""
    try:
        import pymysql
    except ImportError:
        raise SetupError(
            "the MySQL source needs the package pymysql, which is not installed", hint="run pip install 'instep[mysql]'"
        ) from None
    return pymysql


@contextmanager
def connect(config: MySqlSourceSection) -> Iterator[pymysql.Connection[Any]]:
    """Open a connection in autocommit mode whose session speaks UTC and utf8mb4; errors are translated."""
    with translated(config):
        connection = dial(config)
    try:
        with translated(config):
            run(connection, _SETTINGS.replace("transaction_isolation", _isolation(connection)))
            run(connection, "SET SESSION TRANSACTION READ ONLY")
            if config.statement_timeout:
                run(connection, _timeout(connection, config.statement_timeout))
        yield connection
    finally:
        if connection.open:
            connection._force_close()


def dial(config: MySqlSourceSection) -> Any:
    """Open the connection, through SSH if configured. Raises a ConnectError that names the SSH server if it was
    that."""
    tunnel = through(config.ssh, config.host, config.port, config.connect_timeout)
    with (
        private_file(config.tls.key) as key,
        as_file(config.tls.ca) as authority,
        as_file(config.tls.cert) as certificate,
        tunnel as server,
    ):
        try:
            return _open(with_files(config, authority, certificate), server, key)
        except Exception as error:
            server.explain()
            if error.args[:1] == (2013,):
                raise _unanswered(config, str(error.args[-1])) from None
            raise


def _unanswered(config: MySqlSourceSection, text: str) -> ConnectError:
    """Return the error for a server that took the connection and did not finish the login."""
    if "timed out" in text:
        hint = "check host, port and firewall, and that the server is at work, or raise connect_timeout"
        return ConnectError(f"{config.place}: no answer in time ({text})", hint=hint)
    return ConnectError(f"{config.place}: the login was cut off ({text})", hint="see the server's log, then try again")


def _open(config: MySqlSourceSection, address: ServerAddress, key: str) -> Any:
    """Open the connection; the certificate must name `host`, wherever the connection goes."""
    connection = _bounded()(
        host=config.host,
        port=config.port,
        user=config.user,
        password=config.password.encode(),
        database=config.database,
        charset="utf8mb4",
        autocommit=True,
        local_infile=False,
        connect_timeout=config.connect_timeout or 31_536_000,
        read_timeout=config.connect_timeout or None,
        write_timeout=config.connect_timeout or None,  # the one that TLS shakes hands under
        program_name=config.application_name,
        defer_connect=True,
        **_tls(config.tls, key),
    )
    connection._auth_plugin_map = _Refusals(connection, near=bool(config.ssh) or is_near(config.host))
    _login(config, connection, socket.create_connection((address.address, address.port)) if address.port else None)
    connection.counted = False
    connection._read_timeout = connection._write_timeout = config.read_timeout or None
    with suppress(OSError, AttributeError):  # not on every platform
        for name, value in KEEPALIVES.items():
            option = {"idle": "TCP_KEEPIDLE", "interval": "TCP_KEEPINTVL", "count": "TCP_KEEPCNT"}[name]
            connection._sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return connection


def _login(config: MySqlSourceSection, connection: Any, through: socket.socket | None) -> None:
    """End in time, also where the server says a byte now and then."""
    try:
        with translated_errors():
            call_within(_LOGIN_FACTOR * config.connect_timeout, lambda: connection.connect(through))
    except Silence:
        hang_up(connection)
        raise driver().OperationalError(2013, "timed out in the login") from None


def hang_up(connection: Any) -> None:
    """End what another thread does on the connection."""
    with suppress(OSError, AttributeError, TypeError):
        socket.socket.shutdown(connection._sock, socket.SHUT_RDWR)  # of a TLS socket, too: it is in use


_LOGIN_FACTOR = 3
"""Each word of the login may take `connect_timeout`, all together so much of it."""


@lru_cache
def _bounded() -> Any:
    """Return pymysql's connection class, limited to MOST bytes in an answer that it holds in memory as a whole."""
    driver()
    from pymysql.connections import Connection

    base: Any = Connection

    class Bounded(base):  # type: ignore[misc]
        received = 0
        counted = True

        def _create_ssl_ctx(self, options: Any) -> Any:
            return super()._create_ssl_ctx(options) if options else _encrypting()

        def _read_bytes(self, size: int) -> Any:
            self.received += size
            if self.counted and self.received > timeouts.MOST:
                self._force_close()
                cut = f"the server's answer has no end: it was cut off after {timeouts.MOST >> 20} MB"
                raise driver().OperationalError(_TOO_LARGE, cut)
            return super()._read_bytes(size)

    return Bounded


@lru_cache
def _encrypting() -> ssl.SSLContext:
    """Return a TLS context that does not verify the server: loading the system's authorities takes 25 ms and is not
    needed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


_TOO_LARGE = 2020
_TELLS = 2061
_TELLING = ("mysql_clear_password", "dialog")
"""Those that send the password itself."""


class _Refusals:
    """The ways to log in that nobody may ask for, as pymysql looks them up. The password itself goes only where nobody
    else hears it: over TLS, or `near`."""

    def __init__(self, connection: Any, *, near: bool) -> None:
        self._connection, self._near = connection, near

    def get(self, name: str | bytes) -> type[_RefusedStatement] | None:
        plugin = name if isinstance(name, str) else name.decode(errors="replace")
        in_clear = not (self._near or self._connection._secure)
        return _RefusedStatement if plugin == "mysql_old_password" or (in_clear and plugin in _TELLING) else None


class _RefusedStatement:
    def __init__(self, connection: Any) -> None:
        """Accept the connection, which pymysql passes to each plugin."""

    def authenticate(self, packet: Any) -> Any:
        raise driver().OperationalError(_TELLS, "no answer was given")


def _timeout(connection: pymysql.Connection[Any], seconds: float) -> str:
    """Return the statement that limits the time of a query: MariaDB counts seconds, MySQL milliseconds of SELECTs."""
    if is_mariadb(connection):
        return f"SET SESSION max_statement_time = {seconds:f}"
    return f"SET SESSION max_execution_time = {max(1, int(seconds * 1000))}"


BEGIN = "START TRANSACTION WITH CONSISTENT SNAPSHOT"
"""Ends the transaction before it, and its locks."""


@contextmanager
def transaction(config: MySqlSourceSection) -> Iterator[pymysql.Connection[Any]]:
    """Open a connection whose InnoDB reads all see one point of time: now."""
    with connect(config) as connection:
        with translated(config):
            run(connection, BEGIN)
        yield connection


def is_mariadb(connection: pymysql.Connection[Any]) -> bool:
    return "mariadb" in str(cast(Any, connection).server_version).lower()


def _isolation(connection: pymysql.Connection[Any]) -> str:
    """Return the variable's name: MariaDB before 11.1 has only the old one, MySQL 8 only the new one."""
    return "tx_isolation" if is_mariadb(connection) else "transaction_isolation"


def _tls(tls: Tls, key: str) -> dict[str, Any]:
    """Return pymysql's TLS options. `key`: the file with the client's key. Without a file of authorities the
    system's own are used."""
    if tls.chosen == "disable":
        return {"ssl_disabled": True}
    if tls.chosen == "prefer" and not (tls.ca or tls.cert):
        return {}
    context = ssl.create_default_context(cafile=tls.ca or None)
    context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    context.check_hostname = tls.chosen == "verify-full"
    context.verify_mode = ssl.CERT_REQUIRED if tls.chosen in VERIFY else ssl.CERT_NONE
    if tls.cert:
        context.load_cert_chain(tls.cert, key or None)
    return {"ssl": context}


def run(connection: pymysql.Connection[Any], statement: str) -> list[tuple[Any, ...]]:
    """Return all rows of one statement."""
    wire = cast(Any, connection)
    wire.received, wire.counted = 0, True
    try:
        with translated_errors(), connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())
    finally:
        wire.counted = False


def first(connection: pymysql.Connection[Any], statement: str) -> tuple[Any, ...]:
    """Return the first row of one statement that always has one."""
    with translated_errors():
        return run(connection, statement)[0]


@contextmanager
def translated(config: MySqlSourceSection, what: str = "") -> Iterator[None]:
    """Turn pymysql's and the socket's errors into ours; `what` names the table at hand."""
    module = driver()
    try:
        yield
    except module.MySQLError as error:
        code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
        text = str(error.args[1] if len(error.args) > 1 else error)
        raise translate(config, code, text, what) from None
    except (OSError, RuntimeError) as error:  # TLS files, and ciphers that need another package
        prefix = "tls.ca or tls.cert: " if isinstance(error, FileNotFoundError) and not error.filename else ""
        text = prefix + config.redacted(str(error))
        raise ConnectError(f"{what or config.place}: {text}", hint="check the source's TLS settings") from None


def translate(config: MySqlSourceSection, code: int, text: str, what: str = "") -> InstepError:
    """Return our error for one of the server's or of pymysql's, by its number."""
    subject, text = what or config.place, config.redacted(without_value(text) if code in _OF_VALUES else text)
    if not code and not text:  # pymysql says no more of a connection that is closed already
        code, text = 2006, "it is closed"
    if code in _ACCESS:
        hint = f"grant {config.user} the right to read it, or exclude it from the source"
        return AccessDenied(f"{subject}: can no longer be read: {text}", hint=hint)
    if code in _MOVED:
        return ReadError(f"{subject}: changed while it was being read: {text}", hint="sync again")
    if code in _PATTERN:
        return ProjectError(
            f"{subject}: a pattern of the source is not a valid regular expression: {text}",
            hint="correct `include` or `exclude`",
        )
    if code == 2013 and "timed out" in text:
        hint = "check the server and the network in between, then sync again; raise read_timeout if it needs longer"
        return SourceLost(f"{subject}: no word from the server for {config.read_timeout:g} s ({text})", hint=hint)
    if code in _LOST:
        hint = "see the server's log and `instep source test`, then run `instep sync` again"
        kind = SourceLost if code in _GONE else ReadError
        return kind(f"{subject}: the connection was lost: {text}", hint=hint)
    message, hint = _unreachable(text) if code in (2002, 2003, 2005) else _CONNECT.get(code, ("", ""))
    if message:
        return ConnectError(f"{subject}: {message} ({text})", hint=hint.format(c=config))
    return ReadError(f"{subject}: {text} (error {code})", hint="sync again; if it stays, see the server's log")


_ACCESS = (1142, 1143, 1370)
_OF_VALUES = (1062, 1264, 1265, 1292, 1366, 1411, 1525, 1644, 1690, 3140, 3141, 3143, 3156, 3903, 4038)
"""Errors of the server that quote a value of a row, or that a program of the server has raised (1644)."""
_MOVED = (1146, 1054, 1412, 1051, 1356)
_PATTERN = (1139, 3685, 3686, 3687, 3688, 3689, 3690, 3691, 3692, 3693, 3694, 3695, 3696, 3697)
_GONE = (2006, 2013, 2014, 1927, 1053)
_LOST = (2006, 2013, 2014, 1927, 1317, 1053, 1969, 3024, 1205, 1213)
_CONNECT = {
    1045: ("the server refuses this user and password", "check the source's user and password"),
    1698: ("the server refuses this user and password", "check the source's user and password"),
    1044: (
        "the user is not allowed to use this database",
        "check the source's database, or let the user read it: GRANT SELECT ON `{c.database}`.* TO '{c.user}'@'%'",
    ),
    1049: ("the database does not exist", "check the source's database ({c.database})"),
    1040: ("the server has no free connection", "raise max_connections or lower parallelism"),
    1226: ("the user has no free connection", "raise max_user_connections or lower parallelism"),
    1203: ("the user has no free connection", "raise max_user_connections or lower parallelism"),
    1129: ("the server blocks this host", "run FLUSH HOSTS on the server"),
    1130: ("the server does not let this host in", "create the user for this host, or for %"),
    1251: ("the login method is not supported", "use another authentication plugin for this user"),
    MALFORMED: (
        "what answers there does not speak as MySQL does",
        "check host and port, and the source's `type`; a server that does so is broken or hostile",
    ),
    _TELLS: (
        "the server asks for the password itself over a connection without TLS, or for a proof that gives it away",
        "give the server TLS and set tls.mode to require, or use another authentication plugin for this user",
    ),
    2059: ("the login method is not supported", "use another authentication plugin for this user"),
    2026: ("no TLS connection", "check the source's tls settings and the server's certificate"),
    3159: ("the server asks for TLS", "set tls.mode to require"),
}


def _unreachable(text: str) -> tuple[str, str]:
    for mark, message, hint in (
        ("refused", "nothing listens there", "check host and port, and that the server runs and listens on them"),
        ("timed out", "no answer in time", "check host, port and firewall, or raise connect_timeout"),
        ("Name or service", "the host is unknown", "check the source's host ({c.host})"),
        ("name resolution", "the host is unknown", "check the source's host ({c.host})"),
        ("reset by peer", "the connection was cut", "run it again; check the network in between and the server's log"),
        ("No address", "the host is unknown", "check the source's host ({c.host})"),
        ("expired", "the server's certificate has expired", "renew it at the server"),
        (
            "mismatch",
            "the server's certificate is for another host",
            "set host to a name in the certificate, or tls.mode to verify-ca",
        ),
        ("certificate", "the server's certificate is not trusted", "set tls.ca to its authority"),
        ("SSL", "no TLS connection", "check the source's tls settings and the server's certificate"),
    ):
        if mark in text:
            return message, hint
    return "the server cannot be reached", "check host, port and network"
