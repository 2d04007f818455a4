"""What is foreseen of a migration is what a detection finds once it was run."""

from __future__ import annotations

import pytest

from instep.lineage.migration.statements import read_migration
from instep.schema.policy.policy import Policy, Rule
from instep.schema.policy.similarity import PROPOSAL
from instep.sync.operations.check_migration import MigrationCheck, dialect_of, predict_migration
from sync_world import MakeWorld, World

SCRIPT = [
    "create table made (id bigint primary key, v varchar(5))",
    "alter table orders rename column note to remark",
    "alter table orders add column phone varchar(20)",
    "alter table orders drop column gone",
    "drop table passing",
]
ALTERED = [*SCRIPT, "alter table orders alter column amount type bigint", "alter table orders alter note drop not null"]
FILLS = Rule(("column.added",), "apply", modifiers={"backfill": "column"})
POLICY = Policy(rules=(Rule(("column.removed",), "review"), FILLS))


def loaded(make_world: MakeWorld, kind: str) -> World:
    world = make_world(kind, policy=POLICY)
    world.run(
        "create table orders (id bigint primary key, note varchar(20) not null, gone int, amount int)",
        "create table passing (id bigint primary key)",
        "insert into orders values (1, 'a', 2, 3)",
    )
    world.sync()
    return world


def checked(world: World, statements: list[str]) -> MigrationCheck:
    return predict_migration(
        world.context, read_migration([("m.sql", ";\n".join(statements))], dialect_of(world.context))
    )


@pytest.mark.sampled
@pytest.mark.parametrize(("kind", "script"), [("sqlite", SCRIPT), ("postgres", [ALTERED[-1], *ALTERED[:-1]])])
def test_it_is_what_a_detection_finds_then(make_world: MakeWorld, kind: str, script: list[str]) -> None:
    world = loaded(make_world, kind)
    found = checked(world, script)
    assert (found.unread, found.elsewhere) == ((), ())
    world.run(*script)
    for _ in range(2):  # removals are believed on every source then
        world.detect()
    reviews = [r for r in world.preview().reviews.values() if r.rule != PROPOSAL]
    expected = {(c.summary, c.decision.action, c.decision.rule) for c in found.consequences}
    assert {(r.summary, r.action, r.rule) for r in reviews} == expected


def test_ids_make_a_rename_of_it(make_world: MakeWorld) -> None:
    world = loaded(make_world, "postgres")
    before = world.store.reviews.find("shop")
    found = checked(world, ALTERED[1:])
    said = {c.decision.change.kind: (c.at[0].line, c.waits, c.level) for c in found.consequences}
    assert said["column.renamed"] == (1, False, "breaks readers")
    assert said["column.removed"] == (3, True, "breaks readers")
    assert said["column.widened"][0] == 5
    assert (found.notes, len(found.unread)) == ((), 1), "note is called remark by then"
    assert world.store.reviews.find("shop") == before
    [added] = [c for c in found.consequences if c.decision.change.kind == "column.added"]
    assert added.backfill is None or added.backfill.size.columns == ("phone",)
