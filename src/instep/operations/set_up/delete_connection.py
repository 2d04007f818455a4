"""Delete a connection, its slot at the source and, if asked for, its tables."""

from __future__ import annotations

from instep.operations.spec import JobPolicy, OperationSpec

SPEC = OperationSpec(
    "delete_connection",
    role="admin",
    route="DELETE /connections/{connection}",
    work="instep.worker.perform:delete_connection",
    job=JobPolicy(attempts=5, retry_command="instep connection delete"),
)
