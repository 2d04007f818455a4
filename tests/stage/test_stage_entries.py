"""A quarantine's files read as entries: one an id, whatever was written when, and after any crash."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.errors import StageError
from instep.stage.quarantine import QuarantineEntry, TableQuarantine, entry_id, merged, read_entries, rewrite

DAY = datetime(2026, 11, 1, tzinfo=UTC)


def entry(original: str | None = "x", day: int = 0, **more: Any) -> QuarantineEntry:
    at = DAY + timedelta(days=day)
    id = more.pop("id", entry_id("t", "{}", "a", original))
    return QuarantineEntry(id, "t", "{}", "a", original, "why", "", "", "a", "{}", "r", 0, at, at, **more)


OLD, NEW, KEPT = "r-1.parquet", "r-2.parquet", "kept-r-3.parquet"
# name, (file, day, status) of one id, (since, at, status)
CASES: list[tuple[str, list[tuple[str, int, Any]], tuple[int, int, str]]] = [
    ("held again", [(OLD, 0, "held"), (NEW, 2, "held")], (0, 2, "held")),
    ("settled, and both files left", [(OLD, 0, "held"), (KEPT, 0, "replayed")], (0, 0, "replayed")),
    ("settled twice", [(KEPT, 0, "superseded"), ("kept-r-4.parquet", 0, "replayed")], (0, 0, "replayed")),
    ("held again after a replay", [(KEPT, 0, "replayed"), (NEW, 1, "held")], (0, 1, "held")),
    ("held again after it was discarded", [(KEPT, 0, "discarded"), (NEW, 1, "held")], (0, 1, "discarded")),
]


@pytest.mark.parametrize(("rows", "wanted"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_one_entry_an_id(rows: Any, wanted: Any) -> None:
    for order in (rows, rows[::-1]):
        [found] = merged([(file, entry(day=day, status=status)) for file, day, status in order])
        assert ((found.since - DAY).days, (found.at - DAY).days, found.status) == wanted
        assert found.original == (None if found.status == "discarded" else "x")


@given(st.lists(st.tuples(st.sampled_from([OLD, NEW, KEPT]), st.integers(0, 3), st.sampled_from("xyz"))))
def test_merging_again_changes_nothing(rows: list[tuple[str, int, str]]) -> None:
    once = merged([(file, entry(original, day)) for file, day, original in rows])
    assert merged([(KEPT, e) for e in once]) == once
    assert len({e.id for e in once}) == len(once) == len({r[2] for r in rows})


def test_what_was_written_is_read(tmp_path: Path) -> None:
    entries = merged([(OLD, entry("ünï\n🦀")), (OLD, entry(None, 1)), (OLD, entry("y", 2, status="replayed"))])
    rewrite(str(tmp_path), {}, TableQuarantine(), entries, "r-1")
    found = read_entries(str(tmp_path), {})
    assert found.entries == entries
    rewrite(str(tmp_path), {}, found, entries[:1], "r-2")
    assert (read_entries(str(tmp_path), {}).entries, len(list(tmp_path.iterdir()))) == (entries[:1], 1)
    rewrite(str(tmp_path), {}, read_entries(str(tmp_path), {}), (), "r-3")
    assert list(tmp_path.iterdir()) == []


def test_a_rewrite_that_stopped_half_way_is_done_again(tmp_path: Path) -> None:
    rewrite(str(tmp_path), {}, TableQuarantine(), [entry("x"), entry("y")], "r-1")
    before = read_entries(str(tmp_path), {})
    rewrite(
        str(tmp_path), {}, replace(before, files=()), [replace(e, status="replayed") for e in before.entries], "r-2"
    )
    found = read_entries(str(tmp_path), {})
    assert len(found.files) == 2
    assert {e.status for e in found.entries} == {"replayed"}


def test_files_of_ignored_runs_and_broken_ones_are_left_alone(tmp_path: Path) -> None:
    rewrite(str(tmp_path), {}, TableQuarantine(), [entry()], "r-1")
    (tmp_path / "r-2-00000-0-0-a.parquet").write_bytes(b"PAR1")
    (tmp_path / "notes.txt").write_text("of a person")
    assert read_entries(str(tmp_path), {}).broken == ("r-2-00000-0-0-a.parquet",)
    found = read_entries(str(tmp_path), {}, ["r-2"])
    assert (len(found.entries), found.broken) == (1, ())
    rewrite(str(tmp_path), {}, found, (), "r-3")
    assert len(list(tmp_path.iterdir())) == 2


def test_files_of_the_first_format_are_read(tmp_path: Path) -> None:
    names = ["table", "key", "column", "original", "reason", "run", "chunk"]
    row = dict(zip(names, ["0", '{"id":"1"}', "a", "x", "why", "r-20260102-030405-abcdef", 0], strict=True))
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "r-20260102-030405-abcdef-00000-0-0-a.parquet")
    [found] = read_entries(str(tmp_path), {}).entries
    assert (found.at, found.name, found.status) == (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "a", "held")


def test_a_place_that_cannot_be_written_loses_nothing(tmp_path: Path) -> None:
    rewrite(str(tmp_path), {}, TableQuarantine(), [entry()], "r-1")
    found = read_entries(str(tmp_path), {})
    (tmp_path / "file").write_text("")
    with pytest.raises(StageError):
        rewrite(str(tmp_path / "file"), {}, found, found.entries, "r-2")
    assert read_entries(str(tmp_path), {}) == found
