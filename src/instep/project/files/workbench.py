"""The folder in which a developer tries a connector: what the connector is given, and `files/` beside its code.

`files/` holds a project of its own (`instep.yml`, `.instep/`), so that every command works on what a trial has brought.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from instep.errors import ProjectError
from instep.project.files.policy_files import read_policy
from instep.project.load import FILE_NAME, load
from instep.project.project import Project
from instep.project.sections.policies import PolicySection, is_word
from instep.schema.policy.presets import PRESETS

CONNECTOR = "connector.py"
CONFIGURATION = "configuration.json"
ENVIRONMENT = {"FIVETRAN_DEPLOYMENT_MODEL": "local_debug"}
"""By which connectors tell a trial from a sync."""
MAX_FIELDS = 100
MAX_BYTES = 10 << 20
"""Of a configuration or state."""
_PROJECT = """\
# Written by `instep connector` at every start: what a trial has brought, for commands such as
# `instep --project files query "select ..."`.
version: 1
project: {name}
engine: {engine}
sources:
  connector:
    type: connector
    path: {path}{configuration}
    environment: {environment}
destinations:
  {target}: {destination}
policies:
  trial: {policy}
connections:
  {target}: {{source: connector, destination: {target}, namespace: main, policy: trial}}
"""


@dataclass(frozen=True)
class WorkbenchTarget:
    """Target of a trial: a DuckDB file, or a folder that becomes an Iceberg lake."""

    path: Path
    name: str
    """Name of the destination and of the connection in the trial's project: each has a state and accepted schemas of
    its own."""

    @property
    def kind(self) -> str:
        return "duckdb" if self.path.suffix in (".db", ".duckdb", ".ddb") else "iceberg"

    @property
    def section(self) -> str:
        """Return the destination's section of the project file."""
        key = "path" if self.kind == "duckdb" else "warehouse"
        return f"{{type: {self.kind}, {key}: {json.dumps(str(self.path))}}}"


@dataclass(frozen=True)
class Workbench:
    """The folder in which a connector is developed."""

    folder: Path
    configuration: Mapping[str, str] = field(repr=False)
    configuration_file: Path | None
    state: Path
    """The file that a debug run begins from and leaves its state in."""
    policy: PolicySection = field(default_factory=PolicySection)
    """Policy that decides about changes."""
    variables: tuple[str, ...] = ()
    """Variables of the developer's environment that the connector may read."""

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment variables that the connector is given."""
        return {**ENVIRONMENT, **{name: os.environ[name] for name in self.variables}}

    @property
    def files(self) -> Path:
        return self.folder / "files"

    @property
    def warehouse(self) -> WorkbenchTarget:
        """The destination that debug runs fill."""
        return WorkbenchTarget(self.files / "warehouse.db", "debug")

    def target(self, chosen: Path | None) -> WorkbenchTarget:
        """Return a destination that was named, by default the lake in `files/`."""
        path = (chosen or self.files / "lake").absolute()
        return (
            self.warehouse
            if path == self.warehouse.path
            else WorkbenchTarget(path, f"run_{sha256(str(path).encode()).hexdigest()[:8]}")
        )

    def project(self, target: WorkbenchTarget) -> Project:
        """Return a project that runs the connector into `target`; nothing of the configuration stands in it."""
        file = self.configuration_file
        environment = {**ENVIRONMENT, **{name: f"${{env:{name}}}" for name in self.variables}}
        text = _PROJECT.format(
            name=json.dumps(self.folder.name),
            path=json.dumps(str(self.folder)),
            configuration=f"\n    configuration_file: {json.dumps(str(file))}" if file else "",
            environment=json.dumps(environment),
            target=target.name,
            destination=target.section,
            policy=self.policy.model_dump_json(exclude_unset=True),
            engine="local" if target.kind == "duckdb" else "spark",
        )
        self.files.mkdir(exist_ok=True)
        (self.files / FILE_NAME).write_text(text, encoding="utf-8")
        return load(self.files)

    def read_state(self) -> dict[str, Any]:
        """Return the state, {} if there is no file."""
        return _json_object(self.state) if self.state.exists() else {}

    def write_state(self, state: Mapping[str, Any]) -> None:
        self.state.parent.mkdir(parents=True, exist_ok=True)
        self.state.write_text(json.dumps(state, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def workbench(
    folder: Path,
    configuration: Path | None = None,
    state: Path | None = None,
    policy: str = "",
    variables: Sequence[str] = (),
) -> Workbench:
    """Return the connector in `folder`; ProjectError if there is none, or what it is given is not what connectors take.
    `policy` is a preset, a file with one policy, or "" for what a connection without one has. `variables` are names."""
    where = folder.absolute()
    if not (where / CONNECTOR).is_file():
        raise ProjectError(f"there is no {CONNECTOR} in {folder}", hint="write one with `instep connector init`")
    file = configuration.absolute() if configuration else where / CONFIGURATION
    configured = file if configuration or file.exists() else None
    values = read_configuration(file) if configured else {}
    if state is not None and not state.exists():
        raise ProjectError(f"{state} does not exist", hint="name a file with a JSON object: the state to start from")
    for name in variables:
        if "=" in name:
            raise ProjectError(
                f"--env {name.partition('=')[0]}=...: a variable is given by its name alone",
                hint="set it in your environment, where its value is taken from: others can see command lines",
            )
        if name not in os.environ:
            raise ProjectError(f"there is no environment variable {name}", hint="set it, or leave --env away")
    state_file = (state or where / "files" / "state.json").absolute()
    return Workbench(where, values, configured, state_file, _policy(policy), tuple(variables))


def _policy(name: str) -> PolicySection:
    if not name:
        return PolicySection()
    if is_word(name):
        return PolicySection(preset=name)
    if not Path(name).is_file():
        raise ProjectError(
            f"there is no preset and no file {name!r}",
            hint=f"presets are {', '.join(PRESETS)}; see docs/guides/policies.md",
        )
    return read_policy(Path(name))


def read_configuration(file: Path) -> dict[str, str]:
    """Return a flat JSON object whose values are all strings. ProjectError names the field, never its value."""
    json_object = _json_object(file)
    if len(json_object) > MAX_FIELDS:
        raise ProjectError(f"{file} has {len(json_object)} fields", hint=f"a configuration has at most {MAX_FIELDS}")
    for name, value in json_object.items():
        if not isinstance(value, str):
            kind = type(value).__name__
            raise ProjectError(
                f"{file}: {name} is of type {kind}, and every value of a configuration is a string",
                hint=f'put it in quotes: "{name}": "..."',
            )
    return json_object


def _json_object(file: Path) -> dict[str, Any]:
    try:
        if file.stat().st_size > MAX_BYTES:
            raise ProjectError(f"{file} is larger than {MAX_BYTES >> 20} MB", hint="keep only what is needed in it")
        value = json.loads(file.read_text(encoding="utf-8-sig"))
    except json.JSONDecodeError as error:
        what = f"{file}:{error.lineno}: not JSON: {error.msg}"
        raise ProjectError(what, hint="correct it; a JSON object is expected") from None
    except RecursionError:
        raise ProjectError(f"{file} is nested too deeply", hint="a flat JSON object is expected") from None
    except UnicodeDecodeError:
        raise ProjectError(f"{file} is not UTF-8 text", hint="save it as UTF-8") from None
    except OSError as error:
        raise ProjectError(f"{file} cannot be read: {error.strerror}", hint="check the path") from None
    if not isinstance(value, dict):
        raise ProjectError(f"{file} holds no JSON object", hint='write {"name": "value"}')
    return value
