"""A quarantine's files read as entries: one an id, whatever was written when, and after any crash."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from instep.errors import StageError
from instep.stage.files.place import StorageFolder
from instep.stage.quarantine import SCHEMA, QuarantineEntry, entry_id, original_digest, write_statuses
from instep.stage.quarantine_store import COUNTED, EntryFilter, count_waiting, stored_quarantine
from quarantined import entries_in

DAY = datetime(2026, 11, 1, tzinfo=UTC)


def entry(original: str | None = "x", day: int = 0, **more: Any) -> QuarantineEntry:
    at = DAY + timedelta(days=day)
    id = more.pop("id", entry_id("t", "{}", "a", original_digest(original)))
    digest = more.pop("digest", original_digest(original))
    return QuarantineEntry(
        id, "t", "{}", "a", original, "why", "", "", "a", "{}", more.pop("run", "r"), 0, at, at, digest=digest, **more
    )


def put(folder: Path, name: str, *entries: QuarantineEntry) -> None:
    """Write a file of the quarantine as it is, whatever its entries are."""
    pq.write_table(pa.Table.from_pylist([vars(e) for e in entries], schema=SCHEMA), folder / name)


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
def test_one_entry_an_id(rows: Any, wanted: Any, tmp_path: Path) -> None:
    for file, day, status in rows:
        put(tmp_path, file, entry(day=day, status=status))
    [found] = entries_in(str(tmp_path), {})
    assert ((found.since - DAY).days, (found.at - DAY).days, found.status) == wanted
    assert found.original == (None if found.status == "discarded" else "x")
    with stored_quarantine(str(tmp_path), {}, (), same, COUNTED) as narrow:
        assert [(one.status, one.count, one.newest) for one in narrow.counts(EntryFilter())] == [
            (found.status, 1, found.at)
        ]
    assert count_waiting(str(tmp_path), {}, ()) == (found.status == "held", sorted({file for file, _, _ in rows}))


@settings(max_examples=20)
@given(st.lists(st.tuples(st.sampled_from([OLD, NEW, KEPT]), st.integers(0, 3), st.sampled_from("xyz"))))
def test_merging_again_changes_nothing(rows: list[tuple[str, int, str]]) -> None:
    with TemporaryDirectory() as folder:
        for name in {file for file, _, _ in rows}:
            put(Path(folder), name, *(entry(original, day) for file, day, original in rows if file == name))
        once = entries_in(folder, {})
        with stored_quarantine(folder, {}, (), same) as found:
            found.put_together("r-9", 0)
        assert len(list(Path(folder).iterdir())) == bool(rows)
        assert entries_in(folder, {}) == once
        assert len({e.id for e in once}) == len(once) == len({r[2] for r in rows})


STATES = st.sampled_from(["held", "replayed", "superseded", "discarded"])


@settings(max_examples=20)
@given(st.lists(st.tuples(st.sampled_from([OLD, NEW, KEPT]), st.integers(0, 3), st.sampled_from("wxyz"), STATES)))
def test_those_that_are_held_are_counted_as_they_are_read(rows: list[tuple[str, int, str, Any]]) -> None:
    """Of a file that cannot be read nothing counts, nor of a run that has committed nothing."""
    with TemporaryDirectory() as folder:
        last = {(file, day, text): state for file, day, text, state in rows}  # one file says one thing of a moment
        for name in {file for file, *_ in rows}:
            own = (entry(t, day, status=state) for (file, day, t), state in last.items() if file == name)
            put(Path(folder), name, *own)
        put(Path(folder), "r-dead-1.parquet", entry("v"))
        Path(folder, "r-5.parquet").write_bytes(b"PAR1")
        held = [one for one in entries_in(folder, {}, ["r-dead"]) if one.status == "held"]
        count, files = count_waiting(folder, {}, ["r-dead"])
        assert (count, sorted(files)) == (len(held), sorted({file for file, *_ in rows}))


def same(entry: QuarantineEntry) -> QuarantineEntry:
    return entry


def test_what_was_written_is_read(tmp_path: Path) -> None:
    entries = (entry("ünï\n🦀"), entry(None, 1), entry("y", 2, status="replayed"))
    write_statuses(StorageFolder(str(tmp_path)), "r-1", 0, [entries])
    assert entries_in(str(tmp_path), {}) == entries


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """30 entries of 15 days in two files, every third one settled."""
    made = [entry(f"{n:02}", n // 2, status="replayed" if n % 3 == 0 else "held", run=f"r-{n % 2}") for n in range(30)]
    put(tmp_path, "r-0-a.parquet", *made[:20])
    put(tmp_path, "r-1-b.parquet", *made[10:])
    return tmp_path


FILTERS = [
    ("all", EntryFilter()),
    ("held", EntryFilter(status="held")),
    ("of a run", EntryFilter(run="r-1")),
    ("of no column", EntryFilter(column="b")),
    ("until a day", EntryFilter(status="held", until=DAY + timedelta(days=4))),
    ("one id", EntryFilter(id=entry_id("t", "{}", "a", original_digest("07")))),
]


@pytest.mark.parametrize("chosen", [f for _, f in FILTERS], ids=[n for n, _ in FILTERS])
def test_entries_are_found_page_by_page(chosen: EntryFilter, many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("instep.stage.quarantine_store.GROUP", 3)
    wanted = sorted(entries_in(str(many), {}), key=lambda e: (-e.at.timestamp(), e.id))
    for name in ("status", "column"):
        wanted = [e for e in wanted if not getattr(chosen, name) or getattr(e, name) == getattr(chosen, name)]
    wanted = [e for e in wanted if e.run.startswith(chosen.run) and e.id.startswith(chosen.id)]
    wanted = [e for e in wanted if chosen.until is None or e.at <= chosen.until]
    found, after = list[QuarantineEntry](), None
    with (
        stored_quarantine(str(many), {}, (), same) as stored,
        stored_quarantine(str(many), {}, (), same, COUNTED) as narrow,
    ):
        assert sum(one.count for one in narrow.counts(chosen)) == len(wanted)
        while page := [e for entries in stored.newest(chosen, after, 4) for e in entries]:
            assert narrow.newest_ids(chosen, after, 4) == [e.id for e in page]
            found, after = [*found, *page], (page[-1].at, page[-1].id)
    assert found == wanted


def test_what_is_discarded_or_erased_is_put_together(many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("instep.stage.quarantine_store.GROUP", 3)
    before, limit = entries_in(str(many), {}), DAY + timedelta(days=4)
    ids, early = [e.id for e in before], [e.id for e in before if e.at <= limit]
    one, other = (e.id for e in before[-4:-1] if e.status == "held")
    with stored_quarantine(str(many), {}, (), same) as found:
        assert found.discard(EntryFilter(until=limit))[0] == 6
        assert found.discard(EntryFilter(), [*early, one, "q-none"]) == (1, [one])
        found.put_together("r-2", 0)
        assert found.erase([one, other, "q-none"]) == 2
        found.put_together("r-2", 1)
    left = entries_in(str(many), {})
    assert [e.id for e in left] == [id for id in ids if id not in (one, other)]
    assert sum(e.status == "discarded" for e in left) == sum(e.original is None for e in left) == 6
    assert len(list(many.iterdir())) == 1
    with stored_quarantine(str(many), {}, (), same) as found:
        assert found.erase(ids) == 28
        found.put_together("r-3", 0)
    assert list(many.iterdir()) == []


def test_an_id_is_named_by_how_it_begins(many: Path) -> None:
    ids = sorted(e.id for e in entries_in(str(many), {}))
    with stored_quarantine(str(many), {}, (), same, COUNTED) as found:
        assert found.starting([ids[4], ids[5][:-1], "q-", "q-none"]) == {
            ids[4]: (1, ids[4]),
            ids[5][:-1]: (1, ids[5]),
            "q-": (30, ids[0]),
        }


def test_a_rewrite_that_stopped_half_way_is_done_again(tmp_path: Path) -> None:
    put(tmp_path, OLD, entry("x"), entry("y"))
    put(tmp_path, KEPT, entry("x", status="replayed"), entry("y", status="replayed"))
    assert {e.status for e in entries_in(str(tmp_path), {})} == {"replayed"}


def test_files_of_ignored_runs_and_broken_ones_are_left_alone(tmp_path: Path) -> None:
    put(tmp_path, "r-1-a.parquet", entry())
    (tmp_path / "r-2-00000-0-0-a.parquet").write_bytes(b"PAR1")
    (tmp_path / "notes.txt").write_text("of a person")
    with stored_quarantine(str(tmp_path), {}, (), same) as found:
        assert found.broken == ["r-2-00000-0-0-a.parquet"]
    with stored_quarantine(str(tmp_path), {}, ["r-2"], same) as found:
        assert (found.count, found.broken) == (1, [])
        found.erase([entry().id])
        found.put_together("r-3", 0)
    assert len(list(tmp_path.iterdir())) == 2


def test_files_of_the_first_format_are_read(tmp_path: Path) -> None:
    names = ["table", "key", "column", "original", "reason", "run", "chunk"]
    row = dict(zip(names, ["0", '{"id":"1"}', "a", "x", "why", "r-20260102-030405-abcdef", 0], strict=True))
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "r-20260102-030405-abcdef-00000-0-0-a.parquet")
    [found] = entries_in(str(tmp_path), {})
    assert (found.at, found.name, found.status) == (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "a", "held")


def test_a_place_that_cannot_be_written_loses_nothing(tmp_path: Path) -> None:
    put(tmp_path, "r-1-a.parquet", entry())
    before = entries_in(str(tmp_path), {})
    (tmp_path / "file").write_text("")
    with pytest.raises(StageError):
        write_statuses(StorageFolder(str(tmp_path / "file")), "r-2", 0, [before])
    assert entries_in(str(tmp_path), {}) == before
