"""The program of an Airbyte connector: a package in an environment of its own, a command, or a low-code manifest.

An environment is made once for a package, its version and its Python, and kept; it sees nothing of this program's own
packages. A manifest is run by the CDK, which has an environment as well.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from instep.errors import ProjectError, SetupError
from instep.project.text.foreign import read_foreign
from instep.sources.airbyte.config import AirbyteConfig
from instep.sources.connector.environment import READY, REFUSED, cache_folder, install, locked
from instep.sources.connector.environment import newest as newest_version
from instep.sources.connector.segment import LogLine

CDK = "airbyte-cdk==7.39.1"
"""The package that runs manifests."""
MANIFEST_PROGRAM = "source-declarative-manifest"
MAX_MANIFEST = 8 << 20
"""Bytes of a manifest."""
_VERSION = 1
_PIN = re.compile(r"([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)(\[[A-Za-z0-9._, -]+\])?\s*==\s*([A-Za-z0-9][\w.!+-]*)")
_LICENCE = re.compile(r"fivetran[-_.]+connector[-_.]+sdk(?:[-_.]+core)?", re.IGNORECASE)
_CUSTOM_CODE = "AIRBYTE_ENABLE_UNSAFE_CODE"
_NO_REPORTS = {"DO_NOT_TRACK": "1", "AIRBYTE_OFFLINE_MODE": "1", "AIRBYTE_TRACKING_STRATEGY": "logging"}
"""A connector reports its use to nobody."""


@dataclass(frozen=True)
class Program:
    """A connector that can be started."""

    argv: tuple[str, ...]
    """The program and its first arguments; the command of the protocol comes after them."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that it needs beside those of the configuration."""
    version: str = ""
    """Identity of the code: answers that do not depend on the source are valid as long as it is the same."""
    options: tuple[str, ...] = ()
    """Arguments behind those of every command but `spec`."""
    folders: tuple[str, ...] = ()
    """Folders and files that it reads, for a sandbox."""
    manifest: Mapping[str, Any] | None = field(default=None, repr=False)
    """The low-code manifest, if it is one."""

    def command(self, name: str, *arguments: str) -> tuple[str, ...]:
        """Return the words that start a command of the protocol."""
        return (*self.argv, name, *arguments, *(self.options if name != "spec" else ()))


@dataclass(frozen=True)
class Pin:
    """A package in one version, as a project file names it."""

    package: str
    version: str
    extras: str = ""

    @classmethod
    def parse(cls, text: str) -> Pin:
        """Return the pin that a text is. Raises ProjectError for another form, or a package of the licence rule."""
        if (match := _PIN.fullmatch(text.strip())) is None:
            raise ProjectError(
                f"{text!r} names no package in one version", hint="pin it: `package: airbyte-source-faker==7.2.1`"
            )
        if _LICENCE.fullmatch(match[1]):
            raise ProjectError(
                f"the package {match[1]} is not installed: its licence does not allow what instep does",
                hint="name an Airbyte connector, such as airbyte-source-faker==7.2.1",
            )
        return cls(match[1], match[3], match[2] or "")

    @property
    def name(self) -> str:
        """The name of the package as an index compares it."""
        return re.sub(r"[-_.]+", "-", self.package).lower()

    @property
    def script(self) -> str:
        """The name of the program: the package's without `airbyte-`."""
        return self.name.removeprefix("airbyte-")

    def at(self, version: str) -> Pin:
        """Return the same package in another version."""
        return Pin.parse(f"{self.package}{self.extras}=={version}")

    def __str__(self) -> str:
        return f"{self.package}{self.extras}=={self.version}"


def program(config: AirbyteConfig, log: Callable[[LogLine], None]) -> Program:
    """Return the connector's program; its environment is made if it is not there.

    Raises SetupError with what pip said if that fails, ProjectError for what the project file may not name.
    """
    if config.package:
        return _packaged(config, Pin.parse(config.package), log)
    return _with_manifest(config, log) if config.manifest else _commanded(config)


def _packaged(config: AirbyteConfig, pin: Pin, log: Callable[[LogLine], None]) -> Program:
    folder = environment(config, pin, log)
    script = _script(folder, pin, config.name)
    argv = (str(folder / "bin" / "python"), str(script))
    return Program(argv, _NO_REPORTS, str(pin), folders=(str(folder),))


def _commanded(config: AirbyteConfig) -> Program:
    first, *more = config.command
    path = str(Path(config.folder) / first) if "/" in first else first
    if (executable := shutil.which(path)) is None:
        raise ProjectError(
            f"connector {config.name}: program {first} was not found, or cannot be run",
            hint="correct `command` of its source in instep.yml, or install the program",
        )
    base = Path(config.folder)
    words = (executable, *(str(base / one) if (base / one).is_file() else one for one in more))
    read = tuple(one for one in words if Path(one).is_file())
    parts = [*config.command, *((one, _file_digest(Path(one))) for one in read)]
    digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
    return Program(words, _NO_REPORTS, f"command {digest}", folders=(*read, *_virtual_environment(Path(executable))))


def _virtual_environment(executable: Path) -> tuple[str, ...]:
    """Return the folders of the virtual environment that a program is in, and of its Python; () for another program."""
    file = executable.parent.parent / "pyvenv.cfg"
    if not file.is_file():
        return ()
    pairs = [line.partition("=") for line in file.read_text("utf-8").splitlines()]
    homes = [value.strip() for name, _, value in pairs if name.strip() == "home"]
    return (str(file.parent), *(str(Path(home).parent) for home in homes))


def _with_manifest(config: AirbyteConfig, log: Callable[[LogLine], None]) -> Program:
    file = Path(config.manifest)
    text, manifest = read_manifest(file, config.name)
    components = file.with_name("components.py")
    own = components.is_file()
    custom = list(dict.fromkeys(_custom(manifest)))
    if (custom or own) and not config.custom_code:
        what = f"its own Python code ({', '.join(custom[:5])})" if custom else f"Python code ({components.name})"
        raise ProjectError(
            f"connector {config.name}: the manifest {file.name} needs {what}, which is not allowed",
            hint="read that code, then set `custom_code: true` at the source in instep.yml",
        )
    folder = environment(config, Pin.parse(CDK), log)
    argv = (str(folder / "bin" / "python"), str(folder / "bin" / MANIFEST_PROGRAM))
    code = ("--components-path", str(components)) if own else ()
    digest = hashlib.sha256(text + (components.read_bytes() if own else b"")).hexdigest()[:16]
    variables = {**_NO_REPORTS, **({_CUSTOM_CODE: "true"} if config.custom_code else {})}
    options = ("--manifest-path", str(file), *code)
    return Program(argv, variables, f"{CDK} {digest}", options, (str(folder), str(file.parent)), manifest)


def read_manifest(file: Path, name: str) -> tuple[bytes, Mapping[str, Any]]:
    """Return the text and the content of a low-code manifest; ProjectError if it is none."""
    hint = "correct `manifest` of its source in instep.yml"
    try:
        text = file.read_bytes()[: MAX_MANIFEST + 1]
        manifest = read_foreign(text) if len(text) <= MAX_MANIFEST else None
    except OSError as error:
        raise ProjectError(f"connector {name}: {file} cannot be read: {error.strerror}", hint=hint) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        line = f" (line {mark.line + 1})" if (mark := getattr(error, "problem_mark", None)) else ""
        why = getattr(error, "problem", None) or "it cannot be read as such"
        raise ProjectError(f"connector {name}: {file} is not YAML{line}: {why}", hint=hint) from None
    if not isinstance(manifest, dict) or "streams" not in manifest or "check" not in manifest:
        raise ProjectError(
            f"connector {name}: {file} is not a low-code manifest: it has no `streams` and `check`", hint=hint
        )
    return text, manifest


def _custom(value: Any, seen: set[int] | None = None, depth: int = 0) -> Iterator[str]:
    """Yield the classes that a manifest takes from Python code. A name that is referred to may be one; a part that
    stands in several places is looked at once."""
    seen = set() if seen is None else seen
    if not isinstance(value, Mapping | list) or id(value) in seen:
        return
    seen.add(id(value))
    if depth > 100:
        yield "parts that are nested too deeply to be looked at"
    elif isinstance(value, Mapping):
        name, kind = value.get("class_name"), value.get("type", "")
        if isinstance(name, str) or _refers(name):
            yield str(name)
        elif str(kind).startswith("Custom") or _refers(kind) or "__injected_components_py" in value:
            yield str(kind or "__injected_components_py")
        for one in value.values():
            yield from _custom(one, seen, depth + 1)
    else:
        for one in value:
            yield from _custom(one, seen, depth + 1)


def _refers(value: Any) -> bool:
    return isinstance(value, Mapping) and "$ref" in value


def environment(config: AirbyteConfig, pin: Pin, log: Callable[[LogLine], None]) -> Path:
    """Return the folder of the environment of a package in one version, which is made if it is not there.

    Of several processes one makes it; one that was interrupted is made again.
    """
    base = _interpreter(config)
    parts = [_VERSION, pin.name, pin.extras, pin.version, os.path.realpath(shutil.which(base) or base), sys.version]
    digest = hashlib.sha256(json.dumps([*parts, REFUSED]).encode()).hexdigest()[:16]
    folder = (Path(config.environments) if config.environments else cache_folder() / "airbyte") / digest
    with locked(folder):
        if not (folder / READY).exists():
            log(LogLine("info", f"installing {pin} into its own environment", "instep"))
            shutil.rmtree(folder, ignore_errors=True)
            _make(folder, base, pin, config.name)
            (folder / READY).touch()
    return folder


def newest(config: AirbyteConfig, pin: Pin) -> Pin:
    """Return the newest version of a package that pip finds. Raises SetupError if it finds none."""
    base = _interpreter(config)
    version = newest_version(f"{pin.package}{pin.extras}", base, f"connector {config.name}: {pin.package}", _hint(base))
    return pin.at(version)


def metadata_text(config: AirbyteConfig, pin: Pin, log: Callable[[LogLine], None]) -> str:
    """Return the metadata.yaml that a package brings, "" if it brings none."""
    folder = environment(config, pin, log)
    pattern = f"{re.sub(r'[-_.]+', '_', pin.name)}-*.dist-info/RECORD"
    for record in folder.glob(f"lib/python3*/site-packages/{pattern}"):
        for line in record.read_text(encoding="utf-8").splitlines():
            file = record.parent.parent / line.partition(",")[0]
            if file.name == "metadata.yaml" and file.is_file():
                return file.read_text(encoding="utf-8", errors="replace")[:MAX_MANIFEST]
    return ""


def _interpreter(config: AirbyteConfig) -> str:
    return config.python or str(getattr(sys, "_base_executable", sys.executable))


def _make(folder: Path, base: str, pin: Pin, name: str) -> None:
    owner, hint = f"connector {name}: package {pin}", _hint(base)
    try:
        install(folder, base, [str(pin)], owner, hint)
    except SetupError as error:
        if _LICENCE.search(error.message):
            raise _refused(name, pin) from error
        raise
    if any(_LICENCE.match(one.name) for one in folder.glob("lib/python3*/site-packages/*.dist-info")):
        shutil.rmtree(folder)
        raise _refused(name, pin)


def _hint(base: str) -> str:
    return (
        f"check the version, and that pip reaches its index; {Path(base).name} may be too new or too old for it: "
        "`python` of the source names another interpreter"
    )


def _refused(name: str, pin: Pin) -> ProjectError:
    return ProjectError(
        f"connector {name}: {pin} requires a package that instep never installs because of its licence "
        "(fivetran-connector-sdk 3 or later, fivetran-connector-sdk-core)",
        hint="choose another version of the connector, or run it as a `command:` of your own",
    )


def _script(folder: Path, pin: Pin, name: str) -> Path:
    """Return the file that starts a package's connector."""
    scripts = folder / "bin"
    if (script := scripts / pin.script).is_file():
        return script
    others = sorted(one.name for one in scripts.glob("source-*") if one.name != MANIFEST_PROGRAM)
    if len(others) == 1:
        return scripts / others[0]
    there = f"it has {', '.join(others)}" if others else "it has no program that is called source-..."
    raise ProjectError(
        f"connector {name}: the package {pin} has no program {pin.script}; {there}",
        hint="name a connector in `package` of its source; database connectors of Airbyte are not Python packages",
    )


def _file_digest(file: Path) -> str:
    with file.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()
