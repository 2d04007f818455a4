"""The virtual environment of a connector, made once for what it requires and kept.

Each connector has one, also those that require nothing: none sees the packages of this program, so that an upgrade of
ours changes no connector. `requests` is in all of them, as connectors expect.
"""

from __future__ import annotations

import codecs
import fcntl
import hashlib
import importlib.metadata
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

from instep.errors import ProjectError, SetupError
from instep.logs import clean
from instep.private import make_own_folder
from instep.sources.connector.config import ConnectorConfig

INSTALLATION = "drivers/installation.sh"
PASSED = (
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "PATH",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
)
"""The variables of ours that code of a connector may see, and of its requirements."""
_PIP_READS = re.compile(r"HOME|TMPDIR|(?:XDG|PIP)_\w+")
_VERSION = 1
_OFFERED = ("requests", "urllib3", "idna", "certifi", "charset-normalizer")
_OURS = re.compile(r"fivetran[-_.]connector[-_.]sdk", re.IGNORECASE)
_GOES_ON = re.compile(r"\\\r?\n")
_COMMENT = re.compile(r"(^|\s)#.*")
_NAMES_FILE = re.compile(r"(?:-r|--requirement)[\s=]*((?!.*://)\S.*)")
_CONSTRAINED = re.compile(r"(?:-c|--constraint)[\s=]*((?!.*://)\S.*)")
_EDITABLE = re.compile(r"^(?:-e|--editable)[\s=]*")
_NAME = re.compile(r"^[\w.-]+\s*(?:\[[^]]*\])?\s*@\s*")
_BESIDE_PATH = re.compile(r"\s*;.*|\s+--?\w.*|#.*|\[[^]/]*\]\s*$")
_FILE = re.compile(r"^file:(?://(?:localhost)?(?=/))?")
_IS_PATH = re.compile(r"^(?!-|.*://)(?:.*/|\.|.*\.(?:whl|zip|tar\.gz)$)")
_MADE = {"__pycache__", ".git", ".instep", ".venv"}
_MADE_ON_TOP = {"build", "files"}
REFUSED = "fivetran-connector-sdk<3\nfivetran-connector-sdk-core<0\n"
"""Constraints of the licence rule, for every installation."""
_SECONDS = 1800
READY = "ready"
"""The file that a finished environment has."""


def interpreter(config: ConnectorConfig) -> Path:
    """Return the Python of the connector's environment, which is made if it is not there. Raises SetupError with what
    pip said if that fails, ProjectError if the requirements cannot be read."""
    source = Path(config.path)
    required = requirements(source)
    base = config.python or getattr(sys, "_base_executable", sys.executable)
    folder = place_of(config) / _digest([*required, *contents(source, required)], base)
    with locked(folder):
        if not (folder / READY).exists():
            shutil.rmtree(folder, ignore_errors=True)
            _make(folder, base, required, source, config.name)
            (folder / READY).touch()
    return folder / "bin" / "python"


def requirements(folder: Path) -> tuple[str, ...]:
    """Return the lines of requirements.txt and of the files that it names, else the dependencies of pyproject.toml,
    without the SDK itself, which is ours."""
    try:
        if (file := folder / "requirements.txt").is_file():
            lines = _lines(file, folder)
        elif (file := folder / "pyproject.toml").is_file():
            lines = tomllib.loads(file.read_text(encoding="utf-8")).get("project", {}).get("dependencies", [])
        else:
            lines = []
    except (OSError, ValueError) as error:
        raise ProjectError(f"{file}: {error}", hint="correct the connector's requirements") from error
    return tuple(_copied(folder, line) for line in lines if not _OURS.match(line))


def _lines(file: Path, folder: Path, within: tuple[Path, ...] = ()) -> list[str]:
    """Return the lines without comments; a line continued by a backslash is one, and a named file stands for its
    lines. Files of constraints are named relative to `folder`."""
    data = file.read_bytes()
    utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))  # as PowerShell writes what it redirects
    lines: list[str] = []
    for line in _GOES_ON.sub(" ", data.decode("utf-16" if utf16 else "utf-8-sig")).splitlines():
        bare = _COMMENT.sub("", line).strip()
        if named := _NAMES_FILE.fullmatch(bare):
            other = file.parent / named[1]
            if other.resolve() in within:
                raise ValueError(f"{other.name} names itself")
            lines += _lines(other, folder, (*within, file.resolve()))
        elif named := _CONSTRAINED.fullmatch(bare):
            lines.append(f"-c {os.path.relpath(file.parent / named[1], folder)}")
        elif bare:
            lines.append(bare)
    return lines


def contents(folder: Path, required: Sequence[str]) -> Iterator[str]:
    """Yield digests of required files and folders of this machine: another content needs another environment. The
    connector's own folder counts by its path where an environment links to it."""
    for line in required:
        if (place := _local(folder, line)) is None:
            continue
        if place.resolve() == folder.resolve():
            if _EDITABLE.match(line):
                yield str(place.resolve())
            continue
        files = sorted(place.rglob("*")) if place.is_dir() else [place]
        named = [(f, f.relative_to(place)) for f in files if f.is_file()]
        digests = [(str(n), hashlib.sha256(f.read_bytes()).hexdigest()) for f, n in named if not _made(n)]
        yield json.dumps(digests)


def _local(folder: Path, line: str) -> Path | None:
    """Return the file or folder that a line names, None if it names something else."""
    if constraints := _CONSTRAINED.fullmatch(line):
        return folder / constraints[1]
    editable = _EDITABLE.match(line)
    named = _NAME.sub("", _EDITABLE.sub("", line))
    path = _FILE.sub("", named)
    for _ in range(2):  # extras stand before a marker
        path = _BESIDE_PATH.sub("", path).strip()
    if named.startswith("file:"):
        return folder / unquote(path)
    return folder / path if _IS_PATH.search(path) or (editable and "://" not in path) else None


def _copied(folder: Path, line: str) -> str:
    """Return the line without `-e` where it names a package beside the connector: an environment that links to it
    would lead all who require the same content to the first one's folder."""
    place = _local(folder, line)
    if not _EDITABLE.match(line) or place is None or not place.exists() or place.resolve() == folder.resolve():
        return line
    bare = _EDITABLE.sub("", line)
    return bare if _IS_PATH.search(bare) or "file:" in bare else f"./{bare}"


def _for_pip(folder: Path, line: str) -> str:
    """Return the line with an absolute path of constraints: pip looks for them beside the file that names them,
    which is a copy in the environment."""
    named = _CONSTRAINED.fullmatch(line)
    return f"-c {shlex.quote(str((folder / named[1]).resolve()))}" if named else line


def _made(file: Path) -> bool:
    """Return whether an installation or a trial has written the file."""
    on_top = _MADE_ON_TOP.intersection(file.parts[:1])
    return bool(on_top) or any(part in _MADE or part.endswith(".egg-info") for part in file.parts)


def installs_drivers(config: ConnectorConfig) -> bool:
    """Return whether it comes with a script that installs what pip cannot: it would change the machine, so nobody runs
    it."""
    return (Path(config.path) / INSTALLATION).is_file()


def place_of(config: ConnectorConfig) -> Path:
    """Return the folder of all environments on this machine."""
    return Path(config.environments) if config.environments else cache_folder() / "connectors"


def cache_folder() -> Path:
    """Return the folder of things that are created once per machine."""
    cache = os.environ.get("INSTEP_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "instep")
    return Path(cache)


def _digest(required: Sequence[str], base: str) -> str:
    offered = [(d.name, d.version) for d in _offered()]
    parts = [_VERSION, list(required), os.path.realpath(base), sys.version, offered]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder of the cache: of several processes one makes it, the others wait."""
    make_own_folder(folder.parent)
    with folder.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _make(folder: Path, base: str, required: Sequence[str], source: Path, name: str) -> None:
    install(folder, base, [_for_pip(source, line) for line in required], f"connector {name}", _HINT, source)
    _offer(folder)


def install(folder: Path, base: str, lines: Sequence[str], owner: str, hint: str, place: Path | None = None) -> None:
    """Make a virtual environment with these lines of a requirements.txt; pip runs in `place`. Packages that the licence
    rule refuses are never downloaded. Raises SetupError that names the `owner`."""
    ours = bool(lines) and _has_pip()
    _run([base, "-I", "-m", "venv", *(["--without-pip"] if ours or not lines else []), str(folder)], owner, hint)
    if lines:
        for file, text in {"requirements.txt": "\n".join(lines), "constraints.txt": REFUSED}.items():
            (folder / file).write_text(text + "\n", encoding="utf-8")
        python = str(folder / "bin" / "python")
        pip = [sys.executable, "-I", "-m", "pip", "--python", python] if ours else [python, "-I", "-m", "pip"]
        files = ["-r", str(folder / "requirements.txt"), "-c", str(folder / "constraints.txt")]
        _run(
            [*pip, "install", "--progress-bar", "off", "--no-input", "--disable-pip-version-check", *files],
            owner,
            hint,
            place,
        )


def newest(package: str, base: str, owner: str, hint: str) -> str:
    """Return the newest version of a package that pip's index has for an interpreter; nothing is installed."""
    pip = [sys.executable, "-I", "-m", "pip", "--python", base] if _has_pip() else [base, "-I", "-m", "pip"]
    options = ["-q", "--no-input", "--disable-pip-version-check", "--dry-run", "--ignore-installed", "--no-deps"]
    report = json.loads(_run([*pip, "install", *options, "--report", "-", package], owner, hint))
    return str(report["install"][0]["metadata"]["version"])


def _has_pip() -> bool:
    """Return whether our interpreter has a pip where `-I` looks for it, which passes over the packages of a user."""
    return subprocess.run([sys.executable, "-I", "-c", "import pip"], capture_output=True, check=False).returncode == 0


def _run(command: Sequence[str], owner: str, hint: str, place: Path | None = None) -> str:
    """Run a command in `place`, whose modules must not shadow Python's: `command` has `-I`. Building a package runs
    code of others, so it sees the variables that connectors see, and those that configure pip."""
    env = {key: value for key, value in os.environ.items() if key in PASSED or _PIP_READS.fullmatch(key)}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, check=False, cwd=place, env=env
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SetupError(f"{owner}: its virtual environment cannot be made: {error}", hint=hint) from error
    if done.returncode:
        _, caused, conflict = done.stdout.partition(_CONFLICT)
        lines = [*(done.stderr or done.stdout).strip().splitlines()[-12:], *f"{caused}{conflict}".splitlines()[:12]]
        output = clean("\n".join(lines))
        raise SetupError(f"{owner}: its virtual environment cannot be made:\n{output}", hint=hint)
    return done.stdout


_CONFLICT = "The conflict is caused by:"
_HINT = "correct requirements.txt of the connector, or make its packages reachable for pip"


def _offered() -> list[importlib.metadata.Distribution]:
    distributions = []
    for name in _OFFERED:
        try:
            distributions.append(importlib.metadata.distribution(name))
        except importlib.metadata.PackageNotFoundError:
            continue
    return distributions


def _offer(folder: Path) -> None:
    """Add `requests` from here where pip has not brought it: connectors that require nothing need no package index."""
    (target,) = (folder / "lib").glob("python3*/site-packages")
    for distribution in _offered():
        if (target / distribution.name.replace("-", "_")).exists():
            continue
        for file in distribution.files or ():
            if ".." in file.parts or file.suffix == ".pyc":
                continue
            place = target / file
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(str(file.locate()), place)
