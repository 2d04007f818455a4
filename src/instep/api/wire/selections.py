"""What is read of a connection, and switches that are turned."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from instep.api.wire.base import Asked, Dry, Said
from instep.control.selections import Verb

Path = Annotated[str, Field(min_length=1, max_length=1000)]
Paths = Annotated[list[Path], Field(max_length=10_000)]
Patterns = Annotated[list[Path], Field(max_length=1000)]


class ListedOut(Said):
    """A schema (`table` is empty), a table (`column` is empty) or a column. `hashed` is null but for columns; `since`
    is when it was switched or found, `who` the person who switched it."""

    schema_: str = Field(alias="schema")
    table: str
    column: str
    enabled: bool
    hashed: bool | None
    why: str
    since: datetime | None
    who: str


class SelectionOut(Said):
    """`schemas` nests the same as a schema config does."""

    schema_change_handling: str
    schemas: dict[str, Any]
    objects: list[ListedOut]


class Switching(Asked):
    """`objects` are schemas, tables or columns by their paths, `matching` patterns of tables and columns: globs, or
    regular expressions after `re:`."""

    verb: Verb
    objects: Paths = Field([])
    matching: Patterns = Field([])


class TurnedOut(Said):
    """`changed` is false for what stands so already; `lines` say what follows."""

    object: str
    changed: bool
    lines: list[str]


class Switched(Dry):
    verb: Verb
    objects: list[TurnedOut]
