"""Files keep their numbers, versions get new ones, and the numbers only grow."""

from __future__ import annotations

from instep.store.catalogs.discoveries import SeenFile
from instep.store.store import Store

SHAPE = {"columns": [["a", "int64", "", "", ""]], "rows": 1, "refused": 0, "parts": []}


def seen(path: str, size: int = 1, version: str = "1", options: str = "o") -> SeenFile:
    return SeenFile(path, size, version, 0, options, SHAPE)


def numbers(store: Store, *files: SeenFile) -> list[int]:
    return [one.number for one in store.source_files.add("s", files).values()]


def test_versions_are_numbered_in_the_order_in_which_they_are_seen(any_store: Store) -> None:
    a, b = numbers(any_store, seen("a"), seen("b"))
    assert b == a + 1 > 10**15
    assert numbers(any_store, seen("a")) == [a]
    (changed,) = numbers(any_store, seen("a", size=2))
    assert changed > b
    (reverted,) = numbers(any_store, seen("a"))
    assert reverted > changed
    found = any_store.source_files.of("s")
    assert [(f.path, f.size, f.number) for f in found] == [
        ("a", 1, a), ("b", 1, b), ("a", 2, changed), ("a", 1, reverted)
    ]  # fmt: skip
    assert found[0].shape == SHAPE
    assert any_store.source_files.of("t") == []


def test_a_version_that_is_looked_at_again_keeps_its_number(any_store: Store) -> None:
    (a,) = numbers(any_store, seen("a"))
    done = any_store.source_files.add("s", [seen("a", options="other")])
    assert (done["a"].number, done["a"].options) == (a, "other")
    assert [f.options for f in any_store.source_files.of("s")] == ["other"]
