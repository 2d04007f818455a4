"""How one table of a connection is synced, as a person decides it: a worker sets it, and looks first what that does."""

from __future__ import annotations

from starlette.responses import Response

from instep.api.access import The, Who
from instep.api.common import ConnectionName, router
from instep.api.routes.work import STARTED, ask
from instep.api.wire.tables import Cursoring, Keying, OneTable, Restoring
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


@routes.post("/connections/{connection}/savepoints", status_code=202, response_model=JobOut, responses=STARTED)
def savepoints(the: The, who: Who, connection: ConnectionName, asked: OneTable, writes: Writes) -> Response:
    """Which snapshots a table can be put back to. The job's result has them, newest first."""
    return ask(the, writes, the.connection(who, connection), "savepoints", {"table": asked.table}, asked.why)


@routes.post("/connections/{connection}/restore", status_code=202, response_model=JobOut, responses=STARTED)
def restore(the: The, who: Who, connection: ConnectionName, asked: Restoring, writes: Writes) -> Response:
    """A table's rows go back to a snapshot, its cursor with them; the schema and the source stay as they are. Refused
    unless `allow` names the table."""
    options = asked.model_dump(mode="json", exclude={"why"})
    return ask(the, writes, the.connection(who, connection), "restore", options, asked.why)
