# ruff: noqa: F811 - the imported `spark` is a fixture
"""Maintenance changes files, never rows: compaction, undo after it, snapshots, orphans, and who wins."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from maintain_lake import EAGER, NAME, SIZE, TAGS, Lake
from pyiceberg.transforms import BucketTransform, IdentityTransform

from instep.crash import VARIABLE, Crashed
from instep.destinations.base import Commit, MaintenanceSpec, Merge
from instep.destinations.iceberg.maintain import expire
from instep.destinations.iceberg.maintain import maintain as iceberg_maintain
from instep.destinations.iceberg.maintain.compact_task import pack
from instep.errors import Conflict, Fenced
from instep.schema import maintenance
from lake import REF, spark, stage, with_spark  # noqa: F401


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(tmp_path)
    for n in range(2):
        made.append(*({"id": 10 * n + i, "name": f"n{i}", "size": i} for i in range(5)))
    made.upsert({"id": 1, "name": "new", "size": 100}, {"id": 99, "name": "more", "size": 99})
    return made


def test_small_files_become_one(lake: Lake) -> None:
    before, state = lake.rows(), lake.to.schema.state(REF)
    done = lake.maintain()
    assert lake.rows() == before
    assert (done.files_before, done.files, done.deletes_before, done.deletes) == (3, 1, 1, 0)
    assert (done.rewritten, done.has_effect, done.notes) == (3, True, ())
    after = lake.to.schema.state(REF)
    assert state is not None
    assert after is not None
    assert (after.run, after.fence, after.cursor, after.rows) == (state.run, state.fence, state.cursor, state.rows)
    assert after.files == 1
    assert not lake.maintain().has_effect


def test_rows_keep_their_order(tmp_path: Path) -> None:
    """Files are put together in the order in which their rows came, and the table's sort order is kept."""
    lake = Lake(tmp_path)
    for n in (3, 1, 2):
        lake.append({"id": n, "name": f"{9 - n}"}, {"id": n + 10, "name": "z"})
    assert lake.maintain().files == 1
    assert lake.loaded.scan().to_arrow().column("id").to_pylist() == [3, 13, 1, 11, 2, 12]
    with lake.loaded.update_sort_order() as update:
        update.desc("name", IdentityTransform())
    for n in (5, 4):
        lake.append({"id": n, "name": f"{n}"})
    assert lake.maintain(replace(EAGER, min_files=3)).files == 1
    assert lake.loaded.scan().to_arrow().column("name").to_pylist()[:4] == ["z", "z", "z", "8"]


def test_a_sort_by_a_bucket_is_left_alone(lake: Lake) -> None:

    with lake.loaded.update_sort_order() as update:
        update.asc("id", BucketTransform(4))
    done = lake.maintain()
    assert done.rewritten == 0
    assert "sorted" in done.notes[0]


@pytest.mark.parametrize("key", [True, False], ids=["with a key", "without"])
def test_values_of_dropped_columns_move_with_their_rows(lake: Lake, key: bool) -> None:
    """A column is dropped, rows come and change, the files are put together: an undo by id finds its values."""
    lake.add(TAGS)
    lake.upsert({"id": 2, "name": "t", "size": 2, "tags": ["a", None]})
    kept = {row[0]: row[1:] for row in lake.rows("id", "size", "tags")}
    lake.drop(SIZE, TAGS)
    if key:
        lake.upsert({"id": 1, "name": "after"}, {"id": 500, "name": "new"})
    else:
        lake.append({"id": 500, "name": "new"})
    before = lake.rows("id", "name")
    assert lake.maintain().files == 1
    assert lake.rows("id", "name") == before
    back = lake.to.lifecycle.undrop_report(REF, "size")
    assert (back.snapshot, back.written, back.rewritten) == (True, 2 if key else 1, 0)
    assert lake.to.lifecycle.undrop_report(REF, "tags").rewritten == 0
    lake.undrop(SIZE, TAGS)
    rows = {row[0]: row[1:] for row in lake.rows("id", "size", "tags")}
    lost = {1, 500} if key else {500}
    assert {i: v for i, v in rows.items() if i not in lost} == {i: v for i, v in kept.items() if i not in lost}
    assert {rows[i] for i in lost} == {(None, None)}
    if key:
        lake.to.write.restore_dropped_values(REF, "size", lake.commit())
        assert dict(lake.rows("id", "size"))[1] == 100


def test_once_its_time_is_over_a_dropped_column_goes(tmp_path: Path) -> None:
    lake = Lake(tmp_path, undo_days=0)
    lake.append({"id": 1, "size": 1})
    lake.append({"id": 2, "size": 2})
    lake.drop(SIZE)
    time.sleep(0.01)
    lake.maintain()
    lake.undrop(SIZE)
    assert lake.rows("id", "size") == [(1, None), (2, None)]


def test_a_column_name_may_look_like_a_dropped_one(lake: Lake) -> None:
    number = lake.loaded.schema().find_field("size").field_id
    lake.drop(SIZE)
    lake.add(replace(NAME, name=f"dropped_{number}", id="#x", alias="x"))
    before = lake.rows("id", "name")
    assert lake.maintain().files == 1
    assert lake.rows("id", "name") == before


def test_worn_files_lose_their_deleted_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "WORN_ROWS", 3)
    lake, how = Lake(tmp_path), replace(EAGER, min_files=100)
    lake.append(*({"id": i, "size": i} for i in range(10)))
    lake.upsert(*({"id": i, "size": 0} for i in range(2)))
    assert not lake.to.maintenance.due(REF, how)
    assert lake.maintain(how).rewritten == 0
    lake.upsert({"id": 5, "size": 0}, {"id": 6, "size": 0})
    assert lake.to.maintenance.due(REF, how)
    before = lake.rows()
    done = lake.maintain(how)
    assert (done.rewritten, done.deletes) == (1, 0)
    assert lake.rows() == before
    state = lake.to.schema.state(REF)
    assert state is not None
    assert (state.rows, state.files) == (10, 3)


def test_many_manifests_become_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("instep.destinations.iceberg.maintain.compact.MANIFESTS", 4)
    lake, how = Lake(tmp_path), replace(EAGER, min_files=1000)
    for n in range(5):
        lake.append({"id": n})
    before, files = lake.rows(), lake.files()
    done = lake.maintain(how)
    assert (done.manifests_before, done.manifests, done.rewritten) == (5, 1, 0)
    assert (lake.rows(), lake.files()) == (before, files)
    assert lake.maintain(how).manifests == 1


def test_snapshots_go_with_the_files_that_only_they_name(lake: Lake) -> None:
    before = lake.rows()
    done = lake.maintain()
    assert (done.snapshots, len(lake.loaded.metadata.snapshots)) == (3, 1)
    assert done.removed >= 4
    assert {str(p) for p in lake.on_disk()} == {f.removeprefix("file://") for f in lake.files()}
    assert len([p for p in lake.on_disk("metadata") if p.name.startswith("snap-")]) == 1
    assert lake.rows() == before
    lake.upsert({"id": 1, "name": "again", "size": 5})
    assert dict(lake.rows("id", "name"))[1] == "again"


def test_what_undo_restore_and_kept_tables_need_stays(lake: Lake) -> None:
    lake.to.lifecycle.clones.clone_table(REF, ("shop", "orders_old"), lake.commit())
    kept = lake.to.write.read(("shop", "orders_old")).read_all().num_rows
    lake.upsert({"id": 3, "name": "x", "size": 3})
    lake.drop(SIZE)
    tagged = {r.snapshot_id for r in lake.loaded.metadata.refs.values()}
    lake.upsert({"id": 4, "name": "y"})
    assert lake.maintain().snapshots
    assert tagged <= {s.snapshot_id for s in lake.loaded.metadata.snapshots}
    assert lake.to.write.read(("shop", "orders_old")).read_all().num_rows == kept
    lake.undrop(SIZE)
    lake.to.write.restore_dropped_values(REF, "size", lake.commit())
    assert dict(lake.rows("id", "size"))[4] == 4
    assert [p.why_not for p in lake.to.lifecycle.savepoints.savepoints(REF) if p.current] == [""]


def test_young_and_newest_snapshots_stay(lake: Lake) -> None:
    assert lake.maintain(replace(EAGER, max_snapshot_age=1)).snapshots == 0
    assert lake.maintain(replace(EAGER, keep_snapshots=3)).snapshots == 1
    assert len(lake.loaded.metadata.snapshots) == 3


def old(path: Path, days: float) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.write_bytes(b"PAR1")
    at = time.time() - days * 86_400
    os.utime(path, (at, at))
    return path


def test_orphans_go_and_nothing_else(lake: Lake) -> None:
    how = replace(EAGER, orphan_age=3, max_snapshot_age=9, min_files=99)
    root = Path(lake.loaded.location().removeprefix("file://"))
    lost = [old(root / name, 4) for name in ("data/r-1/a.parquet", "data/b.parquet", "metadata/c-m0.avro",
                                             "metadata/00001-x.metadata.json")]  # fmt: skip
    stay = [old(root / name, days) for name, days in (
        ("data/young.parquet", 2), ("quarantine/q.parquet", 9), ("other.parquet", 9))]  # fmt: skip
    for path in [*lake.on_disk(), *lake.on_disk("metadata")]:
        if path not in stay:
            old(path, 4)
    before = lake.rows()
    dry = lake.maintain(how, dry_run=True)
    assert dry.orphans == 5
    assert lake.maintain(how, live=int((time.time() - 5 * 86_400) * 1000)).orphans == 0
    assert lake.maintain(how, deep=False).orphans == 0
    assert lake.maintain(how).orphans == 5
    assert not any(p.exists() for p in [*lost, lost[0].parent])
    assert all(p.exists() for p in stay)
    assert lake.rows() == before
    lake.upsert({"id": 1, "name": "still", "size": 1})


def test_nothing_is_deleted_while_a_manifest_cannot_be_read(lake: Lake) -> None:
    for path in [*lake.on_disk(), *lake.on_disk("metadata")]:
        old(path, 4)
    lost = old(Path(lake.loaded.location().removeprefix("file://")) / "data/b.parquet", 4)
    first = lake.loaded.metadata.snapshots[0]
    Path(first.manifest_list.removeprefix("file://")).unlink()
    done = lake.maintain(replace(EAGER, max_snapshot_age=9, min_files=99))
    assert "orphans were not looked for" in done.notes[0]
    assert lost.exists()


def test_nothing_is_deleted_where_files_are_listed_by_other_names(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file would be one that a snapshot names, and all of them orphans."""
    for path in [*lake.on_disk(), *lake.on_disk("metadata")]:
        old(path, 4)
    files, listed = lake.on_disk(), expire._listed
    monkeypatch.setattr(expire, "_listed", lambda *of: ((f"/other{p}", *rest) for p, *rest in listed(*of)))
    done = lake.maintain(replace(EAGER, max_snapshot_age=9, min_files=99))
    assert "does not show" in done.notes[0]
    assert lake.on_disk() == files


def test_a_dry_run_tells_what_would_be_done(lake: Lake) -> None:
    files = lake.on_disk()
    dry = lake.maintain(dry_run=True)
    assert lake.on_disk() == files
    done = lake.maintain()
    told = ("files_before", "files", "deletes_before", "deletes", "rewritten", "bytes_rewritten")
    assert [getattr(dry, t) for t in told] == [getattr(done, t) for t in told]


def test_a_load_that_has_claimed_the_table_wins(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim between reading and committing: nothing is written, nothing is left lying about."""
    work, before, rows = MaintenanceSpec(EAGER, "m", lake.to.maintenance.latest_claim(REF)), lake.on_disk(), lake.rows()
    real = pack

    def packed(*args: Any) -> Any:
        done = real(*args)
        lake.to.write.claim(REF, 77)
        return done

    monkeypatch.setattr("instep.destinations.iceberg.maintain.compact.pack", packed)
    with pytest.raises(Fenced):
        lake.to.maintenance.maintain(REF, work)
    assert (lake.on_disk(), lake.rows()) == (before, rows)
    with pytest.raises(Fenced):
        lake.to.maintenance.maintain(REF, work)


def test_a_table_that_moves_is_looked_at_again(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else commits: once, and maintenance goes on with what is there; again and again, and it gives up."""
    real, moves = pack, [1]

    def packed(*args: Any) -> Any:
        done = real(*args)
        if moves:
            moves.pop()
            file = stage(lake.to, REF, [{"id": 1000 + len(lake.rows())}])
            lake.to.write.append(REF, [file], Commit("x", lake.fence))
        return done

    monkeypatch.setattr("instep.destinations.iceberg.maintain.compact.pack", packed)
    assert lake.maintain().files == 1
    assert len(lake.rows()) == 12
    lake.append({"id": 7000})
    moves[:] = [1] * 9
    with pytest.raises(Conflict):
        lake.maintain()
    assert len(lake.rows()) == 13 + iceberg_maintain.TRIES


def test_a_stop_between_commits_leaves_the_rest(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("instep.destinations.iceberg.maintain.compact.COMMIT_BYTES", 1)
    how = replace(EAGER, target_file_size=2 * max(p.stat().st_size for p in lake.on_disk()))
    before = lake.rows()
    done = lake.maintain(how, go_on=lambda: False)
    assert 2 <= done.rewritten < 4
    assert done.snapshots == 0
    assert lake.rows() == before


def test_files_keep_which_backfills_have_been_through(tmp_path: Path) -> None:
    """Those that all of the files have been through: a fill that was interrupted goes on with the others."""
    from test_iceberg_fill import Lake as Filled

    made = Filled(tmp_path)
    made.append({"id": 1, "name": "a"}, {"id": 2, "name": "b"})
    made.append({"id": 11, "name": "k"}, {"id": 12, "name": "l"})
    made.widen()
    made.fill({"id": 1, "size": 10}, {"id": 11, "size": 110}, number=7)
    made.to.maintenance.maintain(REF, MaintenanceSpec(EAGER, "m", made.to.maintenance.latest_claim(REF)))
    assert len(made.files()) == 1
    assert made.to.write.fill_size(REF, {"size": 7}).files == 0
    assert made.to.write.fill_size(REF, {"size": 8}).files == 1
    assert made.fill({"id": 2, "size": 20}, {"id": 1, "size": 0}, number=8).rows == 1
    assert made.rows() == [(1, "a", 10), (11, "k", 110), (12, "l", None), (2, "b", 20)]


def test_layout_tells_files_and_when(lake: Lake) -> None:
    first = lake.to.maintenance.layout(REF)
    assert (first.files, first.deletes, first.snapshots, first.maintained) == (3, 1, 3, None)
    assert lake.to.maintenance.due(REF, EAGER)
    lake.maintain()
    after = lake.to.maintenance.layout(REF)
    assert (after.files, after.deletes, after.snapshots) == (1, 0, 1)
    assert after.maintained is not None
    assert not lake.to.maintenance.due(REF, EAGER)


def test_a_table_that_was_never_loaded_is_left_alone(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    assert not lake.to.maintenance.due(REF, EAGER)
    assert lake.maintain().notes == ("its files are left as they are: it has not been loaded yet",)


def test_types_and_metrics_are_those_of_a_load(lake: Lake) -> None:
    lake.maintain()
    (task,) = lake.loaded.scan().plan_files()
    (size, name) = (lake.loaded.schema().find_field(c).field_id for c in ("size", "name"))
    assert task.file.null_value_counts[size] == 0
    assert task.file.lower_bounds[name] == b"more"
    footer = pq.read_schema(task.file.file_path.removeprefix("file://"))
    assert footer.field("id").metadata[b"PARQUET:field_id"] == b"1"


@pytest.mark.sampled
@pytest.mark.parametrize("point", ["maintain.packed", "maintain.compacted", "maintain.expired", "maintain.removed"])
def test_a_crash_changes_no_row(lake: Lake, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    """The next load and the next maintenance go on; what the dead one left lying about is an orphan by then."""
    before = lake.rows()
    monkeypatch.setenv(VARIABLE, f"{point}=raise")
    with pytest.raises(Crashed):
        lake.maintain()
    monkeypatch.delenv(VARIABLE)
    assert lake.rows() == before
    lake.upsert({"id": 2, "name": "later", "size": 2})
    after = lake.rows()
    lake.maintain()
    assert lake.rows() == after
    for path in [*lake.on_disk(), *lake.on_disk("metadata")]:
        old(path, 1)
    lake.maintain()
    assert {str(p) for p in lake.on_disk()} == {f.removeprefix("file://") for f in lake.files()}
    assert len(lake.files()) == 1


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 99)),
        st.tuples(st.just("upsert"), st.sets(st.integers(0, 12), min_size=1, max_size=4)),
        st.tuples(st.just("delete"), st.sets(st.integers(0, 12), min_size=1, max_size=3)),
        st.tuples(st.sampled_from(["drop", "undrop", "maintain", "compact"]), st.none()),
    ),
    min_size=4,
    max_size=12,
)


def check_rows(folders: pytest.TempPathFactory, steps: list[tuple[str, Any]]) -> None:
    """A table that is maintained in between is, row by row, the one that never was; dropped columns come back alike."""
    kept, plain = (Lake(folders.mktemp("lake")) for _ in range(2))
    for number, (what, value) in enumerate([("append", 0), *steps, ("maintain", None)]):
        if what == "maintain":
            kept.maintain()
        elif what == "compact":
            kept.maintain(replace(EAGER, keep_snapshots=99, orphan_age=9), deep=False)
        else:
            for lake in (kept, plain):
                play(lake, what, value, number)
        assert row_by_row(kept) == row_by_row(plain)


STORIES: dict[str, list[tuple[str, Any]]] = {
    "changes": [("upsert", {0, 1}), ("delete", {2}), ("compact", None), ("upsert", {0, 5}), ("append", 1)],
    "a drop between": [("drop", None), ("upsert", {1}), ("maintain", None), ("append", 1), ("undrop", None),
                       ("compact", None), ("upsert", {2})],
    "dropped twice": [("compact", None), ("drop", None), ("maintain", None), ("undrop", None), ("upsert", {1, 3}),
                      ("drop", None), ("delete", {0}), ("maintain", None), ("undrop", None)],
}  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("steps", STORIES.values(), ids=STORIES)
def test_no_row_changes(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, Any]]) -> None:
    check_rows(tmp_path_factory, steps)


@pytest.mark.slow
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_no_row_ever_changes(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, Any]]) -> None:
    check_rows(tmp_path_factory, steps)


def play(lake: Lake, what: str, value: Any, number: int) -> None:
    has = "size" in {c.name for c in lake.table.columns}
    if what == "append":
        lake.append(*({"id": 100 * number + i, **_some(has, value)} for i in range(3)))
    elif what == "upsert":
        lake.upsert(*({"id": i, **_some(has, number)} for i in sorted(value)))
    elif what == "delete":
        rows = [i for (i,) in lake.rows("id") if i % 13 not in value]
        lake.upsert(*({"id": i, **_some(has, number)} for i in rows[:2]), complete=True, deletes="hard")
    elif what == "drop" and has:
        lake.drop(SIZE)
    elif what == "undrop" and not has:
        lake.undrop(SIZE)
        lake.to.write.restore_dropped_values(REF, "size", lake.commit())


def _some(has: bool, value: int) -> dict[str, Any]:
    return {"name": f"v{value}"} | ({"size": value} if has else {})


def row_by_row(lake: Lake) -> list[tuple[Any, ...]]:
    columns = [c.name for c in lake.table.columns if c.alias]
    state = lake.to.schema.state(REF)
    assert state is not None
    rows: list[tuple[Any, ...]] = lake.rows(*columns)
    assert state.rows == len(rows)
    return rows


@pytest.mark.slow
@with_spark
def test_tasks_of_spark_do_the_same(tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark writes the files, and reads them as this process does; a merge of Spark goes on from there."""
    monkeypatch.setattr("instep.destinations.iceberg.maintain.compact.HERE_BYTES", 0)
    lake = Lake(tmp_path, upsert_rows=0)
    lake.add(TAGS)
    for n in range(5):
        lake.append(*({"id": 10 * n + i, "name": f"n{i}", "size": i, "tags": ["a", None]} for i in range(5)))
    merge = Merge(("id",))
    lake.to.write.merge(lambda: spark, REF, [stage(lake.to, REF, [{"id": 1, "name": "m"}])], merge, lake.commit())
    lake.drop(SIZE)
    before = lake.rows("id", "name", "tags")
    done = lake.maintain(session=lambda: spark)
    assert (done.files, done.deletes) == (1, 0)
    assert lake.rows("id", "name", "tags") == before
    lake.to.write.merge(lambda: spark, REF, [stage(lake.to, REF, [{"id": 2, "name": "later"}])], merge, lake.commit())
    assert dict(lake.rows("id", "name"))[2] == "later"
    lake.undrop(SIZE)
    sizes = dict(lake.rows("id", "size"))
    assert (sizes[3], sizes[44], sizes[1]) == (3, 4, None)
