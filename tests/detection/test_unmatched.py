"""Choices that match nothing are found by name: thousands of them are looked at in no time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from instep.schema.catalog.catalog import Catalog
from instep.schema.selection.selection import Pattern, Selection
from instep.sync.detection import detect


def test_each_switch_is_looked_up_and_none_is_compared_with_all(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"main.t{n}" for n in range(30_000)]
    context: Any = SimpleNamespace(
        selection=Selection(off=frozenset(names), exclude_tables=(Pattern("x.*"), Pattern("main.t?")))
    )
    found: Any = SimpleNamespace(catalog=Catalog(), denied={("hidden", "t"): "no right"})
    switches: Any = [SimpleNamespace(path=name) for name in names[1:]]
    compared: list[str] = []
    known = Pattern.matches

    def matches(self: Pattern, path: str) -> bool:
        compared.append(self.text)
        return known(self, path)

    monkeypatch.setattr(Pattern, "matches", matches)
    assert detect._unmatched(context, found, switches) == ("x.*", "main.t0")
    assert set(compared) == {"x.*", "main.t?"}
    assert len(compared) < 3 * len(names)
