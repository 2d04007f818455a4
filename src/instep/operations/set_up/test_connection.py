"""Test a source, a destination, or both ends of a connection."""

from __future__ import annotations

from instep.operations.spec import JobPolicy, OperationSpec

SPEC = OperationSpec(
    "test_connection",
    role="operator",
    route="POST /connections/{connection}/detect",
    work="instep.worker.perform:test_connection",
    job=JobPolicy(attempts=1),
)
