# ruff: noqa: F811 - the imported `spark` is a fixture
"""Iceberg's procedures maintain large tables inside the fence: rows stay, whoever is faster wins, nothing is left."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from maintain_lake import EAGER, SIZE, TAGS, Lake
from pyiceberg.expressions import EqualTo
from pyiceberg.transforms import IdentityTransform

from instep.crash import VARIABLE, Crashed
from instep.destinations.base import MaintenanceSpec
from instep.destinations.iceberg.maintain import compact, procedures
from instep.destinations.iceberg.maintain.expire import plain
from instep.errors import Fenced
from instep.schema.maintenance import Maintenance
from lake import REF, spark, stage, with_spark  # noqa: F401

pytestmark = pytest.mark.slow


@pytest.fixture
def whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Three small files, one of them with deleted rows, and a fourth."""
    monkeypatch.setattr(procedures, "LARGE_FILES", 0)
    made = Lake(tmp_path)
    made.add(TAGS)
    for n in range(3):
        made.append(*({"id": 10 * n + i, "name": f"n{i}", "size": i, "tags": ["a", None]} for i in range(5)))
    made.upsert({"id": 1, "name": "new", "size": 100})
    for left in set(made.on_disk()) - {Path(plain(f)) for f in named(made)}:
        left.unlink()  # what was staged for the upsert
    return made


@pytest.fixture
def lake(whole: Lake) -> Lake:
    """The same, and a column that was dropped and may come back."""
    whole.drop(SIZE)
    return whole


def rows(lake: Lake) -> list[tuple[Any, ...]]:
    return lake.rows("id", "name", "tags")


def named(lake: Lake) -> set[str]:
    """Every file that a snapshot of the table, or its metadata, names."""
    from instep.destinations.iceberg.maintain.expire import _named

    return {plain(f) for f in _named(lake.loaded)}


def during(monkeypatch: pytest.MonkeyPatch, procedure: str, act: Callable[[], None], times: int = 1) -> list[str]:
    """Do something each time that this procedure has ended, as often as told; the procedures that were called."""
    called, call = list[str](), procedures.MetadataAlias.call

    def with_act(self: Any, name: str, **given: str) -> Any:
        found = call(self, name, **given)
        called.append(name)
        if name == procedure and called.count(procedure) <= times:
            act()
        return found

    monkeypatch.setattr(procedures.MetadataAlias, "call", with_act)
    return called


@with_spark
def test_small_files_become_one_and_dropped_values_stay(lake: Lake, spark: Any) -> None:
    before, state = rows(lake), lake.to.schema.state(REF)
    done = lake.maintain(session=lambda: spark)
    assert rows(lake) == before
    assert (done.files_before, done.files, done.deletes, done.rewritten, done.notes) == (4, 1, 0, 4, ())
    after = lake.to.schema.state(REF)
    assert state is not None
    assert after is not None
    assert (after.run, after.fence, after.cursor, after.rows) == (state.run, state.fence, state.cursor, state.rows)
    assert {str(p) for p in (*lake.on_disk(), *lake.on_disk("metadata"))} <= named(lake)
    assert lake.maintain(session=lambda: spark).rewritten == 0
    lake.append({"id": 500, "name": "later"})
    lake.undrop(SIZE)
    sizes = dict(lake.rows("id", "size"))
    assert (sizes[3], sizes[24], sizes[1], sizes[500]) == (3, 4, 100, None)


@with_spark
def test_files_stay_in_their_partitions_and_go_to_new_ones(lake: Lake, spark: Any) -> None:
    with lake.loaded.update_spec() as update:
        update.add_field("name", IdentityTransform(), "name")
    for n in (50, 60):
        lake.append({"id": n, "name": "n1"}, {"id": n + 1, "name": "it's"})
    before = rows(lake)
    lake.maintain(session=lambda: spark, moving=True)
    assert rows(lake) == before
    assert {t.file.spec_id for t in lake.loaded.scan().plan_files()} == {lake.loaded.spec().spec_id}
    assert lake.loaded.scan(row_filter=EqualTo("name", "it's")).to_arrow().num_rows == 2


@with_spark
def test_many_manifests_become_few(lake: Lake, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(procedures, "MANIFESTS", 0)
    called, before = during(monkeypatch, "", lambda: None), rows(lake)
    how = Maintenance(min_files=100, keep_snapshots=50)
    done = lake.maintain(how, session=lambda: spark)
    assert "rewrite_manifests" in called
    assert (done.deletes_before, done.deletes) == (1, 0), "the rows that it names are out of their file"
    assert rows(lake) == before
    assert compact.MAINTAINED in lake.loaded.current_snapshot().summary.additional_properties


@with_spark
def test_a_sync_in_between_loses_nothing(lake: Lake, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was made of the table before that commit is thrown away, and made again of the table after it."""
    claim = lake.commit()

    def sync() -> None:
        lake.to.write.append(REF, [stage(lake.to, REF, [{"id": 700, "name": "between"}])], claim)

    before, called = rows(lake), during(monkeypatch, "rewrite_data_files", sync)
    done = lake.maintain(session=lambda: spark)
    assert called.count("rewrite_data_files") == 2
    assert rows(lake) == sorted([*before, (700, "between", None)], key=repr)
    assert done.files == 1
    assert {str(p) for p in (*lake.on_disk(), *lake.on_disk("metadata"))} <= named(lake)


@with_spark
@pytest.mark.parametrize("procedure", ["rewrite_data_files", "expire_snapshots"])
def test_a_later_claim_refuses_what_was_made(
    lake: Lake, spark: Any, monkeypatch: pytest.MonkeyPatch, procedure: str
) -> None:
    before, fence = rows(lake), lake.to.maintenance.latest_claim(REF)
    if procedure == "expire_snapshots":  # the claim comes before the snapshots go
        alone = procedures.MetadataAlias.is_alone
        monkeypatch.setattr(procedures.MetadataAlias, "is_alone", lambda self: bool(lake.commit()) and alone(self))
    else:
        during(monkeypatch, procedure, lambda: lake.commit())
    files, snapshots = lake.files(), len(lake.loaded.metadata.snapshots)
    with pytest.raises(Fenced):
        lake.to.maintenance.maintain(REF, MaintenanceSpec(EAGER, "m", fence, session=lambda: spark))
    assert rows(lake) == before
    if procedure == "rewrite_data_files":
        assert (lake.files(), len(lake.loaded.metadata.snapshots)) == (files, snapshots)
    assert {str(p) for p in lake.on_disk()} <= named(lake)


@with_spark
def test_old_snapshots_go_with_their_files(whole: Lake, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, called = whole, during(monkeypatch, "", lambda: None)
    table = lake.loaded
    tagged = table.metadata.snapshots[1]
    table.manage_snapshots().create_tag(tagged.snapshot_id, "mine").commit()
    old, before = lake.files(), rows(lake)
    then = table.scan(snapshot_id=tagged.snapshot_id).to_arrow().num_rows
    time.sleep(0.01)
    done = lake.maintain(session=lambda: spark)
    assert "expire_snapshots" in called
    assert done.snapshots > 0
    assert done.removed > 0
    gone = {f for f in old if not Path(plain(f)).exists()}
    assert gone
    assert lake.loaded.scan(snapshot_id=tagged.snapshot_id).to_arrow().num_rows == then, "a tag stands on it"
    assert rows(lake) == before
    assert {str(p) for p in lake.on_disk()} == {f for f in named(lake) if "/data/" in f}


@with_spark
def test_files_elsewhere_are_never_deleted(whole: Lake, spark: Any, tmp_path: Path) -> None:
    """Another program has added a file that is not in the table's place; its snapshot goes, it does not."""
    lake = whole
    table = lake.loaded
    elsewhere = tmp_path / "elsewhere.parquet"
    shutil.copy(plain(next(iter(lake.files()))), elsewhere)
    snapshot = table.metadata.current_snapshot_id
    table.add_files([str(elsewhere)], check_duplicate_files=False)
    with lake.loaded.manage_snapshots() as manage:
        manage.rollback_to_snapshot(snapshot)
    lake.append({"id": 800, "name": "after"})
    time.sleep(0.01)
    before = rows(lake)
    assert lake.maintain(session=lambda: spark).snapshots > 0
    assert elsewhere.exists()
    assert rows(lake) == before


@with_spark
def test_orphans_that_are_old_go(lake: Lake, spark: Any) -> None:
    place = Path(plain(lake.loaded.location()))
    old, young = place / "data" / "r0-part.parquet", place / "data" / "r9-part.parquet"
    for path in (old, young, place / "metadata" / "old.avro"):
        path.write_bytes(b"x" * 10)
    long_ago = time.time() - 10 * 86_400
    for path in (old, place / "metadata" / "old.avro", *lake.on_disk(), *lake.on_disk("metadata")):
        if path != young:
            os.utime(path, (long_ago, long_ago))
    how = Maintenance(min_files=100, keep_snapshots=50, orphan_age=3)
    before = rows(lake)
    done = lake.maintain(how, session=lambda: spark)
    assert done.orphans == 2
    assert (old.exists(), young.exists()) == (False, True)
    assert rows(lake) == before
    assert lake.maintain(how, session=lambda: spark, live=int((time.time() - 20 * 86_400) * 1000)).orphans == 0


@with_spark
@pytest.mark.parametrize("point", ["maintain.packed", "maintain.compacted", "maintain.expired", "maintain.removed"])
def test_what_was_killed_is_done_by_the_next(
    lake: Lake, spark: Any, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    before = rows(lake)
    time.sleep(0.01)
    monkeypatch.setenv(VARIABLE, f"{point}=raise")
    with pytest.raises(Crashed):
        lake.maintain(session=lambda: spark)
    monkeypatch.delenv(VARIABLE)
    assert rows(lake) == before
    lake.maintain(session=lambda: spark)
    assert rows(lake) == before
    assert len(lake.files()) == 1


def test_tables_of_few_files_and_shared_ones_are_maintained_here(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.append({"id": 1})

    def session() -> Any:
        raise AssertionError("no session is asked for")

    assert procedures.session_for(lake.to.lake, REF, MaintenanceSpec(EAGER, "m", 1, session=session)) is None
