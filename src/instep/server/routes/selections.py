"""What is read of a connection, and a person's own switches about it. From the store alone: no source is opened."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

from fastapi import Query, Request
from fastapi.encoders import jsonable_encoder
from pydantic import Field
from starlette.responses import Response

from instep.control.selection.listing import listed, tree
from instep.control.selection.selections import SwitchedConnection, Verb, place_of, switch, wanted
from instep.server.access import CallerDep, ServerDep
from instep.server.models import DryRunResult, RequestModel, ResponseModel
from instep.server.responses import ConnectionName, router
from instep.server.writes import Matched, WriteAnswer, tagged

Path = Annotated[str, Field(min_length=1, max_length=1000)]
Paths = Annotated[list[Path], Field(max_length=10_000)]
Patterns = Annotated[list[Path], Field(max_length=1000)]


class ListedOut(ResponseModel):
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


class SelectionOut(ResponseModel):
    """`schemas` nests the same as a schema config does."""

    schema_change_handling: str
    schemas: dict[str, Any]
    objects: list[ListedOut]


class SwitchRequest(RequestModel):
    """`objects` are schemas, tables or columns by their paths, `matching` patterns of tables and columns: globs, or
    regular expressions after `re:`."""

    verb: Verb
    objects: Paths = Field([])
    matching: Patterns = Field([])


class TurnedOut(ResponseModel):
    """`changed` is false for what stands so already; `lines` say what follows."""

    object: str
    changed: bool
    lines: list[str]


class Switched(DryRunResult):
    verb: Verb
    objects: list[TurnedOut]


routes = router("selections")


@routes.get("/connections/{connection}/selection", response_model=SelectionOut)
def get_selection(
    request: Request,
    the: ServerDep,
    who: CallerDep,
    connection: ConnectionName,
    columns: Annotated[bool, Query(description="Every column, not only touched ones.")] = False,
) -> Response:
    """Schemas and tables with what is on and why, and touched columns; nothing before a detection."""
    place = place_of(the.project, the.store, the.connection(who, connection))
    return tagged(request, _document(place, columns=columns))


def _document(place: SwitchedConnection, *, columns: bool) -> dict[str, Any]:
    found = listed(place, columns=columns)
    shown = jsonable_encoder({**tree(place, found), "objects": [asdict(one) for one in found]})
    return SelectionOut.model_validate(shown).model_dump(mode="json", by_alias=True)


@routes.post("/connections/{connection}/selection", response_model=Switched)
def turn(the: ServerDep, who: CallerDep, connection: ConnectionName, asked: SwitchRequest, writes: Matched) -> Response:
    """Switches objects on or off, or hashes columns, or lets them be in clear again: all of them or none. Rehearsed,
    it says what would follow."""
    name = the.connection(who, connection)

    def do() -> WriteAnswer:
        place = place_of(the.project, the.store, name)
        if writes.match is not None:
            writes.check(*(_document(place, columns=columns) for columns in (False, True)))
        steps = wanted(place, asked.verb, asked.objects, asked.matching)
        turned = [step.target.path for step in switch(place, steps, writes.caller.who)]
        told = [{"object": s.target.path, "changed": not s.same, "lines": s.lines} for s in steps]
        return WriteAnswer({"verb": asked.verb, "objects": told}, detail={**asked.model_dump(), "turned": turned})

    return writes.run("connection.selection", name, do)
