"""What is decided about a name, and what becomes of the table or column that bears it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from world import NAMING, World, catalog, column, table

from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.changes.describe import NameCollided, describe, key
from instep.schema.changes.diff import diff
from instep.schema.planning.accept import accept, defer_blocked
from instep.schema.planning.collisions import collide
from instep.schema.planning.explain import outcome
from instep.schema.planning.naming import assign
from instep.schema.policy.policy import Decision, Policy, decide

BEFORE = catalog(table("t", "id:int32#1!", "a:int32#2", oid="9"))
Said = dict[str, str]


def told(
    source: Catalog, policy: Policy, said: Callable[[NameCollided], Decision] | None = None, *asked: NameCollided
) -> tuple[Said, Said, Catalog]:
    """The names that meet and what is decided about them, the other changes, and the accepted catalog."""
    accepted = assign(BEFORE, NAMING)
    decisions = [decide(c, policy) for c in diff(accepted, source)]
    met = collide(decisions, accepted, source, NAMING, said or (lambda fact: decide(fact, policy)), asked)
    done = met.block_names(defer_blocked(met.decisions, accepted))
    facts = {", ".join(d.change.names): d.action for d in done if isinstance(d.change, NameCollided)}
    others = {describe(d.change): d.action for d in done if not isinstance(d.change, NameCollided)}
    return facts, others, assign(accept(done, accepted, source), NAMING)


def approved(fact: NameCollided) -> Decision:
    return Decision(fact, "apply", "review", "applied")


def now(*columns: str | Column, name: str = "t") -> Table:
    return table(name, "id:int32#1!", *columns, oid="9")


A, TWIN = column("a:int32#2"), column("A:int32#3")
CASES = [
    ("added", catalog(now(A, TWIN)), {"A, a": "review"}, {"column s.t.A added (int32)": "ignore"}),
    ("both added", catalog(now(A, "b:int32#4", "B:int32#5")), {"B, b": "review"},
     {"column s.t.b added (int32)": "apply", "column s.t.B added (int32)": "ignore"}),
    ("in place of one that goes", catalog(now(TWIN)), {"A, a": "review"},
     {"column s.t.a removed (int32)": "apply", "column s.t.A added (int32)": "ignore"}),
    ("the same one in capitals", catalog(now("A:int32#2")), {}, {"column s.t.a renamed to A": "apply"}),
    ("renamed", catalog(now(A, TWIN), table("u", "id:int32#1!", oid="8")), {"A, a": "review"},
     {"column s.t.A added (int32)": "ignore", "table s.u added (1 column)": "apply"}),
    ("a table", catalog(now(A), table("T", "id:int32#1!", oid="8")), {"s.T, s.t": "review"},
     {"table s.T added (1 column)": "ignore"}),
    ("in a new table", catalog(now(A), table("u", "b:int32#1", "B:int32#2", oid="8")), {"B, b": "review"},
     {"table s.u added (1 column)": "apply", "column s.u.B added (int32)": "ignore"}),
    ("key of a new table", catalog(now(A), table("u", "b:int32#1", "B:int32#2!", oid="8")), {"B, b": "review"},
     {"table s.u added (2 columns)": "ignore"}),
    ("replaced by one with twins", catalog(replace(now(A, TWIN), id="10")), {"A, a": "review"},
     {"table s.t replaced by another table of that name": "ignore"}),
    ("a system column's name", catalog(now(A, "_instep_id:int32#3")), {"_instep_id, _instep_id": "apply"},
     {"column s.t._instep_id added (int32)": "apply"}),
]  # fmt: skip


@pytest.mark.parametrize(("what", "source", "facts", "others"), CASES, ids=[c[0] for c in CASES])
def test_only_what_would_get_another_name_waits(what: str, source: Catalog, facts: Said, others: Said) -> None:
    found, rest, after = told(source, Policy())
    assert (found, rest) == (facts, others)
    assert all(t.alias == t.name for t in after.tables)
    if found and "apply" not in found.values():
        _, rest, after = told(source, Policy(), approved)
        assert "ignore" not in rest.values()
        assert any(c.alias != c.name for t in after.tables for c in t.columns) or "T" in after.tables[0].name


BY_PRESET = [
    ("allow_all", "review", "ignore"),
    ("approve", "review", "review"),
    ("stop", "pause_connection", "pause_connection"),
    ("block_all", None, "ignore"),
]


@pytest.mark.parametrize(("preset", "fact", "column"), BY_PRESET)
def test_presets(preset: str, fact: str | None, column: str) -> None:
    """What is listed off takes nobody's name, unless it was asked about before."""
    facts, others, _ = told(catalog(now(A, TWIN)), Policy(preset=preset))
    assert (facts.get("A, a"), others["column s.t.A added (int32)"]) == (fact, column)
    before = NameCollided(("s", "t"), ("A", "a"), "")
    facts, others, _ = told(catalog(now(A, TWIN)), Policy(preset=preset), approved, before)
    taken = "apply" if preset != "stop" else "pause_connection"
    assert others["column s.t.A added (int32)"] == taken
    assert facts["A, a"] == ("apply" if taken == "apply" else "ignore")


def test_what_others_hold_back_keeps_its_name_waiting() -> None:
    source, accepted = catalog(now(A, TWIN)), assign(BEFORE, NAMING)
    decisions = [decide(c, Policy()) for c in diff(accepted, source)]
    met = collide(decisions, accepted, source, NAMING, approved)
    held = [replace(d, action="review") if d.change.kind == "column.added" else d for d in met.decisions]
    assert {d.change.kind: d.action for d in met.block_names(held)} == {
        "column.added": "review",
        "name.collided": "ignore",
    }
    assert set(met.about) == {key(d.change) for d in held if isinstance(d.change, NameCollided)}


def test_what_is_decided_about_a_name_is_told_as_a_sentence() -> None:
    reserved, accepted = catalog(now(A, "_instep_id:int32#3")), assign(BEFORE, NAMING)
    met = collide([decide(c, Policy()) for c in diff(accepted, reserved)], accepted, reserved, NAMING, approved)
    [fact] = [outcome(d) for d in met.decisions if isinstance(d.change, NameCollided)]
    assert fact == "_instep_id is stored as src__instep_id: the name is reserved by the destination (system columns)"
    twins, closed, before = catalog(now(A, TWIN)), Policy(preset="block_all"), NameCollided(("s", "t"), ("A", "a"), "")
    met = collide([decide(c, closed) for c in diff(accepted, twins)], accepted, twins, NAMING, approved, [before])
    texts = [outcome(d) for d in met.decisions]
    assert texts == ["its name at the destination was approved (name.collided)", "will be applied (review)"]


NAMES = st.lists(st.sampled_from("aAbB"), min_size=1, max_size=4, unique=True)


@given(st.lists(NAMES, min_size=1, max_size=3))
def test_without_an_approval_names_are_never_changed(steps: list[list[str]]) -> None:
    """Whatever comes and goes, each column that came in has its own name; and the next detection finds nothing else."""
    world = World()
    for names in steps:
        source = catalog(table("t", "id:int32#1!", *(f"{n}:int32#{ord(n)}" for n in names), oid="9"))
        decisions = [decide(c, world.policy) for c in diff(world.accepted, source)]
        said = collide(decisions, world.accepted, source, NAMING, lambda f: decide(f, Policy()))
        done = said.block_names(defer_blocked(said.decisions, world.accepted))
        world.accepted = assign(accept(done, world.accepted, source), NAMING)
        live = [c for c in world.accepted.tables[0].columns if not c.retained]
        assert all(c.alias == c.name for c in live)
        assert {c.name.lower() for c in live} == {"id", *(n.lower() for n in names)} or any(
            c.retained for c in world.accepted.tables[0].columns
        )
