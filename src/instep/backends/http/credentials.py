"""The API key of a command: from the environment, or from a file that its user alone can read. Never an argument, which
everybody on the machine can see."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from instep.errors import SetupError

VARIABLE = "INSTEP_API_KEY"
FILE_VARIABLE = "INSTEP_API_KEY_FILE"
_LARGEST = 4096
_FORM = re.compile(r"[!-~]{8,512}")


@dataclass(frozen=True)
class ApiKeySecret:
    """A key's secret, which no text of it shows."""

    secret: str = field(repr=False)

    @property
    def header(self) -> str:
        return f"Bearer {self.secret}"


def key(environment: Mapping[str, str]) -> ApiKeySecret:
    """Return the key that a command sends. SetupError, without what was read, if there is none, if its file is open to
    others, or if it has not the form of a key."""
    if text := environment.get(VARIABLE, "").strip():
        return checked_key(text, VARIABLE)
    if not (named := environment.get(FILE_VARIABLE, "").strip()):
        raise SetupError(
            "no API key is given",
            hint=f"set {VARIABLE}, or name a file with mode 0600 in {FILE_VARIABLE}; `instep keys create` makes one",
        )
    path = Path(named).expanduser()
    return checked_key(_private(path), str(path))


def _private(path: Path) -> str:
    """Return the text of a private file. The open file is judged, so that no other one can take its place meanwhile."""
    try:
        with path.open("rb") as file:
            file_stat = os.fstat(file.fileno())
            if not stat.S_ISREG(file_stat.st_mode):
                raise SetupError(f"the API key's file {path} is not a file", hint=f"name a file in {FILE_VARIABLE}")
            if file_stat.st_mode & 0o077:
                mode = stat.S_IMODE(file_stat.st_mode)
                raise SetupError(
                    f"the API key's file {path} is open to others (mode {mode:04o})", hint=f"chmod 600 {path}"
                )
            return file.read(_LARGEST).decode("ascii", "replace").strip()
    except OSError as error:
        why = error.strerror or "it cannot be read"
        raise SetupError(f"the API key's file {path}: {why}", hint=f"check {FILE_VARIABLE}") from None


def checked_key(text: str, where: str) -> ApiKeySecret:
    """Return the key that a text is; SetupError, which names where it comes from, if it has not the form of one."""
    if not _FORM.fullmatch(text):
        raise SetupError(
            f"{where} holds no API key", hint="it is one line that begins with instep_sk_, as it was shown once"
        )
    return ApiKeySecret(text)
