"""Which files a cursor over `_file_number` reads, after any history of files."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.schema.catalog.catalog import Column, Table
from instep.schema.catalog.types import Int
from instep.sources.files.config import FilesConfig
from instep.sources.files.listing import FileState
from instep.sources.files.read import File, SeenFiles
from instep.sources.files.shape import FileShape
from instep.sources.files.source import number_bounds
from instep.store.catalogs.discoveries import SeenFile

CONFIG = FilesConfig.resolved(path="x")
TABLE = Table("files", "t", ())


def seen(versions: Sequence[tuple[str, int]], gone: Sequence[str] = ()) -> SeenFiles:
    """Versions as (name, number) in order of their numbers; the last of each name is there unless it is gone."""
    history: dict[str, tuple[SeenFile, ...]] = {}
    for name, number in versions:
        path = f"t/{name}.csv"
        history[path] = (*history.get(path, ()), SeenFile(path, 1, str(number), number))
    there = {p: v[-1].number for p, v in history.items() if p not in {f"t/{g}.csv" for g in gone}}
    files = tuple(File(FileState(p, 1, str(n)), n, "csv", FileShape()) for p, n in there.items())
    return SeenFiles({"t": tuple(sorted(files, key=lambda f: f.number))}, history=history)


A1, B2, C3 = ("a", 1), ("b", 2), ("c", 3)
CASES = [
    ("the first read", [A1, B2], (), None, (None, "2", 0, False)),
    ("nothing new", [A1, B2], (), "2", ("3", "2", 0, True)),
    ("a new file", [A1, B2, C3], (), "2", ("3", "3", 0, True)),
    ("a changed file", [A1, B2, ("a", 3)], (), "2", ("1", "3", 0, False)),
    ("changed before it was ever read", [A1, B2, C3, ("c", 4)], (), "2", ("3", "4", 0, True)),
    ("changed twice", [A1, B2, ("a", 3), ("a", 4)], (), "2", ("1", "4", 0, False)),
    ("changed and read since", [A1, B2, ("a", 3), C3], (), "3", ("4", "3", 0, True)),
    ("a file that is gone", [A1, B2], ("b",), "2", ("3", "2", 1, True)),
    ("the only one is gone", [A1], ("a",), "1", ("2", "1", 1, True)),
    ("gone before it was read", [A1, B2], ("b",), "1", ("2", "1", 0, True)),
    ("changed, and a later one is gone", [A1, B2, ("a", 3)], ("b",), "2", ("3", "3", 2, True)),
    ("changed, and an earlier one is gone", [A1, B2, ("b", 3)], ("a",), "2", ("2", "3", 1, False)),
]


@pytest.mark.parametrize(("versions", "gone", "after", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_bounds(
    versions: list[tuple[str, int]], gone: tuple[str, ...], after: str | None, expected: tuple[object, ...]
) -> None:
    lower, bounds = number_bounds(CONFIG, seen(versions, gone), TABLE, after, 0)
    assert (lower, bounds.upper, len(bounds.notes), bounds.fresh) == expected
    assert not bounds.lost


def test_a_number_that_the_store_does_not_know() -> None:
    assert "does not know" in number_bounds(CONFIG, seen([A1]), TABLE, "7", 0)[1].lost


def test_a_lookback_reads_more() -> None:
    assert number_bounds(CONFIG, seen([A1, B2]), TABLE, "2", 2)[0] == "1"


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["write", "gone", "sync"])), max_size=12))
def test_the_table_holds_each_version_that_is_there_once(steps: list[tuple[str, str]]) -> None:
    """Rows replaced from the lower bound on, as an append with a cursor does it: whatever happens, each file that is
    there has its newest rows in the table after a sync, and rows of no other version of it unless the sync said so."""
    versions: list[tuple[str, int]] = []
    gone: set[str] = set()
    table: set[tuple[str, int]] = set()
    after, told = None, False
    for name, what in [*steps, ("a", "write"), ("a", "sync")]:
        if what == "write":
            versions.append((name, len(versions) + 1))
            gone.discard(name)
        elif what == "gone" and name in dict(versions):
            gone.add(name)
        elif what == "sync" and set(dict(versions)) - gone:
            lower, bounds = number_bounds(CONFIG, seen(versions, sorted(gone)), TABLE, after, 0)
            there = {v for v in dict(versions).items() if v[0] not in gone}
            low = int(lower or 0)
            if after is None:
                table = set()
            elif not bounds.fresh:
                table = {v for v in table if v[1] < low}
            table |= {v for v in there if v[1] >= low}
            told, after = told or any("beside" in n for n in bounds.notes), bounds.upper
            assert there <= table
            returned = {n for n, _ in table - there} & {n for n, _ in there}
            assert told or not returned


KEYED = Table("files", "t", (Column("id", Int(64), key=1),))


@given(st.lists(st.tuples(st.sampled_from("abc"), st.frozensets(st.sampled_from("kl")), st.booleans()), max_size=8))
def test_the_newest_row_of_each_key_that_is_there_counts(steps: list[tuple[str, frozenset[str], bool]]) -> None:
    """Rows merged by key, the newest first, as an upsert with a cursor does it: whatever files are written with which
    keys, the table has the row of the newest file of each key after a sync."""
    versions: list[tuple[str, int]] = []
    keys: dict[int, frozenset[str]] = {}
    table: dict[str, int] = {}
    after = None
    for name, of, syncs in [*steps, ("a", frozenset("k"), True)]:
        versions.append((name, len(versions) + 1))
        keys[len(versions)] = of
        if not syncs:
            continue
        lower, bounds = number_bounds(CONFIG, seen(versions), KEYED, after, 0)
        newest = {key: number for number in sorted(dict(versions).values()) for key in keys[number]}
        read = {k: n for k, n in newest.items() if bounds.whole or n >= int(lower or 0)}
        merged = {k: n for k, n in read.items() if bounds.whole or n >= table.get(k, 0)}
        table = {k: n for k, n in (table | merged).items() if k in newest}
        assert table == newest
        after = bounds.upper
