"""The store's metrics for Prometheus, where scrapers look by default, too."""

from __future__ import annotations

from fastapi import Depends, FastAPI
from starlette.responses import Response

from instep.api.access import The, caller
from instep.api.common import router
from instep.ops.exposition import MEDIA_TYPE
from instep.ops.metrics import metrics

routes = router("health")
_TEXT = {"description": "In Prometheus' text format.", "content": {"text/plain": {"schema": {"type": "string"}}}}


@routes.get("/metrics", response_class=Response, responses={200: _TEXT})
def read_metrics(the: The) -> Response:
    """Counters since the store was made, and how things stand now. Also at `/metrics`."""
    return Response(metrics(the.store), media_type=MEDIA_TYPE)


def add_alias(app: FastAPI) -> None:
    app.add_api_route("/metrics", read_metrics, dependencies=[Depends(caller)], include_in_schema=False)
