"""Setup tests, as a worker makes them: of a connection with both of its ends, or of a destination alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from instep.server.fivetran_api.http.envelope import Refusal
from instep.server.fivetran_api.http.ports import ApiJob
from instep.server.fivetran_api.http.request_context import RequestContext
from instep.store.work.jobs import CONNECTION_TEST


def connection_tests(context: RequestContext, name: str, *, recorded: bool = False) -> list[dict[str, Any]]:
    """Return what they find, one entry a check. Refusal as `RequestContext.run`."""
    return _found(context.run(name, CONNECTION_TEST, {}, key="test", recorded=recorded))


def destination_tests(context: RequestContext, name: str, *, recorded: bool = False) -> list[dict[str, Any]]:
    return _found(context.run("", CONNECTION_TEST, {"destination": name}, key=f"destination/{name}", recorded=recorded))


def at_once(
    test: Callable[[RequestContext, str], list[dict[str, Any]]], context: RequestContext, name: str
) -> list[dict[str, Any]]:
    """Return the tests of what was just written, which stands all the same if they fail or bring no answer in time."""
    try:
        return test(context, name)
    except Refusal as refusal:
        status = "SKIPPED" if refusal.status == 503 else "JOB_FAILED"
        return [{"title": f"Connecting to {name}", "status": status, "message": refusal.message, "details": ""}]


def _found(job: ApiJob) -> list[dict[str, Any]]:
    """What only is worth knowing is a warning."""
    return [
        {
            "title": check["name"],
            "status": "PASSED" if check["ok"] else "FAILED" if check.get("needed", True) else "WARNING",
            "message": check.get("detail", ""),
            "details": check.get("hint", ""),
        }
        for check in job.detail.get("checks", ())
    ]
