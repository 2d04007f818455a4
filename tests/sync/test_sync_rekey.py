"""`table set-key`: counted on both sides first, and never two keys in one table."""

from __future__ import annotations

import pytest
from into_world import world_into
from quarantine_world import HeldWorld

from events.shows import shows
from instep.errors import Blocked
from instep.project.sections.tables import TableSettings
from instep.sync.operations import set_key as rekey
from instep.sync.quarantine.quarantine import discard, erase, of_row
from instep.sync.quarantine.replay import replay
from instep.sync.schema_changes import undo
from instep.sync.schema_changes.key_counts import RowCounts
from quarantined import entries_of, pending_of
from sync_world import MakeWorld, World, counts, preset

PAIRS = "CREATE TABLE t (id int PRIMARY KEY, v int NOT NULL, w int)"
ROWS = "INSERT INTO t VALUES (1, 1, 1), (2, 1, 2), (3, 3, 3)"
OTHER_KEY = ("ALTER TABLE t DROP CONSTRAINT t_pkey", "ALTER TABLE t ADD PRIMARY KEY (id, v)")


def set_key(world: World, *columns: str, way: rekey.Way = "rekey", allowed: tuple[str, ...] = ()) -> rekey.Rekeying:
    made = rekey.prepare(world.context, f"{world.case.schema}.t", columns, way)
    rekey.carry_out(world.context, made, allowed)
    return made


@pytest.fixture
def paused(make_world: MakeWorld) -> World:
    """Rows under one key, and another key at the source."""
    world = make_world()
    world.run(PAIRS, ROWS)
    world.sync()
    world.run(*OTHER_KEY, "INSERT INTO t VALUES (1, 2, 4)")
    assert world.statuses(world.sync()) == {"t": "paused"}
    return world


def test_rekey_keeps_the_rows(paused: World) -> None:
    made = set_key(paused, "id", "v")
    assert (made.own, len(made.settles)) == (True, 1)
    assert (made.counts.source, made.counts.destination) == (RowCounts(4), RowCounts(3))
    assert (paused.pauses(), paused.reviews("open"), paused.store.choices.of("shop")) == ({}, {}, {})
    assert paused.schema("t") == "id int32!, v int32!, w int32"
    assert counts(paused.sync(), "t") == (4, 1, 0, 0, 0)
    assert paused.rows("t") == [(1, 1, 1), (1, 2, 4), (2, 1, 2), (3, 3, 3)]
    assert paused.differing() == {}
    assert paused.preview().plan.steps == ()


def test_what_is_in_quarantine_is_found_by_the_new_key_at_once(world: World) -> None:
    """Without a read of the table in between; the read that follows finds the same entries again."""
    world.run("CREATE TABLE t (id int PRIMARY KEY, v int NOT NULL, a int)", "INSERT INTO t VALUES (1, 7, 5), (2, 8, 6)")
    world.sync()
    world.run("ALTER TABLE t ALTER a TYPE varchar(9)", "UPDATE t SET a = 'x' WHERE id = 2")
    world.sync()
    world.run("ALTER TABLE t DROP CONSTRAINT t_pkey", "ALTER TABLE t ADD PRIMARY KEY (v)")
    world.sync()
    set_key(world, "v")
    [entry] = pending_of(world.context)
    assert (entry.key, entry.original, entry.status) == ('{"v":"8"}', "x", "held")
    [review] = world.store.reviews.find("shop", ("open",))
    assert review.kind == "column.retyped"
    world.sync()
    assert [e.id for e in pending_of(world.context)] == [entry.id]
    world.answer("approved")
    world.evolve()
    [done] = replay(world.context)
    assert (done.updated, done.held) == (1, 0)
    assert sorted(world.rows("t", "v", "a")) == [(7, "5"), (8, "x")]
    assert pending_of(world.context) == []


@pytest.mark.sampled
@pytest.mark.parametrize("destination", ["iceberg", "delta", "duckdb"])
def test_what_was_discarded_stays_so_under_the_new_key(
    make_world: MakeWorld, request: pytest.FixtureRequest, destination: str
) -> None:
    """The read that follows finds the same value again; another one of that row waits."""
    world = world_into(make_world, request, "postgres", destination)
    world.run("CREATE TABLE t (id int PRIMARY KEY, v int NOT NULL, a int)", "INSERT INTO t VALUES (1, 7, 5), (2, 8, 6)")
    world.sync()
    world.run("ALTER TABLE t ALTER a TYPE varchar(9)", "UPDATE t SET a = 'x' WHERE id = 2")
    world.sync()
    discard(world.context)
    world.run("ALTER TABLE t DROP CONSTRAINT t_pkey", "ALTER TABLE t ADD PRIMARY KEY (v)")
    world.sync()
    set_key(world, "v")
    for _ in range(2):
        world.sync(full=True)
        [entry] = entries_of(world.context)
        assert (entry.key, entry.original, entry.status) == ('{"v":"8"}', None, "discarded")
    assert world.verify()["t"].discarded == 1
    world.run("UPDATE t SET a = 'y' WHERE id = 2")
    world.sync(full=True)
    assert [e.original for e in pending_of(world.context)] == ["y"]


@pytest.mark.sampled
@pytest.mark.parametrize("destination", ["iceberg", "duckdb"])
@pytest.mark.parametrize("settled", ["waiting", "replayed", "discarded", "refused"])
def test_a_row_is_erased_by_its_new_key(
    make_world: MakeWorld, request: pytest.FixtureRequest, destination: str, settled: str
) -> None:
    """Whatever has become of its entries: no trace of it is left under the key that it had."""
    world = world_into(make_world, request, "postgres", destination)
    world.run(
        "CREATE TABLE t (id int PRIMARY KEY, v int NOT NULL, a int)", "INSERT INTO t VALUES (71, 7, 5), (82, 8, 6)"
    )
    world.sync()
    if settled == "refused":
        held = HeldWorld(world)
        held.row({"id": "82", "v": "8", "a": None})
    else:
        world.run("ALTER TABLE t ALTER a TYPE varchar(9)", "UPDATE t SET a = 'x' WHERE id = 82")
        world.sync()
    if settled == "discarded":
        discard(world.context)
    if settled == "replayed":
        world.answer("approved")
        world.evolve()
        replay(world.context)
    world.run("ALTER TABLE t DROP CONSTRAINT t_pkey", "ALTER TABLE t ADD PRIMARY KEY (v)")
    world.sync()
    set_key(world, "v")
    [entry] = entries_of(world.context)
    assert entry.key == '{"v":"8"}'
    assert erase(world.context, "public.t", of_row(world.context, "public.t", {"v": "8"})) == 1
    assert entries_of(world.context) == []
    assert not [p for p in world.folder.rglob("quarantine/*") if b"82" in p.read_bytes()]


def test_the_destination_knows_the_key(paused: World) -> None:
    """Values of a dropped column come back by the key that tells rows apart today."""
    set_key(paused, "id", "v")
    ref = ("shop", "t")
    assert paused.destination.schema.inspect([ref]).by_ref[ref].key == ("id", "v")
    paused.sync()
    paused.policy = preset("allow_all", removed="drop")
    paused.run("ALTER TABLE t DROP COLUMN w")
    paused.sync()
    paused.run("INSERT INTO t VALUES (2, 7)")
    paused.sync(full=True)
    [review] = [r for r in paused.store.reviews.find("shop", ("applied",)) if r.kind == "column.removed"]
    undo.apply_undo(paused.context, undo.prepare(paused.context, [review]))
    assert paused.rows("t", "id", "v", "w") == [(1, 1, 1), (1, 2, 4), (2, 1, 2), (2, 7, None), (3, 3, 3)]


def test_rebuild_keeps_a_copy(paused: World) -> None:
    made = rekey.prepare(paused.context, "public.t", ["id", "v"], "rebuild")
    _, place = rekey.carry_out(paused.context, made)
    assert place is not None
    assert paused.rows("t", "id", "v", "w") == [(1, 1, 1), (2, 1, 2), (3, 3, 3)]
    [copy] = paused.store.copies.existing("shop")
    assert (copy.place, copy.rows, copy.table) == (place, 3, ("public", "t"))
    assert paused.statuses(paused.sync()) == {"t": "done"}
    assert paused.rows("t") == [(1, 1, 1), (1, 2, 4), (2, 1, 2), (3, 3, 3)]
    assert paused.rows_at(place, "id", "v", "w") == [(1, 1, 1), (2, 1, 2), (3, 3, 3)]
    assert paused.accepted("t").generation == 1
    assert paused.differing() == {}
    paused.run("UPDATE t SET w = 9 WHERE id = 3")
    assert counts(paused.sync(), "t") == (4, 0, 1, 0, 0)


def test_clear_empties_the_table_named(paused: World) -> None:
    made = rekey.prepare(paused.context, "public.t", ["id", "v"], "clear")
    with pytest.raises(Blocked, match="would be emptied: 3 rows") as error:
        rekey.carry_out(paused.context, made)
    assert "--allow-destructive 'public.t'" in error.value.hint
    assert len(paused.rows("t")) == 3
    rekey.carry_out(paused.context, made, ("public.*",))
    assert paused.rows("t") == []
    assert paused.store.copies.existing("shop") == []
    assert paused.statuses(paused.sync()) == {"t": "done"}
    assert paused.differing() == {}
    assert len(paused.rows("t")) == 4


RETYPED = {
    "postgres": ("ALTER TABLE t ALTER id TYPE uuid USING md5(id::text)::uuid",),
    "sqlite": (
        "CREATE TABLE fresh (id varchar(9) PRIMARY KEY, v int NOT NULL, w int)",
        "INSERT INTO fresh SELECT 'k' || id, v, w FROM t", "DROP TABLE t", "ALTER TABLE fresh RENAME TO t",
    ),
}  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("destination", ["iceberg", "delta", "duckdb", "postgres"])
@pytest.mark.parametrize(
    ("way", "settings"),
    [
        ("rebuild", TableSettings()), ("clear", TableSettings()), ("rebuild", TableSettings(history=True)),
        ("rebuild", TableSettings(cursor="v")), ("rebuild", TableSettings(cursor="v", history=True)),
    ],
)  # fmt: skip
def test_a_table_that_is_read_anew_takes_a_key_of_another_type(
    make_world: MakeWorld, request: pytest.FixtureRequest, destination: str, way: rekey.Way, settings: TableSettings
) -> None:
    """The question is settled, and does not come again under another id."""
    kind = "sqlite" if destination == "postgres" else "postgres"
    world = world_into(make_world, request, kind, destination)
    world.settings["t"] = settings
    world.run(PAIRS, ROWS)
    world.sync()
    world.run(*RETYPED[kind])
    assert world.statuses(world.sync()) == {"t": "paused"}
    stays = rekey.prepare(world.context, f"{world.case.schema}.t", ["id"], "rekey")
    assert "keeps its history" in stays.blocker or "has another type at the source (id)" in stays.blocker
    assert set_key(world, "id", way=way, allowed=("*",)).settles
    assert (world.reviews("open"), world.pauses()) == ({}, {})
    for _ in range(2):
        assert world.statuses(world.sync()) == {"t": "done"}
        assert (world.reviews("open"), world.pauses(), world.differing()) == ({}, {}, {})
    assert len(world.rows("t", "id")) == 3
    world.run("UPDATE t SET w = 7, v = 9 WHERE v = 3")
    world.sync()
    assert world.differing() == {}


def test_a_chosen_key_outlives_detections_and_renames(make_world: MakeWorld) -> None:
    world = make_world()
    world.run("CREATE TABLE t (a int NOT NULL, b int, c int)", "INSERT INTO t VALUES (1, 1, 1), (2, 2, 2)")
    world.sync()
    made = set_key(world, "a")
    assert not made.own
    assert counts(world.sync(), "t") == (2, 0, 2, 0, 0)  # each row learns that it is not deleted
    world.run("UPDATE t SET b = 5 WHERE a = 2", "ALTER TABLE t RENAME a TO z", "ALTER TABLE t RENAME TO u")
    report = world.sync()
    assert counts(report, "u") == (2, 0, 1, 0, 0)
    assert world.schema("u") == "z int32!, b int32, c int32"
    assert world.rows("u", "z", "b") == [(1, 1), (2, 5)]
    assert world.differing() == {}
    world.run("INSERT INTO u VALUES (1, 9, 9)")
    report = world.sync()
    assert world.statuses(report) == {"u": "failed"}
    assert "is not unique" in report.tables[0].error
    world.run("ALTER TABLE u DROP COLUMN z")
    assert world.statuses(world.sync()) == {"u": "paused"}
    assert world.rows("u", "z", "b") == [(1, 1), (2, 5)]


@shows(trap=9)
def test_duplicates_and_nulls_are_counted_and_refused(make_world: MakeWorld) -> None:
    world = make_world()
    world.run("CREATE TABLE t (a int, b int, c int)", "INSERT INTO t VALUES (1, 1, 1), (1, 2, NULL), (2, 2, 3)")
    world.sync()
    for columns, way, source, why in (
        (["a"], "rekey", RowCounts(3, 1, 0), "not unique at the source: 1 rows"),
        (["a"], "rebuild", RowCounts(3, 1, 0), "not unique at the source: 1 rows"),
        (["c"], "rekey", RowCounts(3, 0, 1), "NULL in 1 rows of the source"),
    ):
        made = rekey.prepare(world.context, "public.t", columns, way)  # type: ignore[arg-type]
        assert (made.counts.source, made.counts.destination) == (source, source)
        with pytest.raises(Blocked, match=why) as error:
            rekey.carry_out(world.context, made)
        assert error.value.hint
    world.run("UPDATE t SET a = 7 WHERE b = 1", "UPDATE t SET c = 5 WHERE c IS NULL")
    made = rekey.prepare(world.context, "public.t", ["a"])
    assert (made.counts.source, made.counts.destination) == (RowCounts(3), RowCounts(3, 1, 0))
    with pytest.raises(Blocked, match="does not identify the rows at the destination") as error:
        rekey.carry_out(world.context, made)
    assert "--rebuild" in error.value.hint
    assert world.store.choices.of("shop") == {}


@pytest.mark.parametrize("kind", ["sqlite"])
def test_without_ids(make_world: MakeWorld, kind: str) -> None:
    world = make_world(kind)
    world.run("CREATE TABLE t (a int, b int)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    world.sync()
    set_key(world, "a")
    world.run("UPDATE t SET b = 7 WHERE a = 1")
    assert counts(world.sync(), "t") == (2, 0, 2, 0, 0)
    assert world.rows("t") == [(1, 7), (2, 2)]
    assert world.differing() == {}


NO_KEY = [
    (TableSettings(history=True), "the versions of its rows cannot be distinguished"),
    (TableSettings(mode="upsert"), "it cannot be synced by upsert"),
]


@pytest.mark.parametrize(("settings", "why"), NO_KEY, ids=["history", "upsert"])
@pytest.mark.parametrize("synced", [False, True], ids=["before the first sync", "after a sync that failed"])
def test_the_hint_to_name_a_key_leads_to_a_table_that_loads(
    make_world: MakeWorld, settings: TableSettings, why: str, synced: bool
) -> None:
    world = make_world()
    world.run("CREATE TABLE t (a int, b int)", "INSERT INTO t VALUES (1, 1), (2, 1)")
    world.settings = {"t": settings}
    if synced:
        (failed,) = world.sync().tables
        assert failed.status == "failed"
        assert "`instep table set-key public.t COLUMN`" in failed.error
    [remark] = [text for text in world.preview().partial if why in text]
    if synced:
        assert "`instep table set-key public.t COLUMN`" in remark
        set_key(world, "a")
    else:
        assert 'tables: {"public.t": {key: [...]}}' in remark
        world.settings = {"t": settings.model_copy(update={"key": ("a",)})}
    assert world.statuses(world.sync()) == {"t": "done"}
    assert world.reviews("open") == {}


def test_a_key_of_the_project_file_that_waits_is_set_as_the_plan_offers(make_world: MakeWorld) -> None:
    world = make_world()
    world.run("CREATE TABLE t (a int, b int)", "INSERT INTO t VALUES (1, 1), (2, 1)")
    world.sync()
    world.settings = {"t": TableSettings(key=("a",))}
    assert world.statuses(world.sync()) == {"t": "paused"}
    with pytest.raises(Blocked, match=r"instep.yml names the key of public.t: \(a\)") as error:
        set_key(world, "b")
    assert "key: [b]" in error.value.hint
    made = set_key(world, "a")
    assert (made.own, len(made.settles)) == (True, 1)
    assert (world.pauses(), world.reviews("open"), world.store.choices.of("shop")) == ({}, {}, {})
    assert world.statuses(world.sync()) == {"t": "done"}
    assert world.rows("t") == [(1, 1), (2, 1)]
