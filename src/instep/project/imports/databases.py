"""The common parts of all imports: servers of databases as sources, schedules, tables and columns."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from instep.project.imports.imported_project import ImportedProject
from instep.project.sections.names import exact

ServerType = Literal["postgres", "mysql", "mariadb"]
_TLS = {
    "disable": "disable", "disabled": "disable", "allow": "prefer", "prefer": "prefer", "preferred": "prefer",
    "require": "require", "required": "require", "verify_ca": "verify-ca", "verify_full": "verify-full",
    "verify_identity": "verify-full",
}  # fmt: skip
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_ZONE = re.compile(r"\s(UTC|GMT|[A-Z][A-Za-z_]+/[A-Za-z_/+-]+)\s*$")
DAY_MINUTES = 1440


@dataclass(frozen=True)
class DatabaseServer:
    """A server of databases, as a product's export has it."""

    type: ServerType
    address: Mapping[str, str]
    """`host`, `port`, `database` and `user`."""
    password: Any = field(default=None, repr=False)
    tls: str = ""
    """A mode in either product's spelling; "" for none said."""
    certificates: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """`ca`, `cert` and `key` of TLS."""
    ssh_host: str = ""
    ssh_port: str = ""
    ssh_user: str = ""
    ssh_key: Any = field(default=None, repr=False)
    schemas: tuple[str, ...] = ()

    def section(self, imported: ImportedProject, owner: str, where: str) -> dict[str, Any]:
        """Return the source's section of instep.yml; secrets become references that `imported` lists."""
        section: dict[str, Any] = {"type": self.type}
        for key, text in self.address.items():
            if text:
                value = imported.literal(owner, key, text, where)
                section[key] = int(value) if key == "port" and re.fullmatch(r"\d{1,5}", value) else value
        if self.password is not None:
            section["password"] = imported.reference(owner, "password", self.password, where)
        if tls := self._tls(imported, owner, where):
            section["tls"] = tls
        if self.ssh_host:
            section["ssh"] = self._ssh(imported, owner, where)
        if self.schemas:
            section["include"] = [f"{exact(schema)}.*" for schema in self.schemas]
        return section

    def _tls(self, imported: ImportedProject, owner: str, where: str) -> dict[str, Any]:
        mode = _TLS.get(re.sub(r"[^a-z]+", "_", self.tls.lower()), "")
        certificates = {key: value for key, value in self.certificates.items() if value}
        if mode in ("disable", "prefer", "require"):
            certificates.pop("ca", None)
        if not ("cert" in certificates and "key" in certificates):
            certificates = {key: value for key, value in certificates.items() if key == "ca"}
        tls: dict[str, Any] = {"mode": mode} if mode else {}
        for key, value in certificates.items():
            tls[key] = imported.reference(owner, f"tls.{key}", value, where)
        if certificates:
            imported.note(
                f"{owner}: certificates have several lines: export their variables, or write "
                f"`${{file:PATH}}` in their place"
            )
        return tls

    def _ssh(self, imported: ImportedProject, owner: str, where: str) -> dict[str, Any]:
        section: dict[str, Any] = {"host": imported.literal(owner, "ssh.host", self.ssh_host, where)}
        if re.fullmatch(r"\d{1,5}", self.ssh_port):
            section["port"] = int(self.ssh_port)
        section["user"] = imported.literal(owner, "ssh.user", self.ssh_user, where)
        if self.ssh_key is not None:
            section["key"] = imported.reference(owner, "ssh.key", self.ssh_key, where)
        imported.note(
            f"{owner}: add the SSH server's public key as `ssh: {{host_key: ...}}`, or have it in the user's "
            f"known_hosts; an export has no such key"
        )
        return section


def include_of(paths: list[str], *, everything: bool) -> dict[str, Any]:
    """Return the keys that read these tables, and no other one unless `everything` new is accepted."""
    return {} if everything or not paths else {"include": {"tables": [exact(path) for path in paths]}}


INCLUDED = "`include` excludes new tables: remove it after the first sync, and the policy decides about them"


def interval_of(minutes: int) -> tuple[str, str]:
    """Return (the schedule, a note) for an interval; instep's own are of a day at most."""
    if not minutes:
        return "", ""
    if minutes <= DAY_MINUTES:
        return f"every {minutes // 60}h" if minutes % 60 == 0 else f"every {minutes}m", ""
    days = round(minutes / DAY_MINUTES)
    if days >= 28:
        return "0 0 1 * *", f"every {days} days became the first of each month"
    return (
        f"0 0 */{days} * *",
        f"every {minutes / DAY_MINUTES:g} days became `0 0 */{days} * *`, which starts over each month",
    )


def cron_of(text: str) -> tuple[str, str, str]:
    """Return (five fields, time zone, why not) of a cron line of Quartz: seconds first, perhaps a year and a zone."""
    zone = _ZONE.search(text)
    fields = (text[: zone.start()] if zone else text).upper().split()
    if len(fields) not in (5, 6, 7):
        return "", "", f"{text!r} is not a cron line"
    if len(fields) > 5:
        seconds, *fields = fields
        year = fields.pop() if len(fields) == 6 else "*"
        if year != "*" or not re.fullmatch(r"\*|\d{1,2}(/\d{1,2})?", seconds):
            return "", "", f"{text!r} names years or seconds"
        quartz = True
    else:
        quartz = False
    if re.search(r"[LW#]", re.sub(r"[A-Z]{3}", "", " ".join((fields[2], fields[4])))):
        return "", "", f"{text!r} counts from the end of a month, or its weeks"
    tops = (59, 23, 31, 12, 7)
    parts = [_cron_field(field, top) for field, top in zip(fields, tops, strict=True)]
    if quartz:
        parts[4] = re.sub(r"(?<![/\d])\d", lambda m: str((int(m[0]) - 1) % 7), parts[4])
    name = {"GMT": "UTC"}.get(zone[1], zone[1]) if zone else ""
    return " ".join(parts).lower(), name, ""


def _cron_field(text: str, top: int) -> str:
    """Return one field: `?` is any value, and `5/10` begins at 5."""
    parts = ("*" if part == "?" else part for part in text.split(","))
    return ",".join(
        re.sub(r"^(\d+)/(\d+)$", rf"\1-{top}/\2", part) if part[:2] != "0/" else f"*{part[1:]}" for part in parts
    )
