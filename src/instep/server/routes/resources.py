"""Sources, destinations, policies and channels: what the project file says of them, and what the server keeps.

Secrets come in and never go out: whoever reads a document sees stars, and whoever sends the stars back keeps what is
there. What the project file says is changed there: such a write is refused, with the YAML to paste.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Request
from starlette.responses import Response

from instep.model import ObjectKind
from instep.project.documents import PLURALS
from instep.server import resources
from instep.server.access import CallerDep, ServerDep
from instep.server.models import Page
from instep.server.paging import Cursor, Limit, paged, place
from instep.server.resources import Deleted, NewObject, ObjectChange, ObjectOut, ObjectWhole, ObjectWritten
from instep.server.responses import REHEARSED, name, router
from instep.server.writes import Matched, Writes, tagged

routes = router("objects")
ObjectName = Annotated[str, name("Its name.")]
Search = Annotated[str | None, Query(max_length=200, description="Only names that contain this text.")]
Tag = Annotated[str | None, Query(max_length=200)]
MADE: dict[int | str, dict[str, Any]] = {
    200: {"model": ObjectWritten, "description": f"It was there and is changed. {REHEARSED}"},
    201: {"model": ObjectWritten, "description": "Created."},
}
KINDS: tuple[ObjectKind, ...] = ("source", "destination", "policy", "channel")


def _reads(kind: ObjectKind) -> None:
    plural = PLURALS[kind]

    @routes.get(f"/{plural}", name=f"list_{plural}", response_model=Page[ObjectOut])
    def listed(
        who: CallerDep,
        the: ServerDep,
        limit: Limit = 100,
        cursor: Cursor = None,
        search: Search = None,
        tag: Tag = None,
    ) -> Any:
        """List objects by name."""
        behind = place(cursor, str)
        after = behind[0] if behind else ""
        found = resources.page(the, who, kind, after=after, limit=limit + 1, name=search or "", tag=tag)
        return paged(found, limit, lambda one: (one.name,), resources.document)

    @routes.get(f"/{plural}/{{name}}", name=f"get_{kind}", response_model=ObjectOut)
    def got(request: Request, who: CallerDep, the: ServerDep, name: ObjectName) -> Response:
        """Return one object in the form of its section in instep.yml, with stars for secrets."""
        return tagged(request, resources.document(resources.known(the, who, kind, name)))


def _writes(kind: ObjectKind) -> None:
    plural = PLURALS[kind]

    @routes.post(f"/{plural}", name=f"create_{kind}", status_code=201, response_model=ObjectWritten, responses=MADE)
    def created(the: ServerDep, asked: NewObject, writes: Writes) -> Response:
        """Create an object; refused if the name is in use."""
        return resources.create(the, kind, asked.name, asked.spec, asked.tags, writes)

    @routes.put(f"/{plural}/{{name}}", name=f"put_{kind}", response_model=ObjectWritten, responses=MADE)
    def put(the: ServerDep, name: ObjectName, asked: ObjectWhole, writes: Matched) -> Response:
        """Replace the object with a whole document; create it if it does not exist."""
        return resources.replace(the, kind, name, asked.spec, asked.tags, writes)

    @routes.patch(f"/{plural}/{{name}}", name=f"patch_{kind}", response_model=ObjectWritten)
    def patched(the: ServerDep, name: ObjectName, asked: ObjectChange, writes: Matched) -> Response:
        """Change an object: `spec` is a merge patch, in which null removes a key."""
        return resources.change(the, kind, name, asked.spec, asked.tags, writes)

    @routes.delete(f"/{plural}/{{name}}", name=f"delete_{kind}", response_model=Deleted)
    def deleted(the: ServerDep, name: ObjectName, writes: Matched) -> Response:
        """Delete an object; refused while a connection uses it."""
        return resources.delete(the, kind, name, writes)


for _kind in KINDS:
    _reads(_kind)
    _writes(_kind)
