"""A connector that speaks Airbyte's protocol as a source: what starts it, what it is given, what it may use."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

from instep.project.sections.connector import ConnectorLimits
from instep.project.sections.values import Environment, Patterns, Section, Text, check_property, listed

_PINNED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9._,-]+\])?==[A-Za-z0-9][A-Za-z0-9.!+_-]*")


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each single value of a document with the name that it is under; those of a list have the list's."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from leaves(item, str(key))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from leaves(item, name)
    else:
        yield name, value


def _pinned(value: str) -> str:
    if value and not _PINNED.fullmatch(value):
        raise PydanticCustomError("pattern", "{why}", {"why": f"{value!r} names no version: write NAME==VERSION"})
    return value


def _unresolved_checked(value: Mapping[str, Any], info: ValidationInfo) -> Mapping[str, Any]:
    """Refuse a value that looks like a secret and is no reference, however deep it lies."""
    if not (info.context and info.context.get("resolved")):
        for name, item in leaves(value):
            check_property(name, item)
    return value


Configuration = Annotated[dict[str, Any], AfterValidator(_unresolved_checked)]
Pinned = Annotated[Text, AfterValidator(lambda value: _pinned(value) if isinstance(value, str) else value)]
CommandLine = Annotated[tuple[Text, ...], BeforeValidator(listed, json_schema_input_type=str | list[str])]


class AirbyteServer(Section):
    """Exactly one of `package` (a Python package with its version, `airbyte-source-faker==7.2.1`, which gets an
    environment of its own), `command` (a program and its arguments; relative paths begin at the project's folder) and
    `manifest` (the file of a low-code connector; `custom_code`: it may run Python code of its own). `metadata`: a file
    with the `breakingChanges` of its versions. `configuration`: what the connector's own specification asks for.
    `python`: the interpreter of its environment. `environment`: variables that it may read. `flatten`: tables whose
    nested objects become columns. `limits`: `silence` is how long it may send nothing at all."""

    files: ClassVar[tuple[str, ...]] = ("manifest", "metadata")
    package: Pinned = ""
    command: CommandLine = ()
    manifest: Text = ""
    custom_code: bool = False
    metadata: Text = ""
    configuration: Configuration = Field(default_factory=dict)
    python: Text = ""
    environments: Text = ""
    environment: Environment = Field(default_factory=dict)
    sandbox: bool = False
    flatten: Patterns = ()
    limits: ConnectorLimits = ConnectorLimits()

    @property
    def program(self) -> str:
        """The digest of what starts the connector, as the file has it: another one may have another specification."""
        parts = [str(self.package), [*map(str, self.command)], str(self.manifest)]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]

    @model_validator(mode="after")
    def _one_program(self) -> Self:
        if sum(map(bool, (self.package, self.command, self.manifest))) != 1:
            raise PydanticCustomError(
                "airbyte_program", "{why}", {"why": "must have exactly one of package, command and manifest"}
            )
        return self
