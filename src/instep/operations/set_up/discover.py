"""List the tables of a source."""

from __future__ import annotations

from instep.operations.spec import JobPolicy, OperationSpec

SPEC = OperationSpec(
    "discover",
    role="operator",
    route="POST /sources/{name}/discover",
    work="instep.worker.perform:discover",
    job=JobPolicy(attempts=1, reads_catalog=True),
)
