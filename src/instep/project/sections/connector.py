"""A connector as a source: where it is, what it is given, how much of the machine it may use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field, ValidationInfo
from pydantic_core import PydanticCustomError

from instep.errors import ProjectError
from instep.project.sections.folders import CONNECTORS
from instep.project.sections.values import Patterns, Seconds, Section, Text, check_property

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
    """Limits of one sync. `time` limits the whole run, not counting the time it waits for instep; `silence` the time
    without a sign of life; `checkpoints` how often in a row the same state may be saved; `ahead` how many segments the
    connector may be ahead of the destination (1: each checkpoint is a segment). 0: no limit."""

    time: Seconds = 6 * 3600
    silence: Seconds = 3600
    memory: Size = "2GB"
    file: Size = "4GB"
    checkpoints: Annotated[int, Field(ge=0)] = 10_000
    ahead: Annotated[int, Field(ge=1, le=1000)] = 16

    def arguments(self) -> dict[str, Any]:
        return {
            "seconds": self.time,
            "silence": self.silence,
            "memory": size(self.memory),
            "file_bytes": size(self.file),
            "checkpoints": self.checkpoints,
            "ahead": self.ahead,
        }


class ConnectorServer(Section):
    """`path` of the folder with `connector.py`. `configuration`: what it is given, or `configuration_file`, a JSON file
    of it (the former goes before the latter). `python`: the interpreter of its environment. `environment`: variables
    that it may read. `keep_invalid_values`: tables whose values are kept as text where they do not fit their declared
    type."""

    files: ClassVar[tuple[str, ...]] = ("path", "configuration_file")
    path: Text
    configuration: Annotated[dict[str, Text | bool | int | float], AfterValidator(_given)] = Field(default_factory=dict)
    configuration_file: str = ""
    python: Text = ""
    environments: Text = ""
    environment: Annotated[dict[str, Text], AfterValidator(_given)] = Field(default_factory=dict)
    sandbox: bool = False
    keep_invalid_values: Patterns = ()
    limits: ConnectorLimits = ConnectorLimits()

    def arguments(self) -> dict[str, Any]:
        out = super().arguments()
        file = out.pop("configuration_file")
        read = _read(file) if file else {}
        given = {k: v if isinstance(v, str) else json.dumps(v) for k, v in self.configuration.items()}
        return {
            **out,
            "configuration": {**read, **given},
            "environment": dict(self.environment),
            "limits": self.limits.arguments(),
        }


def _read(file: str) -> dict[str, str]:
    """Return a flat object of texts."""
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


def segments_folder(root: Path, connection: str) -> Path:
    """Return where the operations of a connection's runs are, and those that wait."""
    return root / ".instep" / CONNECTORS / connection


def uploads_folder(root: Path, connection: str) -> Path:
    """Return where the files are that belong to rows of a connection."""
    return root / "uploads" / connection
