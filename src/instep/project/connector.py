"""A connector as a source: where it is, what it is given, how much of the machine it may use."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field, ValidationInfo
from pydantic_core import PydanticCustomError

from instep.errors import ProjectError
from instep.project.values import Patterns, Seconds, Section, Text, check_property

FOLDER = "connectors"
"""Below the project's folder: where connectors are that the server may run for whoever writes sources over it."""
_CHOOSES_CODE = re.compile(r"(?i)(PYTHON|LD_|DYLD_|PIP_|PATH$|HOME$|BASH_ENV$)")
_UNITS = {"KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}


def _given(value: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
    """What looks like a secret has to be a reference."""
    if not (info.context and info.context.get("resolved")):
        for name, text in value.items():
            check_property(name, text)
    return value


def _bytes(value: str) -> str:
    number, unit = value[:-2].strip(), value[-2:].upper()
    if value != "0" and not (unit in _UNITS and number.isdigit()):
        raise PydanticCustomError("size", "must be a size such as 500MB or 2GB, or 0 for no limit")
    return value


Size = Annotated[str, AfterValidator(_bytes), Field(pattern=r"^(0|\d+ ?[KMGkmg][Bb])$")]


def size(text: str) -> int:
    """Bytes."""
    return 0 if text == "0" else int(text[:-2]) * _UNITS[text[-2:].upper()]


class ConnectorLimits(Section):
    """What one sync may use. `time` is that of the whole run without what it waited for us, `silence` the time without
    any sign of life, `checkpoints` how often in a row the same state may be saved, `ahead` how many checkpoints the
    connector may be ahead of the destination. 0: no limit."""

    time: Seconds = 6 * 3600
    silence: Seconds = 3600
    memory: Size = "2GB"
    file: Size = "4GB"
    checkpoints: Annotated[int, Field(ge=0)] = 10_000
    ahead: Annotated[int, Field(ge=1, le=1000)] = 16

    def arguments(self) -> dict[str, Any]:
        return {
            "seconds": self.time, "silence": self.silence, "memory": size(self.memory), "file_bytes": size(self.file),
            "checkpoints": self.checkpoints, "ahead": self.ahead,
        }  # fmt: skip


class ConnectorServer(Section):
    """`path` of the folder with `connector.py`. `configuration`: what it is given, or `configuration_file`, a JSON file
    of it (the former goes before the latter). `python`: the interpreter of its environment. `environment`: variables
    that it may read. `keeps_misfits`: tables of which values that do not fit their declared type are kept as text."""

    files: ClassVar[tuple[str, ...]] = ("path", "configuration_file")
    path: Text
    configuration: Annotated[dict[str, Text | bool | int | float], AfterValidator(_given)] = Field(default_factory=dict)
    configuration_file: str = ""
    python: Text = ""
    environments: Text = ""
    environment: Annotated[dict[str, Text], AfterValidator(_given)] = Field(default_factory=dict)
    sandbox: bool = False
    keeps_misfits: Patterns = ()
    limits: ConnectorLimits = ConnectorLimits()

    def arguments(self) -> dict[str, Any]:
        out = super().arguments()
        file = out.pop("configuration_file")
        read = _read(file) if file else {}
        given = {k: v if isinstance(v, str) else json.dumps(v) for k, v in self.configuration.items()}
        return {
            **out, "configuration": {**read, **given}, "environment": dict(self.environment),
            "limits": self.limits.arguments(),
        }  # fmt: skip


def _read(file: str) -> dict[str, str]:
    """A flat object of texts."""
    try:
        said = json.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        why = f"cannot be read: {error.strerror}" if isinstance(error, OSError) else "is not JSON"
        raise ProjectError(f"the connector's configuration {file} {why}", hint="correct it in the project") from None
    if not isinstance(said, dict) or not all(isinstance(v, str) for v in said.values()):
        raise ProjectError(
            f"the connector's configuration {file} is not an object of texts", hint='write {"name": "value"}'
        )
    return said


def reaching_out(section: ConnectorServer, root: Path) -> Iterator[tuple[tuple[str, ...], str]]:
    """(place, why) of what a connector must not say that was not written by who owns the machine: its code runs here,
    so that it has to be one of those in `FOLDER`, with nothing that leads to other code or to others' files."""
    shelf, path = _real(root, FOLDER), _real(root, str(section.path))
    if shelf is None or path is None or shelf not in path.parents:
        yield ("path",), f"must be a folder below {FOLDER}/ of the project: what the server keeps runs no other code"
    if section.configuration_file:
        file = _real(root, str(section.configuration_file))
        if file is None or path not in file.parents:
            yield ("configuration_file",), "must be a file in the connector's own folder"
    for name in ("python", "environments"):
        if getattr(section, name):
            yield (name,), "names a place on the machine: only a connector of instep.yml may say that"
    for name in section.environment:
        if _CHOOSES_CODE.match(name):
            yield ("environment", name), "decides which code runs: only a connector of instep.yml may say that"


def _real(root: Path, said: str) -> Path | None:
    """Where it leads, links followed; None if that cannot be told."""
    try:
        return None if "://" in said else (root / Path(said).expanduser()).resolve()
    except (OSError, RuntimeError, ValueError):
        return None


def segments_folder(root: Path, connection: str) -> Path:
    """Where the operations of a connection's runs are, and those that wait."""
    return root / ".instep" / FOLDER / connection


def uploads_folder(root: Path, connection: str) -> Path:
    """Where the files are that belong to rows of a connection."""
    return root / "uploads" / connection
