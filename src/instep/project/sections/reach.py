"""Access to a database server: TLS, an SSH server in between, replicas, and limits on what is asked of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from instep.project.sections.values import Port, Seconds, Secret, Section, Text, listed
from instep.project.text.references import Reference

TlsMode = Literal["disable", "prefer", "require", "verify-ca", "verify-full"]
VERIFY = ("verify-ca", "verify-full")
CERTIFICATE = "-----BEGIN"
"""The first characters of a certificate's text."""


def _wrong(text: str) -> PydanticCustomError:
    return PydanticCustomError("reach", "{text}", {"text": text})


class Tls(Section):
    """TLS settings. The default `mode` is `verify-full` with a `ca`, else `prefer`.

    Without `ca`, certificates are checked against the system's authorities. `cert` and `key` are the client's.
    """

    files: ClassVar[tuple[str, ...]] = ("ca", "cert")
    mode: TlsMode | None = None
    ca: Text = ""
    cert: Text = ""
    key: Secret = ""

    @property
    def chosen(self) -> TlsMode:
        return self.mode or ("verify-full" if self.ca else "prefer")

    def __getstate__(self) -> dict[Any, Any]:
        """Pickle the certificates as text: a task may run where their files are not."""
        state = super().__getstate__()
        return {**state, "__dict__": {**state["__dict__"], "ca": _text_of(self.ca), "cert": _text_of(self.cert)}}

    @model_validator(mode="after")
    def _fits(self) -> Tls:
        if self.ca and self.chosen not in VERIFY:
            raise _wrong("`ca` is looked at by the modes verify-ca and verify-full only: write one of them, or no ca")
        if bool(self.cert) != bool(self.key):
            raise _wrong("`cert` and `key` belong together: give both, or neither")
        if self.cert and self.chosen == "disable":
            raise _wrong("without TLS no certificate is shown: leave `cert` and `key` out, or set another mode")
        return self


def _text_of(file: str) -> str:
    """Return a certificate's text in place of its path; a file that cannot be read is left to whoever needs it."""
    if file and CERTIFICATE not in file:
        with suppress(OSError, UnicodeDecodeError):
            if CERTIFICATE in (text := Path(file).read_text(encoding="ascii")):
                return text
    return file


def _no_option(value: str | Reference) -> str | Reference:
    """Refuse what the program `ssh` could take for an option."""
    if isinstance(value, str) and not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._:@+-]*", value):
        raise _wrong(f"{value!r} is not the name of a host or user")
    return value


SshName = Annotated[Text, AfterValidator(_no_option)]


class SshSection(Section):
    """An SSH server to go through. `key` is a private key's text; without it the ssh-agent and the keys in ~/.ssh are
    tried. `host_key` is the server's public key (`ssh-ed25519 AAAA...`), `known_hosts` a file with it, else the user's.
    """

    files: ClassVar[tuple[str, ...]] = ("known_hosts",)
    host: SshName
    port: Port = 22
    user: SshName
    key: Secret = ""
    known_hosts: Text = ""
    host_key: Text = ""

    @property
    def place(self) -> str:
        """`user@host:port`, for messages."""
        return f"{self.user}@{self.host}:{self.port}"

    @model_validator(mode="after")
    def _one_place(self) -> SshSection:
        if self.known_hosts and self.host_key:
            raise _wrong("`known_hosts` and `host_key` both say which host keys are known: give one of them")
        return self


def _replica(value: str) -> str:
    host, _, port = value.rpartition(":") if ":" in value and not value.endswith("]") else (value, "", "")
    if not host or (port and not port.isdecimal()):
        raise _wrong(f"{value!r} must be host or host:port")
    return value


def _plain_name(value: str) -> str:
    if len(value) > 63 or not value.isascii() or not value.isprintable():
        raise _wrong("must be up to 63 printable ASCII characters")
    return value


Replicas = Annotated[
    tuple[Annotated[str, AfterValidator(_replica)], ...],
    BeforeValidator(listed, json_schema_input_type=str | list[str]),
]
ApplicationName = Annotated[str, Field(min_length=1), AfterValidator(_plain_name)]
RowsPerSecond = Annotated[float, Field(ge=0)]


def _enough(value: int) -> int:
    if value == 1:
        raise _wrong("must be at least 2: one connection keeps the read point, the others read; 0: no limit")
    return value


MaxConnections = Annotated[int, Field(ge=0), AfterValidator(_enough)]


class ServerSection(Section):
    """Settings of every database server."""

    tls: Tls = Tls()
    ssh: SshSection | None = None
    read_replica: Replicas = ()
    statement_timeout: Seconds = 0
    max_connections: MaxConnections = 0
    rows_per_second: RowsPerSecond = 0
    application_name: ApplicationName = "instep"


def former(data: Any, keys: Mapping[str, str], modes: Mapping[str, str]) -> Any:
    """Return a source with the flat keys that `tls` replaced: `keys` maps them to its own, `modes` their words."""
    flat_keys = [key for key in keys if data.get(key) is not None] if isinstance(data, dict) else []
    if not flat_keys:
        return data
    if data.get("tls") is not None:
        text = f"is the former spelling of tls.{keys[flat_keys[0]]}: write it there"
        raise PydanticCustomError("reach", "{text}", {"text": text, "name": flat_keys[0]})
    tls = {keys[key]: data[key] for key in flat_keys}
    mode, key = tls.get("mode"), tls.get("key")
    if "mode" in tls and (not isinstance(mode, str) or modes.get(mode, mode) not in get_args(TlsMode)):
        allowed = [*get_args(TlsMode), *modes]
        text = f"must be one of {', '.join(map(repr, allowed))}"
        raise PydanticCustomError("reach", "{text}", {"text": text, "name": flat_keys[list(tls).index("mode")]})
    if isinstance(mode, str):
        tls["mode"] = "verify-ca" if mode == "require" and "sslrootcert" in flat_keys else modes.get(mode, mode)
    if isinstance(key, str):
        tls["key"] = Reference(f"${{file:{key}}}")
    return {**{name: value for name, value in data.items() if name not in keys}, "tls": tls}
