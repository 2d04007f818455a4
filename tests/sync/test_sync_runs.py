# ruff: noqa: S608 - statements of this file
"""Runs that meet others, tables that fail while others go on, rights that go, schemas that move while they are read."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from events.shows import shows
from instep.errors import Blocked, InstepError, RunInProgress
from instep.schema.selection.selection import Selection, patterns
from instep.sync.progress import Silent
from instep.sync.run import RunScope, sync
from sync_world import MakeWorld, World, preset

pytestmark = pytest.mark.drawn(1)


@dataclass
class At(Silent):
    """Does something when a run comes to a step, each time or the first few times."""

    where: str
    what: Callable[[], object]
    times: int = 1
    seen: list[str] = field(default_factory=list)

    def step(self, text: str) -> None:
        self.seen.append(text)
        if text == self.where and self.times > 0:
            self.times -= 1
            self.what()


def run_with(world: World, progress: At, **wanted: object) -> object:
    return sync(world.context, RunScope(**wanted), progress, world.rows_by)


def staged(world: World) -> list[str]:
    """The staging folders below the tables."""
    return sorted(p.name for p in world.folder.glob("lake/shop/*/data/*") if p.is_dir())


def tables(world: World, *names: str) -> None:
    for name in names:
        world.run(f"CREATE TABLE {name} (id int PRIMARY KEY, v int)", f"INSERT INTO {name} VALUES (1, 1)")


@shows(event=70)
def test_a_second_sync_is_refused_while_one_runs(world: World) -> None:
    tables(world, "t")
    inside, done = threading.Event(), threading.Event()
    first = threading.Thread(target=run_with, args=(world, At("reading rows", lambda: (inside.set(), done.wait(600)))))
    first.start()
    assert inside.wait(600)
    with pytest.raises(RunInProgress) as refused:
        world.sync()
    with pytest.raises(RunInProgress):
        world.evolve()
    done.set()
    first.join()
    assert refused.value.exit_code == 5
    assert world.rows("t") == [(1, 1)]
    assert world.sync().status == "done"


@shows(event=62)
def test_a_table_that_is_dropped_while_it_is_read(world: World) -> None:
    tables(world, "t", "u")
    world.sync()
    world.run("UPDATE u SET v = 2", "UPDATE t SET v = 2")
    report = run_with(world, At("reading rows", lambda: world.run("DROP TABLE t")))
    assert world.statuses(report) == {"u": "done"}  # type: ignore[arg-type]
    assert world.tables() == {"t": "t~", "u": "u"}
    assert (world.rows("t"), world.rows("u")) == ([(1, 1)], [(1, 2)])


@shows(event=62)
def test_a_schema_that_moves_while_it_is_read_is_read_again(world: World) -> None:
    tables(world, "t", "u")
    report = run_with(
        world, At("reading rows", lambda: world.run("ALTER TABLE t RENAME v TO w", "ALTER TABLE t ADD x int DEFAULT 4"))
    )
    assert world.statuses(report) == {"t": "done", "u": "done"}  # type: ignore[arg-type]
    assert world.schema("t") == "id int32!, w int32, x int32"
    assert world.rows("t") == [(1, 1, 4)]
    assert world.differing() == {}
    assert len(staged(world)) == 2


def test_a_schema_that_never_rests_fails_its_table_only(world: World) -> None:
    tables(world, "t", "u")
    number = iter(range(100))
    report = run_with(world, At("reading rows", lambda: world.run(f"ALTER TABLE t ADD x{next(number)} int"), times=9))
    assert world.statuses(report) == {"t": "failed", "u": "done"}  # type: ignore[arg-type]
    assert len(staged(world)) == 1
    assert world.store.runs.latest("shop").status == "partial"  # type: ignore[union-attr]
    world.sync()
    assert world.differing() == {}


def test_a_renamed_table_is_read_again_under_its_new_name(world: World) -> None:
    tables(world, "t", "u")
    world.sync()
    world.run("UPDATE t SET v = 4", "UPDATE u SET v = 4")
    report = run_with(world, At("reading rows", lambda: world.run("ALTER TABLE t RENAME TO z", "UPDATE z SET v = 5")))
    assert world.statuses(report) == {"z": "done", "u": "done"}  # type: ignore[arg-type]
    assert world.rows("z") == [(1, 5)]
    world.run("UPDATE z SET v = 8")
    again = At("reading rows", lambda: world.run("ALTER TABLE z RENAME TO t", "UPDATE t SET v = 6"))
    report = run_with(world, again, tables=frozenset({"public.z"}))
    assert world.statuses(report) == {"t": "done"}  # type: ignore[arg-type]
    assert world.rows("t") == [(1, 6)]


@shows(trap=16, event=64)
def test_a_table_that_may_not_be_read_any_more_is_in_error_and_never_removed(world: World) -> None:
    assert world.case.deny is not None
    world.restricted = True
    tables(world, "t", "u")
    world.sync()
    world.case.deny("t")
    world.run("UPDATE u SET v = 2")
    for _ in range(2):
        report = world.sync()
        assert world.statuses(report) == {"t": "failed", "u": "done"}
        assert report.status == "partial"
        assert "GRANT SELECT ON" in next(t.error for t in report.tables if t.table[1] == "t")
        assert world.tables() == {"t": "t", "u": "u"}
    assert list(world.reviews().values()) == ["ignore"]
    assert "access to table t lost" in next(iter(world.reviews()))
    assert world.differing().keys() == {"t"}
    world.run("GRANT SELECT ON t TO reader", "UPDATE t SET v = 3")
    assert world.sync().status == "done"
    assert world.reviews() == world.differing() == {}


@shows(event=64)
def test_a_column_that_may_not_be_read_any_more(world: World) -> None:
    assert world.case.deny is not None
    world.restricted = True
    tables(world, "t", "u", "w")
    world.sync()
    world.case.deny("t")
    world.case.deny("u")
    world.run("GRANT SELECT (id) ON t TO reader", "ALTER TABLE u ADD pin int", "GRANT SELECT (id, v) ON u TO reader")
    world.run("CREATE TABLE x (id int PRIMARY KEY)", "REVOKE ALL ON x FROM reader", "INSERT INTO u VALUES (2, 2, 2)")
    report = world.sync()
    assert world.statuses(report) == {"t": "failed", "u": "done", "w": "done"}
    assert world.schema("t") == "id int32!, v int32"
    assert world.schema("u") == "id int32!, v int32"
    assert world.rows("u") == [(1, 1), (2, 2)]
    assert world.reviews() == {'access to column t.v lost: GRANT SELECT ("v") ON "public"."t" TO "reader";': "ignore"}
    assert [n.split(" is not synced")[0] for n in report.notes] == ["public.u.pin", "public.x"]
    world.selection = Selection(exclude_columns=patterns(["public.t.v"]))
    assert world.sync().status == "done"
    world.selection = Selection()
    world.run("GRANT SELECT ON t, u, x TO reader")
    assert world.sync().status == "done"
    assert world.schema("u") == "id int32!, v int32, pin int32"
    assert world.differing() == {}


def test_rights_that_go_keep_what_was_waiting(world: World) -> None:
    assert world.case.deny is not None
    world.restricted = True
    tables(world, "t", "u")
    world.sync()
    world.run("ALTER TABLE t DROP CONSTRAINT t_pkey")
    world.sync()
    world.case.deny("t")
    world.sync()
    assert list(world.pauses()) == ["t"]
    assert "pause_table" in world.reviews().values()


def test_right_taken_while_it_is_read(world: World) -> None:
    world.restricted = True
    tables(world, "t", "u")
    assert world.case.deny is not None
    report = run_with(world, At("reading rows", lambda: world.case.deny("t")))  # type: ignore[misc]
    assert world.statuses(report) == {"t": "failed", "u": "done"}  # type: ignore[arg-type]
    assert world.rows("u") == [(1, 1)]
    assert staged(world) == [p for p in staged(world) if p.startswith("r-")][:1]


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["postgres", "sqlite"])
@shows(event=65)
def test_a_mass_disappearance_stops_the_connection(make_world: MakeWorld, kind: str) -> None:
    world = make_world(kind)
    names = [f"t{i}" for i in range(6)]
    tables(world, *names)
    world.sync()
    world.run(*(f"DROP TABLE {n}" for n in names[:5]), "ALTER TABLE t5 ADD w int")
    with pytest.raises(Blocked, match=r"t\d removed"):
        world.sync()
    assert world.store.runs.latest("shop").status == "blocked"  # type: ignore[union-attr]
    assert set(world.pauses()) == {""}
    assert [t for t in world.tables().values() if "~" in t] == []
    assert world.schema("t5").count("w") == 0
    with pytest.raises(Blocked):
        world.sync()
    tables(world, *names[:5])
    if kind == "postgres":
        assert world.sync().status == "done"
    else:
        report = world.sync()
        assert report.status == "done"
    assert world.pauses() == {}
    assert world.differing() == {}


def test_a_mass_disappearance_that_is_approved(world: World) -> None:
    names = [f"t{i}" for i in range(6)]
    tables(world, *names)
    world.sync()
    world.run(*(f"DROP TABLE {n}" for n in names[:5]))
    with pytest.raises(Blocked):
        world.sync()
    world.answer("approved", "table.removed")
    assert world.sync().status == "done"
    assert sum("~" in t for t in world.tables().values()) == 5
    assert world.pauses() == {}


def test_approved_and_rejected_changes(world: World) -> None:
    world.policy = preset("approve")
    tables(world, "t")
    world.sync()
    world.run(
        "ALTER TABLE t ADD a int DEFAULT 1", "ALTER TABLE t ADD b int DEFAULT 2", "ALTER TABLE t ADD c int DEFAULT 3"
    )
    report = world.sync()
    assert len(report.waiting) == 3
    assert world.rows("t") == [(1, 1)]
    ids = {r.column: r for r in world.store.reviews.find("shop", ("open",))}
    world.store.reviews.decide(ids["a"].id, "approved", "test")
    world.store.reviews.decide(ids["b"].id, "rejected", "test")
    for _ in range(2):
        report = world.sync()
        assert world.rows("t") == [(1, 1, 1)]
        assert world.reviews() == {"column t.b added (int32)": "review", "column t.c added (int32)": "review"}
        assert report.waiting == (ids["c"].id,)
    world.store.reviews.decide(ids["b"].id, "approved", "test")
    world.sync()
    assert world.rows("t", "id", "v", "a", "b") == [(1, 1, 1, 2)]


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["postgres", "mysql", "sqlite"])
def test_an_unchanged_source_is_not_read_again_and_answers_the_same(make_world: MakeWorld, kind: str) -> None:
    from instep.sync.detection.detect import detect, detect_if_changed

    world = make_world(kind)
    tables(world, "t", "u")
    world.sync()
    world.run("ALTER TABLE t ADD w int")
    world.preview()
    context = world.context
    stored = world.store.discoveries.get("shop")
    short, whole = detect_if_changed(context), detect(context, context.source.discover())
    assert stored is not None
    assert short.discovery.fingerprint == whole.discovery.fingerprint == stored.fingerprint
    assert (short.source, short.decisions, short.denied) == (whole.source, whole.decisions, whole.denied)
    assert short.discovery.identity == whole.discovery.identity
    assert len(short.decisions) == 1


def test_names_that_are_not_synced_are_refused(world: World) -> None:
    tables(world, "orders", "u")
    world.sync()
    with pytest.raises(InstepError, match=r"syncs no table public.order\b") as error:
        world.sync(tables=frozenset({"public.order"}))
    assert "public.orders" in error.value.hint
    assert world.statuses(world.sync(tables=frozenset({"public.u"}))) == {"u": "done"}


@shows(event=66)
def test_another_server_with_the_same_names_is_told_by_names(world: World) -> None:
    """As after a restore: the ids are others, and some are those that other tables and columns had."""
    world.run(
        "CREATE TABLE a (id int PRIMARY KEY, x int, b int, c int)",
        "INSERT INTO a VALUES (1, 0, 2, 3)",
        "ALTER TABLE a DROP x",
    )
    world.run("CREATE TABLE z (id int PRIMARY KEY, v int)", "INSERT INTO z VALUES (1, 9)")
    world.sync()
    accepted = world.store.accepted.catalog("shop")
    ids = {t.name: t.id for t in accepted.tables}
    old = [replace_ids(t, ids["z" if t.name == "a" else "a"]) for t in accepted.tables]
    world.store.accepted.add("shop", type(accepted).of(old), who="test", why="as if from another server")
    stale_destination(world, {t.name: t for t in old})
    seen = world.store.discoveries.get("shop")
    assert seen is not None
    from dataclasses import replace

    world.store.discoveries.save("shop", replace(seen, identity="another server", fingerprint="old"))
    assert world.preview().plan.decisions == ()
    assert world.preview().detection.rebound
    world.run("UPDATE a SET b = 5", "UPDATE z SET v = 8")
    world.sync()
    assert (world.rows("a", "id", "b", "c"), world.rows("z")) == ([(1, 5, 3)], [(1, 8)])
    assert world.differing() == {}
    assert not world.preview().detection.rebound
    assert world.preview().plan.steps == ()
    assert {t.name: t.id for t in world.store.accepted.catalog("shop").tables} == ids


def replace_ids(table, id):  # type: ignore[no-untyped-def]
    """The table with another id, its columns' ids shifted by one."""
    from dataclasses import replace

    return replace(table, id=id, columns=tuple(replace(c, id=str(int(c.id) - 1)) for c in table.columns))


def stale_destination(world: World, tables: dict) -> None:  # type: ignore[type-arg]
    """Records those ids at the destination, as a sync from that server would have."""
    from dataclasses import replace

    from instep.destinations.base import Commit
    from instep.schema.planning.step import RecordIdentity, step

    for name, accepted in tables.items():
        ref = ("shop", name)
        found = world.destination.schema.inspect([ref]).by_ref[ref]
        ids = {c.alias: c.id for c in accepted.columns}
        after = replace(found, id=accepted.id, columns=tuple(replace(c, id=ids.get(c.alias)) for c in found.columns))
        steps = [
            step(ref, RecordIdentity(ref, a, b)) for a, b in zip(found.columns, after.columns, strict=True) if a != b
        ]
        world.destination.schema.execute(ref, steps, after, Commit("r", 1))


def test_what_failed_runs_staged_is_removed(world: World) -> None:
    tables(world, "t", "u")
    world.settings["t"] = type(world.context.settings(world_table("t")))(cursor="v", mode="append")
    world.sync()
    live = staged(world)

    def stop() -> None:
        raise KeyboardInterrupt

    world.run("INSERT INTO t VALUES (2, 2)")
    with pytest.raises(KeyboardInterrupt):
        run_with(world, At("committing", stop))
    left = set(staged(world)) - set(live)
    assert len(left) == 1
    run = world.store.runs.latest("shop")
    assert run is not None
    assert (run.status, run.error) == ("cancelled", "interrupted: run the command again")
    world.sync()
    assert not left & set(staged(world))
    assert set(live) <= set(staged(world))
    assert world.differing() == {}


def world_table(name: str):  # type: ignore[no-untyped-def]
    from instep.schema.catalog.catalog import Table

    return Table("public", name, ())


def test_names_that_nothing_can_hold_are_left_out_and_said(world: World) -> None:
    tables(world, "t", "u")
    world.run('CREATE TABLE "  " (id int PRIMARY KEY)', 'ALTER TABLE t ADD " " int')
    reason = "it has a name without a visible character"
    for _ in range(2):
        report = world.sync()
        assert (report.status, world.statuses(report)) == ("partial", {"t": "done", "u": "done", "  ": "failed"})
        (failed,) = (t.error for t in report.tables if t.error)
        assert failed == f"{reason}: rename it in the source, or exclude the table"
        assert report.notes == (f"public.t.  is not synced: {reason}",)
    assert world.schema("t") == "id int32!, v int32"
    world.selection = Selection(exclude_tables=patterns([r"re:public\.\s+"]))
    assert world.sync().status == "done"
    world.run('ALTER TABLE t RENAME v TO "\u200b"', "INSERT INTO u VALUES (2, 2)")
    report = world.sync()
    assert world.statuses(report) == {"t": "failed", "u": "done"}
    assert world.rows("t") == [(1, 1)]
    assert world.rows("u") == [(1, 1), (2, 2)]
    world.run('ALTER TABLE t RENAME "\u200b" TO w', 'ALTER TABLE t RENAME " " TO x')
    assert world.statuses(world.sync()) == {"t": "done", "u": "done"}
    assert world.schema("t") == "id int32!, w int32, x int32"
    assert world.differing() == {}


def test_patterns_that_match_nothing_are_said(world: World) -> None:
    tables(world, "t")
    world.selection = Selection(include=patterns(["public.*", "shop.t"]), exclude_columns=patterns(["public.t.pin"]))
    notes = ("the pattern 'public.t.pin' in the project file matches nothing",)
    assert world.preview().detection.notes == notes
    report = world.sync()
    assert report.notes == notes
    assert report.status == "partial"
    errors = {".".join(t.table): t.error for t in report.tables}
    assert errors == {
        "public.t": "",
        "shop.t": "'shop.t' in `include` of connection shop matches no table of the source: there is public.t",
    }
