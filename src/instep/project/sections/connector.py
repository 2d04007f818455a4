"""A connector as a source: where it is, what it is given, how much of the machine it may use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from instep.errors import ProjectError
from instep.project.sections.file_settings import CONNECTORS
from instep.project.sections.values import Environment, Patterns, Properties, Seconds, Section, Text

_UNITS = {"KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}


def _bytes(value: str) -> str:
    number, unit = value[:-2].strip(), value[-2:].upper()
    if value != "0" and not (unit in _UNITS and number.isdigit()):
        raise PydanticCustomError("size", "must be a size such as 500MB or 2GB, or 0 for no limit")
    return value


Size = Annotated[str, AfterValidator(_bytes), Field(pattern=r"^(0|\d+ ?[KMGkmg][Bb])$")]


def size(text: str) -> int:
    """Return the size in bytes."""
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

    @property
    def memory_bytes(self) -> int:
        return size(self.memory)

    @property
    def file_bytes(self) -> int:
        return size(self.file)


class ConnectorServer(Section):
    """`path` of the folder with `connector.py`. `configuration`: what it is given, or `configuration_file`, a JSON file
    of it (the former goes before the latter). `python`: the interpreter of its environment. `environment`: variables
    that it may read. `keep_invalid_values`: tables whose values are kept as text where they do not fit their declared
    type."""

    files: ClassVar[tuple[str, ...]] = ("path", "configuration_file")
    path: Text
    configuration: Properties = Field(default_factory=dict)
    configuration_file: str = ""
    python: Text = ""
    environments: Text = ""
    environment: Environment = Field(default_factory=dict)
    sandbox: bool = False
    keep_invalid_values: Patterns = ()
    limits: ConnectorLimits = ConnectorLimits()

    def whole(self) -> Self:
        """Return it with the whole configuration as texts; ProjectError for a file that is none."""
        values = {k: v if isinstance(v, str) else json.dumps(v) for k, v in self.configuration.items()}
        read = _read(self.configuration_file) if self.configuration_file else {}
        return self.model_copy(update={"configuration": read | values, "configuration_file": ""})


def _read(file: str) -> dict[str, str]:
    """Return a flat object of texts."""
    try:
        document = json.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        why = f"cannot be read: {error.strerror}" if isinstance(error, OSError) else "is not JSON"
        raise ProjectError(f"the connector's configuration {file} {why}", hint="correct it in the project") from None
    if not isinstance(document, dict) or not all(isinstance(v, str) for v in document.values()):
        raise ProjectError(
            f"the connector's configuration {file} is not an object of texts", hint='write {"name": "value"}'
        )
    return document


def segments_folder(root: Path, connection: str) -> Path:
    """Return where the operations of a connection's runs are, and those that wait."""
    return root / ".instep" / CONNECTORS / connection


def uploads_folder(root: Path, connection: str) -> Path:
    """Return where the files are that belong to rows of a connection."""
    return root / "uploads" / connection
