"""Old names stay readable in views for the time that the settings give, and no later change breaks a view."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyiceberg.view.metadata import ViewMetadata

from instep.crash import VARIABLE, Crashed
from instep.destinations.duckdb.destination import DuckDbConfig, DuckDbDestination
from instep.destinations.iceberg.destination import IcebergConfig, IcebergDestination
from instep.destinations.iceberg.evolve import views as views_module
from instep.project.sections.tables import TableSettings
from instep.schema.selection.selection import Selection, patterns
from instep.store.store import Store
from instep.sync.query import ask
from instep.sync.schema_changes.undo import apply_undo, prepare
from lake import with_spark
from sync_world import MakeWorld, World, preset

DAYS = 30 * 86_400.0
SETUP = (
    "CREATE TABLE t (id int PRIMARY KEY, total int, note varchar(9))",
    "INSERT INTO t VALUES (1, 10, 'x'), (2, NULL, NULL)",
)


def iceberg(world: World) -> None:
    """What a world has anyway."""


def duckdb(world: World) -> None:
    config = DuckDbConfig.resolved(name="warehouse", path=str(world.folder / "shop.duckdb"))
    destination: Any = DuckDbDestination(config)
    world.destination = destination


both = pytest.mark.parametrize("world", [duckdb, iceberg], indirect=True, ids=lambda make: make.__name__)


@pytest.fixture
def world(request: pytest.FixtureRequest, make_world: MakeWorld) -> World:
    made = make_world()
    make: Callable[[World], None] = getattr(request, "param", iceberg)
    make(made)
    made.engine, made.policy = "local", preset("allow_all", removed="drop")
    made.settings = {name: TableSettings(keep_old_names=DAYS) for name in ("t", "s", "u")}
    made.run(*SETUP)
    made.sync()
    return made


def asked(world: World, sql: str) -> list[tuple[Any, ...]]:
    return ask(world.destination, sql).rows


def alive(world: World) -> dict[str, str]:
    """Old name to the view that shows it, or to why none does."""
    return {n.old: n.shown or n.trouble for n in world.store.old_names.of("shop")}


KINDS = ("old_name.retained", "old_name.ended")


@both
def test_a_renamed_column_keeps_its_old_name(world: World) -> None:
    world.run("ALTER TABLE t RENAME COLUMN total TO amount")
    [line] = world.preview().old_names
    world.sync()
    assert line.startswith("old name total of shop.t: stays readable in shop.t__compat until 20")
    assert alive(world) == {"total": "shop.t__compat"}
    rows = asked(world, "SELECT id, amount, total, note FROM t__compat ORDER BY id")
    assert rows == [(1, 10, 10, "x"), (2, None, None, None)]
    world.run("INSERT INTO t VALUES (3, 30, 'z')")
    world.sync()
    assert asked(world, "SELECT total FROM shop.t__compat WHERE id = 3") == [(30,)]
    assert world.events(*KINDS) == ["old_name.retained"]
    assert world.differing() == {}


LATER = [
    ("widened", "ALTER TABLE t ALTER amount TYPE bigint", "total", 10),
    ("another type", "ALTER TABLE t ALTER note TYPE text", "note", "x"),
    ("a column is dropped", "ALTER TABLE t DROP COLUMN note", "total", 10),
    ("a column is added", "ALTER TABLE t ADD COLUMN more int DEFAULT 7", "more", 7),
    ("renamed again", "ALTER TABLE t RENAME COLUMN amount TO sum", "total", 10),
    ("the table is renamed", "ALTER TABLE t RENAME TO u", "total", 10),
]


@both
def test_later_changes_do_not_break_the_view(world: World) -> None:
    world.run("ALTER TABLE t RENAME COLUMN total TO amount")
    world.sync()
    for name, statement, column, value in LATER:
        world.run(statement)
        world.sync()
        assert asked(world, f"SELECT {column} FROM t__compat WHERE id = 1") == [(value,)], name  # noqa: S608
    assert alive(world) == {"total": "shop.u__compat", "amount": "shop.u__compat", "t": "shop.t"}
    shown = asked(world, "SELECT * FROM t WHERE id = 1")
    assert asked(world, "SELECT * FROM u__compat WHERE id = 1") == asked(world, "SELECT * FROM t__compat WHERE id = 1")
    assert shown == asked(world, "SELECT * FROM u__compat WHERE id = 1")
    assert world.differing() == {}


def test_a_name_that_is_used_wins(world: World) -> None:
    world.run("ALTER TABLE t RENAME COLUMN total TO amount", "ALTER TABLE t ADD COLUMN n int")
    world.sync()
    world.run("ALTER TABLE t ADD COLUMN total varchar(5) DEFAULT 'new'")
    assert "old name total leaves shop.t__compat: another column is called so" in world.preview().old_names
    world.sync()
    assert alive(world) == {}
    assert world.destination.views.all() == {}
    world.run("ALTER TABLE t RENAME TO u")
    world.sync()
    assert alive(world) == {"t": "shop.t"}
    world.run("CREATE TABLE t (id int PRIMARY KEY, fresh int)", "INSERT INTO t VALUES (7, 7)")
    world.sync()
    assert alive(world) == {}
    assert world.rows("t") == [(7, 7)]
    assert world.events(*KINDS) == ["old_name.retained", "old_name.ended"] * 2
    assert world.differing() == {}


def test_an_undo_gives_the_name_back(world: World) -> None:
    world.run("ALTER TABLE t RENAME COLUMN total TO amount")
    world.sync()
    [review] = [r for r in world.store.reviews.find("shop", ["applied"]) if r.kind == "column.renamed"]
    apply_undo(world.context, prepare(world.context, [review]))
    assert alive(world) == {"amount": "shop.t__compat"}
    assert asked(world, "SELECT total, amount FROM t__compat WHERE id = 1") == [(10, 10)]


def test_its_time_ends(world: World) -> None:
    world.run("ALTER TABLE t RENAME COLUMN total TO amount", "ALTER TABLE t RENAME TO s")
    world.sync()
    for name in world.store.old_names.of("shop"):
        world.store.old_names.extend(name.number, name.at)
    world.sync()
    assert (alive(world), dict(world.destination.views.all())) == ({}, {})
    ended = [e.event.data()["why"] for e in world.store.events.after(0) if e.event.type == "old_name.ended"]
    assert ended == ["its time is over"] * 2


def test_what_others_have_made_is_left_alone(world: World) -> None:
    world.run("CREATE TABLE t__compat (id int PRIMARY KEY)")
    world.sync()
    world.run("ALTER TABLE t RENAME COLUMN total TO amount")
    report = world.sync()
    assert alive(world) == {"total": "shop.t__compat is a table itself"}
    assert "old name total of shop.t is not shown: shop.t__compat is a table itself" in report.notes
    assert world.rows("t__compat") == []


def test_a_dropped_table_takes_its_views_along(world: World) -> None:
    world.run("ALTER TABLE t RENAME COLUMN total TO amount")
    world.sync()
    world.run("DROP TABLE t")
    world.sync()
    assert (world.tables(), alive(world), dict(world.destination.views.all())) == ({}, {}, {})


@pytest.mark.parametrize("world", [duckdb], indirect=True)
def test_a_view_of_somebody_else_stays(world: World) -> None:
    file: Any = world.destination
    with file.file.writing() as session:
        session.run("CREATE VIEW shop.shop.t__compat AS SELECT 1 AS one")
    world.run("ALTER TABLE t RENAME COLUMN total TO amount")
    [line] = world.preview().old_names
    assert "not shown, as table shop.t__compat exists and is not ours" in line
    world.sync()
    assert alive(world) == {"total": "shop.t__compat exists and is not ours"}
    with file.file.writing() as session:
        assert session.run("SELECT * FROM shop.shop.t__compat") == [(1,)]
        session.run("DROP VIEW shop.shop.t__compat")
    world.sync()
    assert alive(world) == {"total": "shop.t__compat"}
    with file.file.writing() as session:
        assert session.run("SELECT total FROM shop.shop.t__compat WHERE id = 1") == [(10,)]


def test_a_catalog_without_views_says_so() -> None:
    lake = IcebergDestination(IcebergConfig.resolved(name="lake", warehouse="s3://bucket/lake", catalog="glue"))
    assert (lake.capabilities.views, lake.views.all()) == (False, {})
    assert lake.views.why_none == "views are kept in the catalog file of a local lake, and lake has a glue catalog"


def test_without_the_setting_there_is_none(world: World) -> None:
    world.settings = {}
    world.run("ALTER TABLE t RENAME COLUMN total TO amount")
    assert world.preview().old_names == ()
    world.sync()
    assert (alive(world), dict(world.destination.views.all())) == ({}, {})


def test_names_that_are_swapped_are_in_use(world: World) -> None:
    world.run(
        "ALTER TABLE t ADD COLUMN other int DEFAULT 5",
        "ALTER TABLE t RENAME COLUMN total TO x",
    )
    world.sync()
    world.run("ALTER TABLE t RENAME COLUMN x TO y", "ALTER TABLE t RENAME COLUMN other TO x",
              "ALTER TABLE t RENAME COLUMN y TO other")  # fmt: skip
    world.sync()
    assert alive(world) == {"total": "shop.t__compat"}
    assert asked(world, "SELECT total, other, x FROM t__compat WHERE id = 1") == [(10, 10, 5)]


def test_a_hashed_column_stays_hashed(world: World) -> None:
    world.run("CREATE TABLE s (id int PRIMARY KEY, mail text)", "INSERT INTO s VALUES (1, 'a@b.example')")
    world.selection = Selection(hashed=patterns(["public.s.mail", "public.s.address"]))
    world.sync()
    world.run("ALTER TABLE s RENAME COLUMN mail TO address")
    world.sync()
    [(old, new)] = asked(world, "SELECT mail, address FROM s__compat")
    assert old == new != "a@b.example"


@pytest.mark.sampled
@pytest.mark.parametrize("point", ["journal.opened", "apply.table.after", "old_names.room", "old_names.shown"])
def test_after_a_crash_the_next_run_makes_it(world: World, point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world.run("ALTER TABLE t RENAME COLUMN note TO remark")
    world.sync()
    world.run("ALTER TABLE t RENAME COLUMN total TO amount")
    monkeypatch.setenv(VARIABLE, f"{point}=raise")
    with pytest.raises(Crashed):
        world.sync()
    monkeypatch.delenv(VARIABLE)
    world.store.close()
    world.store = Store(f"sqlite:///{world.folder / 'control.db'}", now=lambda: datetime.now(UTC) + timedelta(hours=1))
    world.sync()
    assert alive(world) == {"note": "shop.t__compat", "total": "shop.t__compat"}
    assert asked(world, "SELECT note, total, remark, amount FROM t__compat WHERE id = 1") == [("x", 10, "x", 10)]
    assert world.events(*KINDS) == ["old_name.retained"] * 2
    assert world.differing() == {}


@with_spark
@pytest.mark.slow
def test_spark_reads_the_view(world: World) -> None:
    assert world.start is not None
    spark = world.start().newSession()
    for name, value in world.destination.lifecycle.spark_catalog().items():
        spark.conf.set(name, value)
    world.run("ALTER TABLE t RENAME COLUMN total TO amount", "ALTER TABLE t ADD COLUMN l int[] DEFAULT '{1,2}'")
    world.sync()
    world.run("ALTER TABLE t RENAME COLUMN l TO list", "ALTER TABLE t ALTER amount TYPE bigint")
    world.sync()
    world.run("ALTER TABLE t RENAME TO u")
    world.sync()
    name = world.destination.lake.name
    for view in ("t", "t__compat", "u__compat"):
        rows = spark.table(f"{name}.shop.{view}").orderBy("id").select("total", "amount", "l", "note").collect()
        assert [tuple(r) for r in rows] == [(10, 10, [1, 2], "x"), (None, None, [1, 2], None)], view
    assert {r.viewName for r in spark.sql(f"SHOW VIEWS IN {name}.shop").collect()} == {"t", "t__compat", "u__compat"}
    assert {r.tableName for r in spark.sql(f"SHOW TABLES IN {name}.shop").collect()} >= {"u"}
    location = next(iter(views_module._own_views(world.destination.lake).values()))[1]
    assert ViewMetadata.model_validate(location).current_version_id >= 1
    world.run("ALTER TABLE u DROP COLUMN list")
    world.sync()
    assert [r.total for r in spark.table(f"{name}.shop.t").collect()] == [10, None]
