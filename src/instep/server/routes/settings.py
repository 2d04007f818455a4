"""Connections as objects: made, their settings read and changed, and their end."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from starlette.responses import Response

from instep.server import resources
from instep.server.access import CallerDep, ServerDep
from instep.server.resources import NewObject, ObjectChange, ObjectOut, ObjectWhole, ObjectWritten
from instep.server.responses import ConnectionName, router
from instep.server.routes.resources import MADE
from instep.server.writes import Matched, Writes, tagged

routes = router("connections")


@routes.post("/connections", status_code=201, response_model=ObjectWritten, responses=MADE)
def create_connection(the: ServerDep, asked: NewObject, writes: Writes) -> Response:
    """Create an object; refused if the name is in use."""
    return resources.create(the, "connection", asked.name, _document(asked), None, writes)


@routes.get("/connections/{connection}/settings", response_model=ObjectOut)
def get_settings(request: Request, who: CallerDep, the: ServerDep, connection: ConnectionName) -> Response:
    """Return the settings in the form of the connection's section in instep.yml, with stars for secrets."""
    return tagged(request, resources.document(resources.known(the, who, "connection", connection)))


@routes.put("/connections/{connection}/settings", response_model=ObjectWritten)
def put_settings(
    the: ServerDep, who: CallerDep, connection: ConnectionName, asked: ObjectWhole, writes: Matched
) -> Response:
    """Replace the settings with a whole document. An API key limited to groups cannot change settings that tie the
    connection to others."""
    resources.known(the, who, "connection", connection)
    return resources.replace(the, "connection", connection, _document(asked), None, writes)


@routes.patch("/connections/{connection}/settings", response_model=ObjectWritten)
def patch_settings(
    the: ServerDep, who: CallerDep, connection: ConnectionName, asked: ObjectChange, writes: Matched
) -> Response:
    """Change an object: `spec` is a merge patch, in which null removes a key."""
    resources.known(the, who, "connection", connection)
    return resources.change(the, "connection", connection, _document(asked), None, writes)


def _document(asked: ObjectWhole | ObjectChange) -> dict[str, Any]:
    """The tags of a connection stand in its document: those beside it are meant where it says nothing of them."""
    if asked.tags is None or "tags" in asked.spec:
        return asked.spec
    if asked.tags:
        return {**asked.spec, "tags": list(asked.tags)}
    return {**asked.spec, "tags": None} if isinstance(asked, ObjectChange) else asked.spec
