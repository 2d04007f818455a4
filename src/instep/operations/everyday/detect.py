"""Detect schema changes in the source and evaluate them against the policy."""

from __future__ import annotations

from dataclasses import dataclass

from instep.operations.spec import JobPolicy, OperationSpec, Request


@dataclass(frozen=True)
class DetectRequest(Request):
    """Detection of schema changes; no options but the reason."""


_ROUTE = "POST /connections/{connection}/detect"
_WORK = "instep.worker.perform:detect"

SPECS = (
    OperationSpec(
        "detect", role="operator", route=_ROUTE, request=DetectRequest, work=_WORK, job=JobPolicy(reads_catalog=True)
    ),
    OperationSpec(
        "refresh", role="operator", route=_ROUTE, request=DetectRequest, work=_WORK, job=JobPolicy(reads_catalog=True)
    ),
    OperationSpec(
        "reload",
        role="operator",
        route=_ROUTE,
        request=DetectRequest,
        work=_WORK,
        job=JobPolicy(attempts=1, reads_catalog=True),
    ),
)
"""`refresh` is a scheduled detection, `reload` one that a client of the compatible API waits for."""
