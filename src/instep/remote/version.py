"""Which servers a client can speak with: API documents may grow between releases, and differ between incompatible
ones."""

from __future__ import annotations

import re

from instep.errors import Blocked

_FORM = re.compile(r"(\d+)\.(\d+)")


def compare(client: str, server: str) -> str:
    """What to tell the user about two versions, "" for equal ones. Blocked if they are too far apart: another major
    version, or another minor one before 1.0."""
    if client == server:
        return ""
    mine, theirs = _FORM.match(client), _FORM.match(server)
    if mine is None or theirs is None or _line(mine) != _line(theirs):
        raise Blocked(
            f"this is instep {client}, the server is {server or 'of an unknown version'}: their documents differ",
            hint=f"install instep {server} here, or bring the server to {client}" if theirs else "check the URL",
        )
    return f"this is instep {client}, the server is instep {server}: what only one of them knows may be missing"


def _line(found: re.Match[str]) -> tuple[str, ...]:
    return (found[1],) if found[1] != "0" else (found[1], found[2])
