"""Which errors another attempt may mend."""

from __future__ import annotations

import pytest

from instep import errors

MAY_PASS = {
    "ConnectError", "ReadError", "SourceLost", "LockYielded", "StageError", "DestinationError", "Conflict", "StalePlan",
    "Fenced", "RunInProgress",
}  # fmt: skip
STAY = {
    "InstepError", "NotFound", "ProjectError", "SchemaError", "IllegalChange", "AccessDenied", "SparkNeeded", "Blocked",
    "SetupError", "ChangeNotFound", "Forbidden",
}  # fmt: skip


def test_every_error_is_one_or_the_other() -> None:
    known = {name for name, e in vars(errors).items() if isinstance(e, type) and issubclass(e, errors.InstepError)}
    assert known == MAY_PASS | STAY


@pytest.mark.parametrize("name", sorted(MAY_PASS | STAY))
def test_transient(name: str) -> None:
    assert getattr(errors, name)("x").transient is (name in MAY_PASS)
