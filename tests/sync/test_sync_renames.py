# ruff: noqa: S608 - statements of this file
"""Renames that no id proves: what rows say about them, what stays open, what is let in, mapped or rejected."""

from __future__ import annotations

import pytest

from events.shows import shows
from instep.control.reviews import answer
from instep.model import Review
from instep.project.sections.tables import TableSettings
from instep.schema.policy.policy import Rule
from instep.schema.policy.similarity import PROPOSAL
from instep.schema.selection.selection import Selection, patterns
from instep.sync.schema_changes import declare_column_rename as mapping
from sync_world import MakeWorld, World, preset

KINDS = ["sqlite", pytest.param("mysql", marks=pytest.mark.server)]
AUTO = Rule(on=("column.renamed",), decide="apply", modifiers={"rename_threshold": 0.95})
ROWS = 40


def filled(world: World, columns: str = "customer_name varchar(30), n int", *values: str, rows: int = ROWS) -> World:
    """A table of this many rows; `values` are expressions over the row's number i."""
    values = values or ("concat('c', i)", "i * 2")
    world.run(f"CREATE TABLE t (id int PRIMARY KEY, {columns})")
    numbers = f"WITH RECURSIVE g(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM g WHERE i < {rows}) SELECT i, "
    text = ", ".join(v.replace("concat('c', i)", "'c' || i") if world.case.kind == "sqlite" else v for v in values)
    insert = f"INSERT INTO t {numbers}{text} FROM g"
    world.run(insert)
    world.sync()
    return world


def renamed(world: World, old: str = "customer_name", new: str = "client_name") -> World:
    world.run(f"ALTER TABLE t RENAME COLUMN {old} TO {new}")
    return world


def proposals(world: World) -> list[Review]:
    return [r for r in world.store.reviews.find("shop", ("open",)) if r.rule == PROPOSAL]


@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS)
@shows(event=44)
def test_a_rename_is_proposed_with_evidence_and_mapped(make_world: MakeWorld, kind: str) -> None:
    world = renamed(filled(make_world(kind)))
    world.run("UPDATE t SET client_name = 'moved' WHERE id = 7", "INSERT INTO t VALUES (99, 'late', 1)")
    report = world.sync()
    (found,) = proposals(world)
    assert found.id in report.waiting
    line = found.evidence["line"]
    assert line.startswith("customer_name -> client_name: 0.9")
    assert "39 of 40 sampled rows have the same value" in line
    assert "moved" not in str((found.evidence, found.why))
    assert world.events("change.rename_suspected") == ["change.rename_suspected"]
    for _ in range(2):
        world.sync()
    (still,) = proposals(world)
    assert (still.id, still.evidence["line"]) == (found.id, line)
    assert "customer_name" in world.accepted("t").by_name
    done = mapping.prepare(world.context, *mapping.pair_of(found))
    mapping.carry_out(world.context, done)
    assert proposals(world) == []
    assert world.store.reviews.get(found.id).status == "applied"
    world.sync()
    assert "customer_name" not in world.accepted("t").by_name
    assert dict(world.rows("t", "id", "client_name"))[3] == "c3"
    assert dict(world.rows("t", "id", "client_name"))[99] == "late"
    assert world.differing() == {}


@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS)
def test_a_rule_lets_it_in_as_a_rename(make_world: MakeWorld, kind: str) -> None:
    world = renamed(filled(make_world(kind, policy=preset("allow_all", AUTO))))
    world.run("UPDATE t SET client_name = 'moved' WHERE id = 7")
    world.sync()
    assert world.reviews("applied")["column t.customer_name renamed to client_name"] == "apply"
    assert proposals(world) == []
    assert "customer_name" not in world.accepted("t").by_name
    assert "client_name" in world.accepted("t").by_name
    assert len(world.accepted("t").columns) == 3
    assert dict(world.rows("t", "id", "client_name"))[7] == "moved"
    assert world.differing() == {}
    assert world.preview().plan.steps == ()
    (review,) = [r for r in world.store.reviews.find("shop", ("applied",)) if r.kind == "column.renamed"]
    assert "39 of 40 sampled rows" in review.why
    assert review.evidence["proven"] is True


NOT_LET_IN = [
    ("too few rows", {"rows": 6}, (), 0.95),
    ("below the threshold", {}, ("UPDATE t SET client_name = 'x' WHERE id > 20",), 0.9),
    ("constant", {"values": ("'same'", "i")}, (), 0.5),
    ("all NULL", {"values": ("NULL", "i")}, (), 0.5),
    ("a flag", {"values": ("i % 2", "i")}, (), 0.5),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("options", "then", "threshold"), [c[1:] for c in NOT_LET_IN], ids=[c[0] for c in NOT_LET_IN])
def test_what_no_rule_lets_in(
    make_world: MakeWorld, options: dict[str, object], then: tuple[str, ...], threshold: float
) -> None:
    rule = Rule(on=("column.renamed",), decide="apply", modifiers={"rename_threshold": threshold})
    world = make_world("sqlite", policy=preset("allow_all", rule))
    values = options.get("values", ())
    renamed(filled(world, "customer_name varchar(30), n int", *values, rows=options.get("rows", ROWS)))  # type: ignore[misc,arg-type]
    world.run(*then)
    world.sync()
    assert "column.renamed" not in {r.kind for r in world.store.reviews.find("shop", ("applied",))}
    assert "customer_name" in world.accepted("t").by_name


def test_a_column_that_only_looks_like_it_is_no_rename(make_world: MakeWorld) -> None:
    world = filled(
        make_world("sqlite", policy=preset("propagate_all")),
        "n int, customer_name varchar(30)",
        "i",
        "concat('c', i)",
    )
    world.run("ALTER TABLE t DROP COLUMN customer_name", "ALTER TABLE t ADD COLUMN client_name varchar(30)")
    world.settled()
    assert proposals(world) == []
    assert "customer_name" not in world.accepted("t").by_name


def test_a_proposal_keeps_the_old_column_where_policy_drops(make_world: MakeWorld) -> None:
    world = renamed(filled(make_world("sqlite", policy=preset("propagate_all"))))
    world.settled()
    assert len(proposals(world)) == 1
    assert world.accepted("t").by_name["customer_name"].retained


@pytest.mark.sampled
@pytest.mark.parametrize("preset_name", ["block_all", "approve"])
def test_presets_that_ask(make_world: MakeWorld, preset_name: str) -> None:
    world = make_world("sqlite")
    renamed(filled(world))
    world.policy = preset(preset_name)
    world.sync()
    assert {r.kind for r in world.store.reviews.find("shop", ("open",)) if r.action == "review"} == {
        "column.removed", "column.added", "column.renamed",
    }  # fmt: skip
    (found,) = proposals(world)
    mapping.carry_out(world.context, mapping.prepare(world.context, *mapping.pair_of(found)))
    world.sync()
    assert world.reviews("open") == {}
    assert world.differing() == {}


def test_a_rejected_proposal_is_not_made_again(make_world: MakeWorld) -> None:
    world = renamed(filled(make_world("sqlite", policy=preset("approve"))))
    world.policy = preset("allow_all")
    world.detect()
    (found,) = proposals(world)
    world.store.reviews.decide(found.id, "rejected", "test")
    for _ in range(3):
        world.sync()
    assert proposals(world) == []
    assert world.store.reviews.get(found.id).status == "rejected"
    assert world.accepted("t").by_name["customer_name"].retained


def test_a_proposal_goes_when_the_source_takes_it_back(make_world: MakeWorld) -> None:
    world = renamed(filled(make_world("sqlite")))
    world.detect()
    assert len(proposals(world)) == 1
    renamed(world, "client_name", "customer_name")
    world.detect()
    assert proposals(world) == []


def test_two_renames_are_told_apart_by_their_values(make_world: MakeWorld) -> None:
    world = make_world("sqlite", policy=preset("allow_all", AUTO))
    filled(world, "a varchar(30), b varchar(30)", "'a' || i", "'b' || i")
    world.run(
        "ALTER TABLE t RENAME COLUMN a TO q",
        "ALTER TABLE t RENAME COLUMN b TO a1",
        "ALTER TABLE t RENAME COLUMN q TO b1",
    )
    world.sync()
    assert dict(world.rows("t", "id", "b1"))[5] == "a5"
    assert {r for r in world.reviews("applied") if "renamed" in r} == {
        "column t.a renamed to b1", "column t.b renamed to a1",
    }  # fmt: skip
    assert world.differing() == {}


def test_without_a_key_values_are_compared_as_heaps(make_world: MakeWorld) -> None:
    world = make_world("sqlite", policy=preset("allow_all", AUTO))
    world.run("CREATE TABLE t (customer_name varchar(30), n int)")
    world.run(*(f"INSERT INTO t VALUES ('c{i}', {i})" for i in range(ROWS)))
    world.sync()
    renamed(world)
    world.detect()
    (found,) = proposals(world)
    assert "no key to join them by: weaker" in found.evidence["line"]
    assert found.evidence["proven"] is False


def test_before_the_first_load_there_is_only_the_schema(make_world: MakeWorld) -> None:
    world = make_world("sqlite")
    world.run("CREATE TABLE t (id int PRIMARY KEY, customer_name varchar(30), n int)")
    world.evolve()
    renamed(world)
    world.detect()
    (found,) = proposals(world)
    assert "no rows at the destination" in found.evidence["line"]


def test_hashed_columns_are_compared_by_their_hashes(make_world: MakeWorld) -> None:
    world = make_world("sqlite", selection=Selection(hashed=patterns(["*.customer_name"])))
    renamed(filled(world))
    world.policy = preset("allow_all", AUTO)
    world.detect()
    standing = [r for r in world.store.reviews.find("shop", ("open",)) if r.kind == "column.renamed"]
    assert [r.action for r in standing] == ["review"]
    assert "40 of 40 sampled rows" in standing[0].evidence["line"]
    assert "largest" not in standing[0].evidence["line"]
    assert "client_name" not in world.accepted("t").by_name


def test_rows_that_changed_since_are_left_out_where_a_cursor_tells(make_world: MakeWorld) -> None:
    world = make_world("sqlite", settings={"t": TableSettings(cursor="n")})
    renamed(filled(world))
    world.run("UPDATE t SET client_name = 'x' || id, n = n + 100 WHERE id <= 20")
    world.detect()
    (found,) = proposals(world)
    assert "20 of 20 sampled rows have the same value" in found.evidence["line"]


def test_a_failed_sample_is_no_failed_detection(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    from instep.errors import ReadError
    from instep.sync.detection import evidence

    world = renamed(filled(make_world("sqlite")))

    def broken(*_: object) -> None:
        raise ReadError("the disk is gone")

    monkeypatch.setattr(evidence, "_first", broken)
    world.detect()
    (found,) = proposals(world)
    assert "could not be compared: the disk is gone" in found.evidence["line"]
    monkeypatch.undo()
    world.detect()
    (again,) = proposals(world)
    assert "40 of 40 sampled rows" in again.evidence["line"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_renamed_table_is_proposed(make_world: MakeWorld, kind: str) -> None:
    world = filled(make_world(kind))
    if kind == "mysql":
        world.run("CREATE TABLE orders AS SELECT * FROM t", "ALTER TABLE orders ADD PRIMARY KEY (id)", "DROP TABLE t")
    else:
        world.run("ALTER TABLE t RENAME TO orders")
    world.detect()
    (found,) = [r for r in proposals(world) if r.kind == "table.renamed"]
    assert "40 of 40 sampled rows are there with the same values" in found.evidence["line"]
    world.sync()
    assert [r.id for r in proposals(world)] == [found.id]


def test_an_interrupted_rename_is_finished_by_the_next_run(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The destination has the new name already, so that the old values cannot be compared any more."""
    from instep.sync.schema_changes import apply

    world = renamed(filled(make_world("sqlite", policy=preset("allow_all", AUTO))))

    def killed(*_: object, **__: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(apply, "_accept", killed)
    with pytest.raises(KeyboardInterrupt):
        world.sync()
    monkeypatch.undo()
    assert "customer_name" in world.accepted("t").by_name
    world.sync()
    assert [c.name for c in world.accepted("t").columns] == ["id", "client_name", "n"]
    assert dict(world.rows("t", "id", "client_name"))[3] == "c3"
    assert world.differing() == {}


def test_a_rename_is_undone(make_world: MakeWorld) -> None:
    from instep.sync.schema_changes import undo

    world = renamed(filled(make_world("sqlite", policy=preset("allow_all", AUTO))))
    world.sync()
    (review,) = [r for r in world.store.reviews.find("shop", ("applied",)) if r.kind == "column.renamed"]
    undo.apply_undo(world.context, undo.prepare(world.context, [review]))
    assert "customer_name" in world.accepted("t").by_name
    world.sync()
    assert "column.renamed" not in {r.kind for r in world.store.reviews.find("shop", ("applied",)) if r.id != review.id}


SWAP = [
    ("swapped", ("'a' || i", "i * 3"), True),
    ("retyped", ("i", "i"), False),
]


@pytest.mark.parametrize(("values", "swapped"), [c[1:] for c in SWAP], ids=[c[0] for c in SWAP])
@shows(event=45)
def test_two_columns_that_exchange_their_types_may_be_two_names(
    make_world: MakeWorld, values: tuple[str, str], swapped: bool
) -> None:
    """Either the names were swapped, with their values, or both columns were written anew."""
    world = filled(make_world("sqlite", policy=preset("propagate_all")), "a text, b int", *values)
    old = ("b", "a") if swapped else ("i * 7", "'z' || i")
    world.run("ALTER TABLE t RENAME TO o", "CREATE TABLE t (id int PRIMARY KEY, a int, b text)")
    world.run(f"INSERT INTO t SELECT id, {old[0].replace('i ', 'id ')}, {old[1].replace('|| i', '|| id')} FROM o")
    world.run("DROP TABLE o")
    world.detect()
    found = [r for r in world.store.reviews.find("shop", ("open",)) if r.kind in ("column.widened", "column.narrowed")]
    assert len(found) == 2
    assert {r.action for r in found} == ({"review"} if swapped else {"apply", "ignore"})
    for review in found:
        assert ("the names a and b may have been swapped" in review.why) is swapped
        assert ("40 of 40 sampled rows have the same value" in review.why) is swapped


@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fits", [True, False])
def test_a_proposal_that_is_approved_like_any_other_change_is_carried_out(
    make_world: MakeWorld, kind: str, fits: bool
) -> None:
    """Over the API it is: the next run maps the columns, or asks again where they do not fit any more."""
    world = renamed(filled(make_world(kind)))
    assert world.sync().waiting
    answer(world.store, proposals(world), "approved", "ann")
    if not fits:
        world.run("ALTER TABLE t DROP COLUMN client_name", "ALTER TABLE t ADD COLUMN client_name date")
    report = world.sync()
    assert [r for r in world.store.reviews.find("shop", ("approved",)) if r.rule == PROPOSAL] == []
    assert any("was not mapped" in note for note in report.notes) == (not fits)
    if fits:
        assert world.tables()["t"] == "t"
        assert "customer_name" not in world.accepted("t").by_name
        assert world.events("change.mapped") == ["change.mapped"]
    assert world.differing() == {}


def test_tables_of_a_proposal_that_is_approved_are_one(make_world: MakeWorld) -> None:
    world = filled(make_world("sqlite"))
    world.run("ALTER TABLE t RENAME TO fresh")
    world.settled()
    answer(world.store, proposals(world), "approved", "ann")
    world.settled()
    assert [t.path for t in world.store.accepted.catalog("shop").tables if not t.retained] == ["main.fresh"]
    assert world.events("change.mapped") == ["change.mapped"]
    assert proposals(world) == []
    assert world.differing() == {}
