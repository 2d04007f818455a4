"""What readers of the lake are told about a change, against what the change then does to the lake."""

from __future__ import annotations

import pytest

from instep.errors import InstepError
from instep.lineage.model import Model
from instep.lineage.parse import parse
from instep.schema.catalog.types import parse as parse_type
from instep.schema.policy.policy import Policy, Rule
from instep.sync.operations.impact import ImpactReport, reads_alike, report
from sync_world import MakeWorld, World

DROP = Policy(rules=(Rule(("*.removed",), "apply", modifiers={"removed": "drop"}),))
ASK = Policy(rules=(Rule(("table", "column"), "review"),))
TABLES = (
    "create table item (id int primary key, name varchar(20), price numeric(8,2), tags text[])",
    "create table kind (id int primary key, label text)",
)
NAMED = "select id, name, price, tags from shop.item"
STAR = "select * from shop.item"
Case = tuple[str, Policy, str, str, str, str]
CASES: list[Case] = [
    ("added", Policy(), "alter table item add column note text", "safe", "silent", "shop.item.note is added"),
    ("dropped", DROP, "alter table item drop column price", "breaks", "silent", "shop.item.price is dropped"),
    ("kept", Policy(), "alter table item drop column price", "silent", "silent",
     "shop.item.price stays and gets no new values"),
    ("renamed", Policy(), "alter table item rename price to cost", "breaks", "silent",
     "shop.item.price is renamed to cost"),
    ("widened", Policy(), "alter table item alter price type numeric(12,2)", "safe", "safe", ""),
    ("retyped", ASK, "alter table item alter price type text", "breaks", "silent",
     "shop.item.price becomes string, it was decimal(8,2)"),
    ("of another table", Policy(), "alter table kind alter id type numeric(20,0)", "safe", "safe", ""),
    ("table renamed", Policy(), "alter table item rename to thing", "breaks", "breaks", "is renamed to thing"),
    ("table kept", Policy(), "drop table item", "silent", "silent", "shop.item stays and gets no new values"),
    ("table dropped", DROP, "drop table item", "breaks", "breaks", "shop.item is dropped"),
    ("comment", Policy(), "comment on column item.name is 'its name'", "safe", "safe", ""),
    ("held", ASK, "alter table item rename price to cost", "breaks", "silent", "shop.item.price is renamed to cost"),
    ("ignored", Policy(preset="block_all"), "alter table item add column note text", "safe", "safe", ""),
]  # fmt: skip


def models() -> list[Model]:
    return [Model(name, (name,), parse(sql, "spark")[0], "spark") for name, sql in (("named", NAMED), ("star", STAR))]


def prepared(world: World, policy: Policy, change: str) -> World:
    """A lake with the tables, and a change at the source."""
    world.run(*TABLES)
    world.evolve()
    world.policy = policy
    world.run(change)
    return world


def judged(world: World, change: str = "") -> ImpactReport:
    return report(world.context, world.preview(), models(), change)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("policy", "change", "named", "star", "why"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_a_change(world: World, policy: Policy, change: str, named: str, star: str, why: str) -> None:
    found = judged(prepared(world, policy, change))
    assert {v.model.name: v.level for v in found.verdicts} == {"named": named, "star": star}
    assert why in " ".join(f.why for v in found.verdicts for f in v.findings)
    assert found.breaks == ("breaks" in (named, star))


COME_TRUE = [
    ("dropped", "alter table item drop column price", {"price"}, set[str]()),
    ("renamed", "alter table item rename price to cost", {"price"}, {"cost"}),
    ("added", "alter table item add column note text", set[str](), {"note"}),
    ("renamed and another takes the name", "alter table item rename price to cost; alter table item add price text",
     set[str](), {"cost"}),
]  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize(("change", "gone", "come"), [case[1:] for case in COME_TRUE], ids=[c[0] for c in COME_TRUE])
def test_what_was_told_comes_true(world: World, change: str, gone: set[str], come: set[str]) -> None:
    prepared(world, DROP, change)
    before = {c.name for c in world.destination.schema.inspect([("shop", "item")]).tables[0].columns}
    told = {v.model.name: v.level for v in judged(world).verdicts}
    world.evolve(allowed=("*",))
    after = {c.name for c in world.destination.schema.inspect([("shop", "item")]).tables[0].columns}
    assert (before - after, after - before) == (gone, come)
    assert told["star"] == "silent"
    assert (told["named"] == "breaks") == (bool(gone) or ";" in change)


def test_a_returning_name_is_no_new_column(make_world: MakeWorld) -> None:
    world = make_world("sqlite")
    world.run("create table item (id integer primary key, name text, price numeric)", "create table other (id int)")
    world.evolve()
    world.run("alter table item drop column name")
    world.detect()
    world.evolve(world.detect())
    world.run("alter table item add column name text")
    star = [Model("star", ("star",), parse("select * from shop.item", "spark")[0], "spark")]
    found = report(world.context, world.preview(), star)
    assert [v.level for v in found.verdicts] == ["safe"]


def test_one_change_whatever_was_decided(world: World) -> None:
    prepared(world, ASK, "alter table item drop column price")
    [outcome] = judged(world).outcomes
    assert (outcome.planned, outcome.models["silent"]) == (False, ("named", "star"))
    world.answer("rejected")
    assert judged(world).outcomes == ()
    assert judged(world, outcome.id[:6]).outcomes[0].models["silent"] == ("named", "star")
    with pytest.raises(InstepError, match="is not one of the changes"):
        judged(world, "c-none")


ALIKE = [
    ("int32", "int64", True), ("int32", "string", False), ("decimal(8,2)", "decimal(12,4)", True),
    ("timestamp", "timestamptz", False), ("array(int32)", "array(int64)", True),
    ("array(int32)", "array(string)", False),
    ('struct("a" int32)', 'struct("a" int64, "b" string)', True), ('struct("a" int32)', 'struct("b" int32)', False),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after", "alike"), ALIKE)
def test_classes_of_types(before: str, after: str, alike: bool) -> None:
    assert reads_alike(parse_type(before), parse_type(after)) is alike
