"""Without the extra `lineage` it is said what to install; other modules that are missing are faults of ours."""

from __future__ import annotations

import pytest

from instep.errors import SetupError
from instep.lineage.needed import needs_sqlglot


def test_only_sqlglot_is_missing_by_choice() -> None:
    with pytest.raises(SetupError, match="needs the package sqlglot") as failed, needs_sqlglot():
        raise ModuleNotFoundError("No module named 'sqlglot'", name="sqlglot")
    assert "instep[lineage]" in failed.value.hint
    with pytest.raises(ModuleNotFoundError, match="other"), needs_sqlglot():
        raise ModuleNotFoundError("No module named 'other'", name="other")
