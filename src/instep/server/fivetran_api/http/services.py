"""Services of the wire and sources of ours: what they are called, and what their settings are called."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from instep.control.compat import SERVICES
from instep.redaction import SECRET_NAME
from instep.server.fivetran_api.http.ports import Item

MASK = "******"
TYPES: Mapping[str, str] = {
    **{service: type for type, service in SERVICES.items()},
    "postgres_rds": "postgres",
    "mysql_rds": "mysql",
    "maria_rds": "mariadb",
}
"""Service to the type of a source; a service that is not here has no source."""
_KEYS = ("host", "port", "user", "password", "database", "path")
_MORE: Mapping[str, tuple[str, ...]] = {"jdbc": ("url", "subprotocol")}
"""Further keys of the sources of a type."""
NAMES = ("schema_prefix", "schema")
"""Keys of a config that name its schema at the destination."""
_EARLY = frozenset(
    (
        "table",
        "update_method",
        "connection_type",
        "auth_method",
        "replication_slot",
        "publication_name",
        "always_encrypted",
        "sync_mode",
    )
)
_EARLY_PREFIXES = ("tunnel_", "client_")
"""Prefixes of keys that clients send of a database, often before its address: stored, without effect."""


def service_of(source: Item | None, kind: str = "") -> str:
    """Return the word for its type; of several, the one that its client sent as `kind`."""
    type = str(source.spec.get("type", "")) if source else ""
    return kind if kind and TYPES.get(kind) == type else SERVICES.get(type, type)


def wire_config(source: Item | None) -> dict[str, Any]:
    """Return a source's settings with secrets masked; a database's own words only."""
    spec: Mapping[str, Any] = source.spec if source else {}
    keys = _keys(str(spec.get("type", "")))
    return {key: MASK if SECRET_NAME.search(key) else spec[key] for key in keys if spec.get(key) not in (None, "")}


def not_understood(service: str, config: Mapping[str, Any]) -> list[str]:
    """Return the keys of a config of a service that is read here, if none of them is known; [] otherwise."""
    strange = unknown(service, config)
    return strange if len(strange) == len(config) and not any(map(SECRET_NAME.search, config)) else []


def unknown(service: str, config: Mapping[str, Any]) -> list[str]:
    """Return the keys of a config that mean nothing here; none of a service that is not read at all."""
    if service not in TYPES:
        return []
    known = {*_keys(TYPES[service]), *NAMES}
    return sorted(key for key in config if key not in known and not _is_early(key))


def settings_without_effect(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a config that are stored and answered without effect, with a source or without one."""
    return {key: value for key, value in config.items() if _is_early(key)}


def _is_early(key: str) -> bool:
    return key in _EARLY or key.startswith(_EARLY_PREFIXES)


def is_set_up(service: str, config: Mapping[str, Any]) -> bool:
    """Return True if a config says anything of its source: until then its connection is incomplete."""
    return service in TYPES and len(source_spec(service, config)) > 1


def no_source(name: str, service: str) -> str:
    """Return the reason for which a connection has no source, for people."""
    if service in TYPES:
        return f"Connection '{name}' has no settings of its source yet: PATCH it with its config."
    return f"Connection '{name}' has no source: nothing here reads the service {service}."


def source_spec(service: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section of a source out of a config; a masked secret is left out, because it means: as it is."""
    given = {key: config[key] for key in _keys(TYPES[service]) if config.get(key) not in (None, "", MASK)}
    return {"type": TYPES[service], **given}


def _keys(type: str) -> tuple[str, ...]:
    return (*_KEYS, *_MORE.get(type, ()))


def understood(service: str) -> str:
    """Return the keys that say where a source is, for people."""
    return ", ".join(_keys(TYPES[service]))


FREQUENCIES = (1, 5, 15, 30, 60, 120, 180, 360, 480, 720, 1440)
DEFAULT = 360


def cron(minutes: int, time: str = "00:00") -> str:
    """Return the line of a frequency; `time` (HH:MM on the hour) counts for once a day."""
    if minutes < 60:
        return "* * * * *" if minutes == 1 else f"*/{minutes} * * * *"
    if minutes == 1440:
        return f"0 {int(time[:2])} * * *"
    return "0 * * * *" if minutes == 60 else f"0 */{minutes // 60} * * *"


_KNOWN = {cron(minutes): minutes for minutes in FREQUENCIES if minutes < 1440}
_DAILY = re.compile(r"0 (\d{1,2}) \* \* \*")


def minutes(line: str) -> tuple[int, str]:
    """Return the (frequency, time of day) nearest to a cron line; the time is "" unless it is once a day."""
    if line in _KNOWN:
        return _KNOWN[line], ""
    if match := _DAILY.fullmatch(line):
        return 1440, f"{int(match[1]):02}:00"
    return DEFAULT, ""
