"""How a decision is explained: who was asked, why they had no answer, who set which modifier."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from world import column, table

from instep.project.sections.policies import RuleSection
from instep.project.text import tree
from instep.schema.changes.describe import (
    Change,
    ColumnAdded,
    ColumnRemoved,
    ColumnRenamed,
    ColumnRetyped,
    KeyChanged,
    SchemaAdded,
    TableAdded,
    TableRenamed,
)
from instep.schema.policy.policy import Explicit, Modifiers, Override, Policy, Rule, decide, is_by_policy, trace
from instep.schema.policy.presets import ACTIONS, KINDS, PRESETS

REF = ("s", "t")
ADDED = ColumnAdded(REF, column("a"), 0)
REMOVED = ColumnRemoved(REF, column("a"), 0)
CHANGES: list[Change] = [
    ADDED,
    REMOVED,
    ColumnRenamed(REF, column("a"), column("b")),
    ColumnRetyped(("s", "u"), column("a"), column("a:date")),
    KeyChanged(REF, ("a",), ("b",)),
    SchemaAdded("s"),
    TableAdded(table("t", "a")),
    TableRenamed(table("t", "a"), table("u", "a")),
]
CAREFUL = Policy(
    "careful",
    "propagate_all",
    (
        Rule(("table", "key.*"), "review", ("s.*",)),
        Rule(("column.added",), "ignore", ("s.t.x", "s.u"), ("prod",)),
        Rule(("column",), "pause_table", ("s.t.a",), modifiers={"on_invalid_value": "fail"}),
    ),
    (Override("s.u", rules=(Rule(("column.added",), "ignore"),), modifiers={"backfill": "table"}),),
    {"on_invalid_value": "null"},
)

# name | change | explicit | tags | who was asked, and what kept them from deciding
ASKED: list[tuple[str, Change, Explicit | None, tuple[str, ...], list[tuple[str, str]]]] = [
    ("a person", ADDED, "rejected", (), [("review", "")]),
    ("the kind", SchemaAdded("s"), None, (), [
        ("rule 1 of policy careful", "kind schema"), ("rule 2 of policy careful", "kind schema tag"),
        ("rule 3 of policy careful", "kind schema"), ("preset propagate_all", ""),
    ]),
    ("the column and the tag", ADDED, None, ("eu",), [
        ("rule 1 of policy careful", "kind"), ("rule 2 of policy careful", "column tag"),
        ("rule 3 of policy careful", ""),
    ]),
    ("the column alone", ADDED, None, ("eu", "prod"), [
        ("rule 1 of policy careful", "kind"), ("rule 2 of policy careful", "column"), ("rule 3 of policy careful", ""),
    ]),
    ("the table", TableAdded(replace(table("t", "a"), schema="x")), None, (), [
        ("rule 1 of policy careful", "table"), ("rule 2 of policy careful", "kind table tag"),
        ("rule 3 of policy careful", "kind table"), ("preset propagate_all", ""),
    ]),
    ("an override first", ColumnRetyped(("s", "u"), column("a"), column("a:date")), None, (), [
        ("rule 1 of override s.u of policy careful", "kind"), ("rule 1 of policy careful", "kind"),
        ("rule 2 of policy careful", "kind tag"), ("rule 3 of policy careful", "column"), ("preset propagate_all", ""),
    ]),
    ("the first rule", KeyChanged(REF, ("a",), ("b",)), None, (), [("rule 1 of policy careful", "")]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "explicit", "tags", "expected"), [case[1:] for case in ASKED], ids=[case[0] for case in ASKED]
)
def test_who_was_asked(
    change: Change, explicit: Explicit | None, tags: tuple[str, ...], expected: list[tuple[str, str]]
) -> None:
    asked = trace(change, CAREFUL, explicit=explicit, tags=tags).evaluations
    assert [(v.name, " ".join(m.part for m in v.misses)) for v in asked] == expected


def test_a_miss_names_both_sides() -> None:
    kind, place, tag = CAREFUL.rules[1].misses(REMOVED, ("eu",))
    assert kind.why == "it is about column.added"
    assert place.why == "s.t.x, s.u does not name s.t or s.t.a"
    assert tag.why == "the connection has no tag prod"


ORIGINS = [
    ("nobody", ADDED, Policy(), {"backfill": "default", "removed": "default", "on_invalid_value": "default"}),
    ("the preset", REMOVED, Policy(preset="propagate_all"), {"removed": "preset propagate_all"}),
    ("the policy", REMOVED, Policy(preset="propagate_all", modifiers={"removed": "retain"}), {"removed": "policy"}),
    ("a rule over the policy", ADDED, CAREFUL, {"on_invalid_value": "rule 3 of policy careful", "backfill": "default"}),
    ("an override", ColumnRetyped(("s", "u"), column("a"), column("a:date")), CAREFUL,
     {"backfill": "override s.u", "on_invalid_value": "policy careful"}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "policy", "expected"), [case[1:] for case in ORIGINS], ids=[case[0] for case in ORIGINS]
)
def test_who_set_a_modifier(change: Change, policy: Policy, expected: dict[str, str]) -> None:
    origins = trace(change, policy).origins
    assert origins.items() >= expected.items()
    assert set(origins) == set(asdict(Modifiers()))


names = st.sampled_from(["s", "s.t", "s.u", "s.*", "s.t.*", "*.a", "re:a$", "x.y"])
rules = st.builds(
    Rule,
    on=st.lists(st.sampled_from([*KINDS, "column", "table", "*.added", "*"]), min_size=1, max_size=3).map(tuple),
    decide=st.sampled_from(ACTIONS),
    match=st.lists(names, max_size=2).map(tuple),
    tags=st.lists(st.sampled_from(["prod", "eu"]), max_size=2).map(tuple),
    modifiers=st.fixed_dictionaries(
        {},
        optional={
            "backfill": st.sampled_from(["none", "column"]),
            "removed": st.sampled_from(["retain", "drop"]),
            "on_invalid_value": st.sampled_from(["quarantine", "null"]),
            "rename_threshold": st.sampled_from([0.5, 1.0]),
        },
    ),
)
overrides = st.builds(
    Override, match=names, preset=st.sampled_from(["", *PRESETS]), rules=st.lists(rules, max_size=2).map(tuple)
)
policies = st.builds(
    Policy,
    name=st.sampled_from(["", "careful"]),
    preset=st.sampled_from(PRESETS),
    rules=st.lists(rules, max_size=4).map(tuple),
    overrides=st.lists(overrides, max_size=2).map(tuple),
)
answers: st.SearchStrategy[Explicit | None] = st.sampled_from([None, None, "on", "off", "approved", "mapped"])


@given(st.sampled_from(CHANGES), policies, answers, st.sets(st.sampled_from(["prod", "eu"])))
def test_what_is_explained_is_what_is_decided(
    change: Change, policy: Policy, explicit: Explicit | None, tags: set[str]
) -> None:
    traced = trace(change, policy, explicit=explicit, tags=tags)
    assert traced.decision == decide(change, policy, explicit=explicit, tags=tags)
    *before, last = traced.evaluations
    assert last.name == traced.decision.rule
    assert last.misses == ()
    assert last.rule is None or last.rule.matches(change, tags)
    assert all(v.rule and v.misses and not v.rule.matches(change, tags) for v in before)
    assert is_by_policy(traced.decision.why)
    changed = {name for name, value in asdict(traced.decision.modifiers).items() if value != asdict(Modifiers())[name]}
    assert all(traced.origins[name] != "default" for name in changed)


@given(rules)
def test_a_rule_reads_as_the_project_file_says_it(rule: Rule) -> None:
    read = tree.parse(str(rule))
    assert read.problems == []
    assert RuleSection.model_validate(read.data).rule() == rule


@pytest.mark.parametrize("text", ["null", "true", "a: b", "- x", '"', "#", "ä,b", "2", "re:[a, b]"])
def test_a_rule_quotes_what_yaml_would_read_otherwise(text: str) -> None:
    rule = Rule(("column",), "apply", (text,) if not text.startswith('"') else (), (text,))
    assert RuleSection.model_validate(tree.parse(str(rule)).data).rule() == rule
