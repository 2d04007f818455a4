"""The shape of a table or model as readers know it: its columns, and what is about to happen to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

Kind = Literal["gone", "renamed", "retyped", "stale", "added", "broken", "shifted", "unclear"]
Level = Literal["breaks", "unknown", "silent", "safe"]
LEVELS: tuple[Level, ...] = ("breaks", "unknown", "silent", "safe")
"""All levels, from the worst to the best."""

_LEVEL: dict[Kind, Level] = {
    "gone": "breaks",
    "renamed": "breaks",
    "retyped": "breaks",
    "broken": "breaks",
    "stale": "silent",
    "added": "silent",
    "shifted": "silent",
    "unclear": "unknown",
}


@dataclass(frozen=True)
class ModelEdit:
    """Effect of a change on a relation, or on one of its columns.

    gone, renamed, retyped: whoever names it fails or compares other values. stale: it stays and gets no new values.
    added: only `*` and natural joins see it. broken, shifted, unclear: of a model that reads what changes. `change` is
    its id ("" for what no change causes), `text` says it as a sentence.
    """

    change: str
    kind: Kind
    text: str

    @property
    def level(self) -> Level:
        """Return the effect on a reader that names the column."""
        return _LEVEL[self.kind]


@dataclass(frozen=True)
class ModelField:
    """A column."""

    name: str
    edits: tuple[ModelEdit, ...] = ()
    coming: bool = False
    """True if it does not exist yet."""


@dataclass(frozen=True)
class RelationShape:
    """The columns of a relation, with the changes that reach them."""

    fields: tuple[ModelField, ...] = ()
    open: bool = False
    """True if it may have unknown columns."""
    edits: tuple[ModelEdit, ...] = ()
    """Edits of the whole relation."""

    def find(self, name: str, *, exact: bool = False, coming: bool = False) -> ModelField | None:
        """Return the column of that name: there today, or on its way."""
        fields = [f for f in self.fields if f.coming == coming]
        same = next((f for f in fields if f.name == name), None)
        return same if same or exact else next((f for f in fields if f.name.lower() == name.lower()), None)

    def all_edits(self) -> Iterator[ModelEdit]:
        yield from self.edits
        for field in self.fields:
            yield from field.edits


UNKNOWN = RelationShape(open=True)


@dataclass(frozen=True)
class ModelRelation:
    """A table of the destination: (namespace, name) and its columns."""

    name: tuple[str, ...]
    shape: RelationShape


@dataclass(frozen=True)
class ModelFinding:
    """Effect of one change on one model."""

    change: str
    level: Level
    why: str
    line: int = 0
    """Line in its SQL, from 1; 0 where it is about no line."""
    output: str = ""
    """The column of the model that is affected, if it is one."""


def worst(levels: Iterable[Level]) -> Level:
    return min(levels, key=LEVELS.index, default="safe")
