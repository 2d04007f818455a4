"""What is asked about one table of a connection."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from instep.api.wire.base import Asked, Few, Name, Text


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
