"""Commands run in this process as the console script runs them, and what they said."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from typer.main import get_command

from instep.cli.main import app, main


@dataclass(frozen=True)
class Said:
    """What a command said: its exit code, stdout and stderr."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The document on stdout; every one has a format_version."""
        document = json.loads(self.out, parse_constant=_no_constant)
        assert document["format_version"] == 1
        return document


def _no_constant(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


def run(capsys: pytest.CaptureFixture[str], *words: str) -> Said:
    """What was said before is forgotten."""
    capsys.readouterr()
    code = main(list(words))
    said = capsys.readouterr()
    return Said(code, said.out, said.err)


def every_command() -> dict[tuple[str, ...], Any]:
    """Those that do something, by what is typed."""
    return dict(_below(get_command(app)))


def _below(found: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if not hasattr(found, "commands"):
        yield path, found
        return
    for name, below in found.commands.items():
        yield from _below(below, (*path, name))
