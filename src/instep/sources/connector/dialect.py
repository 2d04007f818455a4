"""The differences between kinds of connectors: how it is started, what it is given, what its errors mean.

A run knows none of it: it has a child that sends frames. The kind that is written for the Connector SDK is here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from instep.errors import InstepError, ProjectError, ReadError
from instep.project.sections.connector import ConnectorLimits
from instep.project.sections.values import as_text
from instep.sources.connector.config import MIB, ConnectorConfig, Hidden
from instep.sources.connector.environment import INSTALLATION, PASSED, installs_drivers, interpreter
from instep.sources.connector.segment import LogLine
from instep.sources.stream import StreamScope

_NO_MODULE = "name its package in requirements.txt of the connector: an environment has what is there, and `requests`"
_TRACEBACK = "its traceback is in the log of the run"
_FRAME = re.compile(r'^  File "([^"<]+)", line (\d+)', re.MULTILINE)
_OF_OTHERS = ("/fivetran_connector_sdk/", "/site-packages/", "/lib/python")
"""Parts of the paths of files that are not the connector's own."""
_UNINSTALLED = f"its {INSTALLATION} is not run: does this machine have what it installs?"


@dataclass(frozen=True)
class ChildEnvironment:
    """Environment of a child process."""

    program: Path = Path(__file__).parent
    """The folder of the guard and of `sdk/`, which have to be files; folders of its own are made in `scratch`, ""
    for where the system has such."""
    scratch: str = ""

    @property
    def sdk(self) -> Path:
        return self.program / "sdk"


LOCAL_HOST = ChildEnvironment()


@dataclass(frozen=True)
class Launch:
    """A program for the guard."""

    command: tuple[str, ...]
    """Followed by the numbers of two descriptors, for frames and for answers, and by `arguments`."""
    folder: str
    """The working directory of the program."""
    environment: Mapping[str, str]
    shown: tuple[str, ...]
    """In a sandbox it sees what the system has, and the folders `shown`."""
    arguments: tuple[str, ...] = ()


class ConnectorDialect(Protocol):
    """One connector, of some kind. `end` is what a whole run comes to, for messages."""

    end: str
    lists_all: bool
    """True if a table that it does not declare any more is gone, whatever was sent of it."""
    notes_rows: bool
    """True if it may say of a row which values it could not read or had to cut."""

    @property
    def name(self) -> str: ...

    @property
    def limits(self) -> ConnectorLimits: ...

    @property
    def sandbox(self) -> bool: ...

    def check(self) -> None:
        """Raise ProjectError if it cannot be there."""
        ...

    def secrets(self) -> Iterable[tuple[str, str]]:
        """Yield the values given to the connector, by name; some are secret."""
        ...

    def launch(self, scratch: str, host: ChildEnvironment, log: Callable[[LogLine], None]) -> Launch:
        """Return what to start; `scratch` is a folder for it alone. Raises SetupError if it cannot be installed."""
        ...

    def request(self, command: str, state: Mapping[str, Any], scope: StreamScope) -> Mapping[str, Any]:
        """Return the first line that the child reads."""
        ...

    def reply(self, head: Mapping[str, Any], hidden: Hidden) -> Mapping[str, Any] | None:
        """Return the answer to a frame of this kind alone, None if there is none. It may keep what the frame says."""
        ...

    def failed(self, head: Mapping[str, Any], hidden: Hidden) -> InstepError:
        """Return the connector's own error."""
        ...

    def notices(self) -> Iterator[LogLine]:
        """Yield notices for people at the beginning of a run."""
        ...

    def look_again(self) -> Sequence[Mapping[str, Any]] | None:
        """Return the declarations after a run, None if they are the same as before."""
        ...

    def is_lenient(self, table: str) -> bool:
        """Return whether invalid values of the table (`name` or `schema.name`) are kept as texts."""
        ...

    def starts(self, state: Mapping[str, Any], table: tuple[str, str]) -> bool:
        """Return whether a run with this state sends the table from its first row on."""
        ...

    def omits(self, table: tuple[str, str]) -> bool:
        """Return whether the run that was asked for last leaves the table out."""
        ...

    def restarted(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the part of a state that survives a restart from nothing."""
        ...


def passed_environment() -> dict[str, str]:
    """Return where to find programs, certificates and proxies: nothing else of ours, which holds secrets."""
    return {name: os.environ[name] for name in PASSED if name in os.environ}


class SdkDialect:
    """A connector that is written for the Connector SDK."""

    end = "update() returned"
    lists_all = False
    notes_rows = False

    def __init__(self, config: ConnectorConfig) -> None:
        self.config = config

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def limits(self) -> ConnectorLimits:
        return self.config.limits

    @property
    def sandbox(self) -> bool:
        return self.config.sandbox

    def check(self) -> None:
        if not (Path(self.config.path) / "connector.py").is_file():
            raise ProjectError(
                f"connector {self.name}: {self.config.path} has no connector.py", hint="correct its `path`"
            )

    def secrets(self) -> Iterable[tuple[str, str]]:
        return [*as_text(self.config.configuration).items(), *self.config.environment.items()]

    def launch(self, scratch: str, host: ChildEnvironment, log: Callable[[LogLine], None]) -> Launch:
        python, folder = interpreter(self.config), os.path.realpath(self.config.path)
        environment = {
            "HOME": scratch,
            "TMPDIR": scratch,
            "PYTHONPATH": str(host.sdk),
            "PYTHONUTF8": "1",
            "MALLOC_ARENA_MAX": "2",  # address space of threads counts as memory
            "FIVETRAN_CONNECTION_ID": self.name,
            "FIVETRAN_DEPLOYMENT_MODEL": "hybrid_cloud",
        }
        base = str(Path(os.path.realpath(python)).parent.parent)
        return Launch(
            command=(str(python), "-B", "-u", str(host.sdk / "perform.py")),
            folder=folder,
            environment={**passed_environment(), **environment, **self.config.environment},
            shown=(base, str(python.parent.parent), str(host.sdk), folder),
            arguments=(folder,),
        )

    def request(self, command: str, state: Mapping[str, Any], scope: StreamScope) -> Mapping[str, Any]:
        return {"command": command, "configuration": as_text(self.config.configuration), "state": dict(state)}

    def reply(self, head: Mapping[str, Any], hidden: Hidden) -> Mapping[str, Any] | None:
        return None

    def failed(self, head: Mapping[str, Any], hidden: Hidden) -> InstepError:
        message = hidden.clean(str(head["message"]))
        match head["kind"]:
            case "told":
                hint = "the connector ended the sync with this error"
                return ReadError(f"connector {self.name}: {message}", hint=hint)
            case "exit":
                return ReadError(
                    f"connector {self.name} called exit({message}) before update() returned",
                    hint="let it return, or raise an exception that says what is wrong",
                )
            case "memory":
                return ReadError(
                    f"connector {self.name} ran out of the memory that it may use "
                    f"({self.limits.memory_bytes // MIB:,} MiB): {message}",
                    hint="send rows as they come instead of collecting them, or raise `limits.memory`",
                )
            case _:
                hint = _NO_MODULE if message.startswith("ModuleNotFoundError") else self._raised_at(head, hidden)
                hint = f"{hint}; {_UNINSTALLED}" if installs_drivers(self.config) else hint
                return ReadError(f"connector {self.name}: {message}", hint=hint)

    def _raised_at(self, head: Mapping[str, Any], hidden: Hidden) -> str:
        """Return where in the connector's own code an error was raised, and where its traceback is."""
        frames = _FRAME.findall(hidden.clean(str(head.get("trace") or "")))
        own = [(Path(file), line) for file, line in frames if not any(part in file for part in _OF_OTHERS)]
        if not own:
            return _TRACEBACK
        file, line = own[-1]
        folder = Path(self.config.path).resolve()
        shown = file.relative_to(folder) if file.is_relative_to(folder) else file.name
        return f"see {shown}, line {line}; {_TRACEBACK}"

    def notices(self) -> Iterator[LogLine]:
        if installs_drivers(self.config):
            text = f"{INSTALLATION} is not run: what it installs has to be on each machine that runs the connector"
            yield LogLine("warning", text, "instep")

    def look_again(self) -> Sequence[Mapping[str, Any]] | None:
        return None

    def is_lenient(self, table: str) -> bool:
        return self.config.is_lenient(table)

    def starts(self, state: Mapping[str, Any], table: tuple[str, str]) -> bool:
        return not state

    def omits(self, table: tuple[str, str]) -> bool:
        return False

    def restarted(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        return {}
