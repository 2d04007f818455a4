"""What the server or the driver said, as an error of ours that names the next step."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from instep.errors import Conflict, ConnectError, DestinationError, InstepError, SchemaError
from instep.stage.patience import ENDLESS, SILENT

if TYPE_CHECKING:
    from instep.destinations.postgres.server import PostgresConfig

_CONNECT = (
    ("password authentication failed|no password supplied", "check the destination's user and password"),
    ('database ".*" does not exist', "check the destination's database ({c.database})"),
    ("could not translate|failed to resolve|not known", "check the destination's host ({c.host})"),
    ("Connection refused|No such file", "check host and port, and that PostgreSQL runs and listens there"),
    (f"timeout expired|connection timeout|{ENDLESS}|No route|unreachable",
     "check host and firewall, or raise connect_timeout"),
    ("requested a cleartext password",
     "give the server TLS and set tls.mode to require, or have it ask for scram-sha-256"),
    ("no pg_hba.conf entry", "add a pg_hba.conf entry, or set tls.mode"),
    ("does not support SSL", "set tls.mode to prefer or disable"),
    ("certificate verify failed|root certificate", "set tls.ca to the authority of the certificate, if that is valid"),
    ("does not match host", "set host to a name that the certificate has, or tls.mode to verify-ca"),
    ("SSL", "see tls.mode, tls.cert and tls.key, and the server's log"),
    ("too many clients|remaining connection slots", "raise max_connections on the server"),
    (SILENT, "see what the server is at, then run this again; raise read_timeout if it needs longer"),
    ("the database system is|terminating connection|closed the connection|connection is lost|the connection is closed",
     "the server has ended the connection: wait until it is up, then run this again"),
)  # fmt: skip
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


def clear(config: PostgresConfig, text: str, sqlstate: str) -> InstepError:
    """The error for one of the server's (`sqlstate`) or of the driver's; without the password."""
    said = _first_line(text.replace(config.password, "***") if config.password else text)
    for state, kind, hint in _STATES:
        if sqlstate.startswith(state):
            return kind(f"{config.place}: {said}", hint=hint.format(c=config))
    for mark, hint in _CONNECT:
        if re.search(mark, said):
            return ConnectError(f"{config.place}: {said}", hint=hint.format(c=config))
    if sqlstate.startswith(("08", "28", "3D", "53", "57")):
        return ConnectError(f"{config.place}: {said}", hint="see the server's log")
    return DestinationError(f"{config.place}: {said}", hint="try again; if it fails again, see the server's log")


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    line = next((found for found in lines if "FATAL" in found or "ERROR" in found), lines[0] if lines else "")
    return re.sub(r"^.*?(?=(ERROR|FATAL): )", "", line)
