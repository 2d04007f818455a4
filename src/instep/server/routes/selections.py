"""A person's own switches of what is read of a connection. No source is opened."""

from __future__ import annotations

from typing import Annotated

from fastapi.encoders import jsonable_encoder
from pydantic import Field
from starlette.responses import Response

from instep.control.queries.policy import SelectionListing
from instep.control.selection.selections import place_of, switch, wanted
from instep.operations.kinds import Verb
from instep.server.access import CallerDep, ServerDep
from instep.server.models import DryRunResult, RequestModel, ResponseModel
from instep.server.responses import ConnectionName, router
from instep.server.writes import Matched, WriteAnswer

Path = Annotated[str, Field(min_length=1, max_length=1000)]
Paths = Annotated[list[Path], Field(max_length=10_000)]
Patterns = Annotated[list[Path], Field(max_length=1000)]


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


@routes.post("/connections/{connection}/selection", response_model=Switched)
def turn(the: ServerDep, who: CallerDep, connection: ConnectionName, asked: SwitchRequest, writes: Matched) -> Response:
    """Switches objects on or off, or hashes columns, or lets them be in clear again: all of them or none. Rehearsed,
    it says what would follow."""
    name = the.connection(who, connection)

    def do() -> WriteAnswer:
        place = place_of(the.project, the.store, name)
        if writes.match is not None:
            writes.check(*(jsonable_encoder(SelectionListing.of(place, columns=every)) for every in (False, True)))
        steps = wanted(place, asked.verb, asked.objects, asked.matching)
        turned = [step.target.path for step in switch(place, steps, writes.caller.who)]
        told = [{"object": s.target.path, "changed": not s.same, "lines": s.lines} for s in steps]
        return WriteAnswer({"verb": asked.verb, "objects": told}, detail={**asked.model_dump(), "turned": turned})

    return writes.run("connection.selection", name, do)
