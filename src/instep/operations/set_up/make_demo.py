"""Make the source of the demo: an SQLite file of a till with 5,000 sales."""

from __future__ import annotations

from instep.operations.spec import JobPolicy, OperationSpec

SPEC = OperationSpec(
    "make_demo",
    role="admin",
    route="POST /demo",
    work="instep.worker.perform:make_demo",
    job=JobPolicy(attempts=1),
)
