"""Compare the rows of source and destination by counts and checksums.

The job's result has `tables`, each with `equal`, the row counts of both sides, and `differences` as text, which counts
differing rows without naming them.
"""

from __future__ import annotations

from dataclasses import dataclass

from instep.operations.spec import OperationSpec, Request
from instep.operations.values import NameList


@dataclass(frozen=True)
class VerifyRequest(Request):
    """Tables to compare."""

    tables: NameList = ()
    """Only these tables (`schema.table`); none: all."""


SPEC = OperationSpec(
    "verify",
    role="operator",
    route="POST /connections/{connection}/verify",
    request=VerifyRequest,
    result="instep.sync.operations.verify:VerifyReport",
    work="instep.sync.operations.verify:Verify",
)
