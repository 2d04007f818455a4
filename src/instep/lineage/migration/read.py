"""Migration scripts in their order, as edits with the places where they stand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from instep.lineage.migration.script import read
from instep.lineage.migration.statements import edits
from instep.lineage.migration.words import Unclear
from instep.schema.changes.edits import Edit


@dataclass(frozen=True, order=True)
class At:
    """A file with a line of it, 1-based."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class MigrationStep:
    """A statement that edits schemas; `text` is all of it in one line."""

    at: At
    text: str
    edits: tuple[Edit, ...]


@dataclass(frozen=True)
class Unread:
    """A statement, or a part of a file, that is not understood, and why."""

    at: At
    why: str


@dataclass(frozen=True)
class Migration:
    """`statements` counts all of them, those about rows included."""

    steps: tuple[MigrationStep, ...]
    unread: tuple[Unread, ...]
    statements: int


def read_migration(scripts: Iterable[tuple[str, str]], dialect: str) -> Migration:
    """Return the edits of (file name, text), one after the other, in a dialect of `script.DIALECTS`."""
    steps: list[MigrationStep] = []
    unread: list[Unread] = []
    count = 0
    for file, text in scripts:
        script = read(text, dialect)
        unread += (Unread(At(file, p.line), p.text) for p in script.problems)
        for statement in script.statements:
            count += 1
            at = At(file, statement.line)
            try:
                found = edits(statement, script.text, dialect)
            except Unclear as error:
                unread.append(Unread(at, f"{statement.head}: {error}"))
                continue
            if found:
                steps.append(MigrationStep(at, statement.text, found))
    return Migration(tuple(steps), tuple(unread), count)
