"""How one table of a connection is synced, as a person decides it: a worker sets it, and looks first what that does."""

from __future__ import annotations

from starlette.responses import Response

from instep.api.access import The, Who
from instep.api.common import ConnectionName, router
from instep.api.routes.work import STARTED, ask
from instep.api.wire.tables import Cursoring, Keying
from instep.api.wire.work import JobOut
from instep.api.writes import Writes

routes = router("tables")


@routes.post("/connections/{connection}/set-key", status_code=202, response_model=JobOut, responses=STARTED)
def set_key(the: The, who: Who, connection: ConnectionName, asked: Keying, writes: Writes) -> Response:
    """Another key for a table. What shares it or has NULL in it is counted first, at source and destination; refused
    where rows would be lost."""
    return ask(the, writes, the.connection(who, connection), "set_key", asked.model_dump(exclude={"why"}), asked.why)


@routes.post("/connections/{connection}/set-cursor", status_code=202, response_model=JobOut, responses=STARTED)
def set_cursor(the: The, who: Who, connection: ConnectionName, asked: Cursoring, writes: Writes) -> Response:
    """Another cursor for a table, or none. Its type and its NULLs are checked first; the next sync begins anew."""
    return ask(the, writes, the.connection(who, connection), "set_cursor", asked.model_dump(exclude={"why"}), asked.why)
