"""References to values that do not stand in the file: `${env:X}`, `${env:X:-default}`, `${file:/path}`; in what a
server keeps, `${secret:ID}`.

They are kept as text and resolved where the value is used; a value that was resolved is never kept.

Whether a file says something else than before: its times are asked first, its text only when they have moved.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from instep.errors import ProjectError
from instep.redaction import hide, is_plain, names_secret, note_referenced

ENV_FILE = ".env"
"""Beside the project file: values that references name."""
_ANY = re.compile(r"\$\{([^}]*)(\}?)")
_NAME = re.compile(r"[A-Za-z_]\w*")

_CHOSEN = frozenset({"command", "configuration", "environment", "properties", "options", "headers", "conf"})
"""Parts of the project file below which names are chosen by people, or values have none."""
_WHY = {UnicodeDecodeError: "it is not UTF-8 text", RuntimeError: "its user has no home folder"}

Place = tuple[str | int, ...]
Opens = Callable[[str, Place], str]
"""The value of a sealed secret by its id, for the place in the project where it stands."""


def is_reference(text: str) -> bool:
    return "${" in text


@dataclass(frozen=True)
class Reference:
    """Text with one or more references in it. Its `repr` is the text as written, which holds no secret value."""

    text: str

    def __repr__(self) -> str:
        return f"Reference({self.text!r})"

    def __str__(self) -> str:
        return self.text

    @property
    def pure(self) -> bool:
        """True if no part of the value is in the file: neither text around the references nor defaults."""
        return not _ANY.sub("", self.text) and not any(":-" in part and part[-2:] != ":-" for part in self.parts)

    @property
    def parts(self) -> list[str]:
        """Return the inner text of each `${...}`."""
        return [match[1] for match in _ANY.finditer(self.text)]

    def problem(self) -> str:
        """Return the fault in a reference's spelling, "" if there is none."""
        for match in _ANY.finditer(self.text):
            kind, colon, target = match[1].partition(":")
            if not match[2]:
                return f"{self.text!r} lacks its closing brace"
            if not colon or kind not in ("env", "file", "secret"):
                near = f"${{env:{match[1]}}}" if _NAME.fullmatch(match[1]) else "${env:NAME} or ${file:/path}"
                return f"unknown reference ${{{match[1]}}}: write {near}"
            if not target or (kind == "env" and not _NAME.fullmatch(target.partition(":-")[0])):
                return f"${{{match[1]}}} names no {'variable' if kind == 'env' else kind}"
        return ""


def is_bare_reference(text: str) -> bool:
    """Return True for references without text of their own around them or as a default: there is nothing to hide."""
    return is_reference(text) and Reference(text).pure


@dataclass(frozen=True)
class Environment:
    """Sources of references: the process environment, then the `.env` file beside the project file."""

    root: Path
    variables: Mapping[str, str] = field(repr=False)
    opens: Opens | None = field(default=None, repr=False)
    """A server's way to its secrets."""
    digest: str = ""
    """Digest of the text of the `.env` file."""

    @classmethod
    def of(cls, root: Path, variables: Mapping[str, str] | None = None) -> Environment:
        """Return the environment; `variables` (default: the process environment) win over the file."""
        own = os.environ if variables is None else variables
        digest = digest_of(root / ENV_FILE)  # first, so that what is written after it is seen as another text
        return cls(root, {**read_env_file(root / ENV_FILE), **own}, digest=digest)

    def resolve(self, reference: Reference, where: str, place: Place = ()) -> str:
        """Return the value; raises ProjectError that starts with `where` and names the variable or file. `place`: where
        it stands in the project."""
        value = _ANY.sub(lambda match: self._one(match[1], where, place), reference.text)
        note_referenced(value)
        if _is_secret(reference, place, value):
            hide(value)
        return value

    def _one(self, inside: str, where: str, place: Place) -> str:
        kind, _, target = inside.partition(":")
        if kind == "secret":
            if self.opens is None:
                raise ProjectError(
                    f"{where}: the secret is one that a server keeps", hint="write ${env:NAME} or ${file:/path}"
                )
            return self.opens(target, place)
        if kind == "file":
            return self._file(target, where)
        name, default, value = target.partition(":-")
        text = self.variables.get(name)
        if text is not None and (text or not default):
            return text
        if default:
            return value
        raise ProjectError(
            f"{where}: the environment variable {name} is not set",
            hint=f"set it (export {name}=...) or write it into {self.root / ENV_FILE}",
        )

    def _file(self, name: str, where: str) -> str:
        path = self.root / name
        try:
            path = self.root / Path(name).expanduser()
            return path.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, ValueError, RuntimeError) as error:
            why = error.strerror if isinstance(error, OSError) else _WHY.get(type(error), "it is not a path")
            raise ProjectError(
                f"{where}: the file {path} cannot be read: {why}", hint="make the file, or name another one"
            ) from None


def _is_secret(reference: Reference, place: Place, value: str) -> bool:
    """True for sealed values, those of fields that are called so, and those that look like one where a name tells
    nothing: in addresses, and below names that people choose."""
    if "${secret:" in reference.text or not place:
        return "${secret:" in reference.text
    name = next((part for part in reversed(place) if isinstance(part, str)), "")
    if place[0] == "channels" or names_secret(name):
        return True
    chosen = any(part in _CHOSEN for part in place)
    return (chosen or "://" in value) and not is_plain(value)


def read_env_file(path: Path) -> dict[str, str]:
    """Return the `NAME=value` lines of a `.env` file; empty if there is none. Raises ProjectError without the value."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ProjectError(f"{path} cannot be read: {type(error).__name__}", hint="it must be UTF-8 text") from None
    variables: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        entry = line.strip().removeprefix("export ").strip()
        if not entry or entry.startswith("#"):
            continue
        name, equals, value = entry.partition("=")
        if not equals or not _NAME.fullmatch(name.strip()):
            raise ProjectError(f"{path}:{number}: not of the form NAME=value", hint="put a # before a comment")
        variables[name.strip()] = _env_value(value.strip())
    return variables


def _env_value(text: str) -> str:
    """Return the value without its quotes; an unquoted one may be followed by a space and a comment."""
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return re.split(r"\s#", text, maxsplit=1)[0].rstrip()


SETTLED = 2.0
"""Seconds after which a file system's clock tells another writing apart from the last one."""


class FileWatch:
    """`digest` is that of the text that is known; "" for a file that is not there."""

    def __init__(self, file: Path, digest: str) -> None:
        self._file, self._digest = file, digest
        self._stamp: tuple[int, ...] | None = None

    def has_changed(self) -> bool:
        """Return whether the text is another one than at the last look, or than the one that is known."""
        stamp, now = _stamp(self._file), time.time()
        if stamp is not None and stamp == self._stamp:
            return False
        settled = stamp is None or abs(now - stamp[0] / 1e9) > SETTLED
        self._stamp = stamp if settled else None
        before, self._digest = self._digest, digest_of(self._file)
        return self._digest != before


def digest_of(file: Path) -> str:
    """Return the SHA-256 of a file, "" for one that cannot be read."""
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return ""


def _stamp(file: Path) -> tuple[int, ...] | None:
    try:
        file_stat = file.stat()
    except OSError:
        return None
    return file_stat.st_mtime_ns, file_stat.st_ctime_ns, file_stat.st_ino, file_stat.st_size
