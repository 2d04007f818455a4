"""Old names are recorded once a plan, changed and ended as a whole."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from instep.schema.planning.aliases import OldName
from instep.store.store import Store

AT = datetime(2026, 3, 1, tzinfo=UTC)
A = OldName(("shop", "t"), "amount", "total", AT + timedelta(days=30), AT, batch="p-1 r-1")
B = OldName(("shop", "t"), "", "was", AT + timedelta(days=30), AT, batch="p-1 r-1")


def test_old_names_are_recorded_once_follow_and_end(any_store: Store) -> None:
    names = any_store.old_names
    for _ in range(2):
        names.add("shop", [A, B])
    a, b = names.of("shop")
    assert [replace(n, number=0) for n in (a, b)] == [A, B]
    moved = replace(a, table=("shop", "u"), column="sum", batch="", shown="shop.u__compat")
    names.replace_all("shop", [moved])
    assert names.of("shop") == [moved]
    names.add("shop", [replace(A, batch="p-2 r-2")])
    names.extend(a.number, AT + timedelta(days=60))
    assert [(n.until - AT).days for n in names.of("shop")] == [60, 30]
    names.replace_all("shop", [])
    assert (names.of("shop"), names.of("twin")) == ([], [])
