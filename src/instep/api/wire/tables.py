"""What is asked about one table of a connection."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from instep.api.wire.base import Asked, Few, Name, Text
from instep.control.times import aware


class Keying(Asked):
    """`table` is schema.table and `key` its columns, by accepted names. `way`: rekey (the rows stay), rebuild (read
    anew, the old table is kept as a copy), clear (emptied now and read anew). `allow`: patterns of tables that may be
    emptied; `preview`: only count and say what it would do."""

    table: Name
    key: Annotated[Few, Field(min_length=1)]
    way: Literal["rekey", "rebuild", "clear"] = "rekey"
    allow: Few = Field([])
    preview: bool = False
    why: Text = ""


class Cursoring(Asked):
    """`table` is schema.table by its accepted name; no `column`: each sync reads the whole table. `start`: the value
    that the first read begins at; `preview`: only say what it would do."""

    table: Name
    column: Name | None = None
    start: Text = ""
    preview: bool = False
    why: Text = ""


class OneTable(Asked):
    """`table` is schema.table by its accepted name."""

    table: Name
    why: Text = ""


Snapshot = Annotated[str, Field(pattern=r"^-?[0-9]{1,20}$")]


class Restoring(Asked):
    """`table` is schema.table by its accepted name. It goes back to a `snapshot`, or to what it was `at` a time (UTC
    without a zone). `allow`: patterns of tables that may be put back; `preview`: only say what it would do; `base`: the
    snapshot that it has to be at, as the preview said."""

    table: Name
    snapshot: Snapshot | None = None
    at: Annotated[datetime, AfterValidator(aware)] | None = None
    allow: Few = Field([])
    preview: bool = False
    base: Snapshot | None = None
    why: Text = ""

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.snapshot is None) == (self.at is None):
            raise ValueError("name one: `snapshot` or `at`")
        return self
