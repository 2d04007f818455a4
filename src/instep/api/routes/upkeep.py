"""Looking after a connection's tables on request: both sides compared, files put in order. A worker does it."""

from __future__ import annotations

from starlette.responses import Response

from instep.api.access import The, Who
from instep.api.common import ConnectionName, router
from instep.api.routes.work import STARTED, ask
from instep.api.wire.work import Comparing, JobOut, Maintaining
from instep.api.writes import Writes

routes = router("upkeep")


@routes.post("/connections/{connection}/verify", status_code=202, response_model=JobOut, responses=STARTED)
def verify(the: The, who: Who, connection: ConnectionName, asked: Comparing, writes: Writes) -> Response:
    """Source and destination are compared. The job's result has `tables`, each with `equal`, rows on both sides and
    `differences` for people, which count the rows that differ and do not name them."""
    return ask(the, writes, the.connection(who, connection), "verify", asked.model_dump(exclude={"why"}), asked.why)


@routes.post("/connections/{connection}/maintain", status_code=202, response_model=JobOut, responses=STARTED)
def maintain(the: The, who: Who, connection: ConnectionName, asked: Maintaining, writes: Writes) -> Response:
    """Small files are put together, deleted rows taken out, old snapshots and orphans let go; no row changes. The job's
    result has what became of each table; with `preview` it only says what would be done."""
    options = {name: value for name, value in asked.model_dump(exclude={"why"}).items() if value}
    return ask(the, writes, the.connection(who, connection), "maintain", options, asked.why)
