# ruff: noqa: S608 - the SQL of tests
"""Whatever is done to one shard's rows leaves those of the others alone."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from shard_world import REF, Shop, opened

from contract import destinations
from instep.crash import VARIABLE, Crashed
from instep.destinations.base import Commit, MaintenanceSpec
from instep.errors import Fenced, InstepError
from instep.project.sections.tables import TableSettings
from instep.schema.maintenance import Maintenance
from instep.sync.schema_changes.undo import apply_undo, find, prepare
from sync_world import cursor, preset

pytestmark = [pytest.mark.sampled, pytest.mark.drawn(3)]  # which destination: all of them over several commits
KINDS = ("delta", "duckdb", "iceberg")
MAKE = "CREATE TABLE t (id int PRIMARY KEY, v text, at int)"
ROWS = ("INSERT INTO t VALUES (1, 'x', 1)", "INSERT INTO t VALUES (2, 'y', 2)")


def loaded(shop: Shop, **settings: TableSettings) -> Shop:
    for shard in shop.shards.values():
        shard.settings.update(settings)
    shop.run(MAKE, *ROWS)
    shop.sync()
    return shop


def test_a_cursor_and_the_deletes_of_one_shard(shop: Shop) -> None:
    loaded(shop, t=cursor("at"))
    shop["b"].run("DELETE FROM t WHERE id = 1", "INSERT INTO t VALUES (3, 'z', 3)")
    report = shop["b"].sync()
    assert [(t.read, t.inserted, t.updated, t.deleted) for t in report.tables] == [(2, 1, 0, 1)]
    shop.sync()
    assert shop.rows("id") == [("a", 1), ("a", 2), ("b", 2), ("b", 3), ("c", 1), ("c", 2)]
    assert shop.differing() == {}


@pytest.mark.slow
def test_hard_deletes_and_full_loads(warehouse: Shop) -> None:
    loaded(warehouse, t=TableSettings(mode="full_refresh", deletes="hard"))
    warehouse["c"].run("DELETE FROM t WHERE id = 2")
    warehouse.sync(full=True)
    assert warehouse.rows("id") == [("a", 1), ("a", 2), ("b", 1), ("b", 2), ("c", 1)]
    assert warehouse.differing() == {}


@pytest.mark.slow
def test_rows_from_a_cursor_on_are_those_of_the_shard(shop: Shop) -> None:
    for shard in shop.shards.values():
        shard.settings["t"] = TableSettings(mode="append", cursor="at", lookback=1)
    shop.run("CREATE TABLE t (v text, at int)", "INSERT INTO t VALUES ('x', 1)", "INSERT INTO t VALUES ('y', 5)")
    shop.sync()
    shop["a"].run("INSERT INTO t VALUES ('z', 5)", "INSERT INTO t VALUES ('z', 6)")
    shop.sync()
    assert shop.rows("v", "at") == [
        ("a", "x", 1), ("a", "y", 5), ("a", "z", 5), ("a", "z", 6), ("b", "x", 1), ("b", "y", 5), ("c", "x", 1),
        ("c", "y", 5),
    ]  # fmt: skip


@pytest.mark.slow
def test_new_values_are_filled_in_one_shard(warehouse: Shop) -> None:
    loaded(warehouse, t=cursor("at", deletes="ignore"))
    warehouse["a"].policy = preset("allow_all", backfill="column")
    for shard in "ab":
        warehouse[shard].run("ALTER TABLE t ADD COLUMN size int DEFAULT 7")
    warehouse.sync()
    assert warehouse.rows("id", "size") == [
        ("a", 1, 7), ("a", 2, 7), ("b", 1, None), ("b", 2, 7), ("c", 1, None), ("c", 2, None),
    ]  # fmt: skip


@pytest.mark.slow
def test_a_dropped_column_is_taken_back_with_its_values(warehouse: Shop) -> None:
    for shard in warehouse.shards.values():
        shard.policy = preset("propagate_all")
    loaded(warehouse)
    for shard in "abc":
        warehouse[shard].run("ALTER TABLE t DROP COLUMN v")
    warehouse.sync()
    assert warehouse.columns() == ["id", "at"]
    for shard in "ca":
        context = warehouse[shard].context
        (review,) = [r for r in context.store.reviews.find(shard, ["applied"]) if r.kind == "column.removed"]
        apply_undo(context, prepare(context, find(context, review.id)))
    assert warehouse.rows("id", "v") == [
        ("a", 1, "x"), ("a", 2, "y"), ("b", 1, "x"), ("b", 2, "y"), ("c", 1, "x"), ("c", 2, "y"),
    ]  # fmt: skip
    assert "v" not in warehouse["b"].accepted("t").by_name


@pytest.mark.slow
def test_a_rename_is_taken_back_with_the_values_of_its_shard(warehouse: Shop) -> None:
    loaded(warehouse)
    one = warehouse["a"]
    one.run("ALTER TABLE t RENAME COLUMN v TO w")
    one.sync()
    one.answer("approved", "column.renamed")
    one.sync()
    assert warehouse.columns() == ["id", "v", "at", "w"]
    one.run("INSERT INTO t VALUES (3, 'z', 3)")
    one.sync()
    (review,) = [r for r in one.store.reviews.find("a", ["applied"]) if r.kind == "column.renamed"]
    apply_undo(one.context, prepare(one.context, find(one.context, review.id)))
    assert warehouse.columns() == ["id", "v", "at"]
    assert warehouse.rows("id", "v")[:3] == [("a", 1, "x"), ("a", 2, "y"), ("a", 3, "z")]
    assert len(warehouse.rows("id")) == 7


@pytest.mark.slow
def test_a_table_that_was_replaced_loads_its_own_rows_anew(warehouse: Shop) -> None:
    loaded(warehouse)
    warehouse["a"].run("DROP TABLE t", "CREATE TABLE t (id int PRIMARY KEY, w text)", "INSERT INTO t VALUES (9, 'w')")
    warehouse.sync()
    assert warehouse.rows("id", "w") == [("a", 9, "w"), ("b", 1, None), ("b", 2, None), ("c", 1, None), ("c", 2, None)]
    assert warehouse.differing() == {}


@pytest.mark.slow
def test_dropping_and_renaming_a_table_needs_all_of_them(warehouse: Shop) -> None:
    loaded(warehouse)
    warehouse["a"].run("ALTER TABLE t RENAME TO u")
    warehouse["a"].sync()
    warehouse["a"].answer("approved", "table.renamed")
    (why,) = warehouse["a"].preview().plan.refused.values()
    assert why.startswith("table shop.t cannot be renamed to shop.u: it has rows of shards b, c")
    assert {t.status for t in warehouse["a"].sync().tables} == {"done"}
    assert len(warehouse.rows("id")) == 6


def test_a_late_run_of_one_shard_is_refused_and_others_go_on(warehouse: Shop) -> None:
    loaded(warehouse)
    late, other = warehouse["a"].context.destination, warehouse["b"].context.destination
    late.write.claim(REF, 50)
    with pytest.raises(Fenced):
        late.write.append(REF, [], Commit("late", 49))
    other.write.append(REF, [], Commit("other", 40))
    assert [warehouse[s].context.destination.schema.state(REF).fence for s in "ab"] == [1, 40]


KILLS = [
    *((kind, point) for kind in KINDS for point in ("apply.table.after", "sync.staged", "sync.commit.after")),
    ("delta", "delta.commit.before"), ("duckdb", "sql.commit.before"), ("iceberg", "merge.staged"),
    ("iceberg", "merge.merged"), ("iceberg", "merge.published"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "point"), KILLS)
def test_killed_in_between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, point: str) -> None:
    with opened(tmp_path, destinations.DESTINATIONS[kind](tmp_path), "ab") as shop:
        loaded(shop)
        shop["a"].run(
            "ALTER TABLE t ADD COLUMN n int", "INSERT INTO t VALUES (3, 'z', 3, 4)", "DELETE FROM t WHERE id = 1"
        )
        monkeypatch.setenv(VARIABLE, f"{point}=raise")
        with suppress(Crashed, InstepError):
            shop["a"].sync()
        monkeypatch.delenv(VARIABLE)
        shop["b"].run("INSERT INTO t VALUES (5, 'b', 5)")
        shop["b"].sync()
        shop["a"].sync()
        assert shop.rows("id", "n") == [("a", 2, None), ("a", 3, 4), ("b", 1, None), ("b", 2, None), ("b", 5, None)]
        assert shop.differing() == {}


@pytest.mark.slow
def test_all_at_once(shop: Shop) -> None:
    """The first load makes the table, each of them with a column of its own."""
    for name, shard in shop.shards.items():
        rows = ", ".join(f"({n}, 'x')" for n in range(9))
        shard.run(f"CREATE TABLE t (id int PRIMARY KEY, {name} text)", f"INSERT INTO t VALUES {rows}")
    for _ in range(2):
        with ThreadPoolExecutor(3) as pool:
            reports = list(pool.map(lambda shard: shard.sync(full=True), shop.shards.values()))
        assert [t.status for report in reports for t in report.tables] == ["done"] * 3, reports
    assert sorted(shop.columns()) == ["a", "b", "c", "id"]
    assert len(shop.rows("id")) == 27
    assert shop.differing() == {}


def test_what_is_held_of_one_shard_is_not_that_of_others(warehouse: Shop) -> None:
    loaded(warehouse)
    targets = [warehouse[shard].context.destination.write.target(REF) for shard in "abc"]
    assert len({t.quarantine for t in targets} | {t.location for t in targets}) == 6


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "seed"), [(kind, 0) for kind in KINDS])
def test_the_table_is_the_union_of_its_sources(tmp_path: Path, kind: str, seed: int) -> None:
    """Random rows and columns in random shards: after each sync of all of them the table holds what they hold."""
    chance = random.Random(seed)
    with opened(tmp_path, destinations.DESTINATIONS[kind](tmp_path), "abc") as shop:
        shop.run("CREATE TABLE t (id int PRIMARY KEY)")
        have: dict[str, set[str]] = {name: set() for name in "abc"}
        for turn in range(12):
            for name in chance.sample("abc", 2):
                _change(chance, shop, name, have[name], turn)
                shop[name].sync(full=chance.random() < 0.3)
                if chance.random() < 0.3:
                    tended(shop, chance.choice("abc"))
            shop.sync()
            assert shop.differing() == {}
        whole = {(row[0], row[1]) for row in shop.rows("id")}
        assert whole == {(name, row[0]) for name in "abc" for row in shop[name].rows("t", "id")}


def tended(shop: Shop, name: str) -> None:
    """Small files of one shard are put together, where the destination does that, and old snapshots go."""
    to = shop[name].context.destination
    if to.maintenance is not None and to.schema.tables():
        how = Maintenance(min_files=2, keep_snapshots=1, max_snapshot_age=0)
        to.maintenance.maintain(REF, MaintenanceSpec(how, "m", to.maintenance.latest_claim(REF), moving=True))


def _change(chance: random.Random, shop: Shop, name: str, have: set[str], turn: int) -> None:
    column = chance.choice("uvw")
    if column in have:
        have.discard(column)
        shop[name].run(f"ALTER TABLE t DROP COLUMN {column}")
    else:
        have.add(column)
        shop[name].run(f"ALTER TABLE t ADD COLUMN {column} {chance.choice(['int', 'bigint'])}")
    values = ", ".join([str(turn), *["5"] * len(have)])
    for number in (chance.randrange(9), turn):
        shop[name].run(f"DELETE FROM t WHERE id = {number}")
    shop[name].run(f"INSERT INTO t VALUES ({values})")


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "count"), [("delta", 10), ("duckdb", 50), ("iceberg", 20)])
def test_many_shards(tmp_path: Path, kind: str, count: int) -> None:
    names = [f"s{n:02}" for n in range(count)]
    with opened(tmp_path, destinations.DESTINATIONS[kind](tmp_path), names) as shop:
        loaded(shop)
        for name in names[::2]:
            shop[name].run("ALTER TABLE t ADD COLUMN n int", "INSERT INTO t VALUES (3, 'z', 3, 4)")
        shop.sync()
        assert len(shop.rows("id")) == count * 5 // 2
        assert shop.differing() == {}
