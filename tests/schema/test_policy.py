"""Presets row by row, precedence, rules, removals that are believed or not, suspected renames."""

from __future__ import annotations

from dataclasses import replace

import pytest
from world import catalog, column, table

from instep.errors import SchemaError
from instep.schema.catalog.catalog import Catalog
from instep.schema.catalog.types import parse
from instep.schema.changes.describe import (
    AccessLost,
    Change,
    ColumnAdded,
    ColumnRemoved,
    ColumnRenamed,
    ColumnRetyped,
    KeyRemoved,
    SchemaAdded,
    TableAdded,
    TableRemoved,
    TableReplaced,
    key,
)
from instep.schema.changes.diff import diff
from instep.schema.changes.kinds import KINDS as RECORDS
from instep.schema.policy.policy import Decision, Explicit, Modifiers, Override, Policy, Rule, decide
from instep.schema.policy.presets import KINDS, PRESETS, SUSPECTED, choice, effect_of, preset_named
from instep.schema.policy.removal import confirm_removals, decide_all

REF = ("s", "t")
ADDED = ColumnAdded(REF, column("a"), 0)
REMOVED = ColumnRemoved(REF, column("a"), 0)
RETYPED = ColumnRetyped(REF, column("a"), column("a:date"))
NEW_TABLE = TableAdded(table("t", "a"))
GONE_TABLE = TableRemoved(table("t", "a"))

# One row per line: kinds | allow_all | allow_columns | block_all | propagate_all | propagate_columns | approve | stop
GOLDEN = """
schema.added table.added     | apply | off | off | apply | pending | review | stop
column.added                 | apply | apply | off | apply | apply | review | stop
column.removed               | apply retain | apply retain | apply retain | apply drop | apply drop | review | stop
schema.removed table.removed | apply retain | apply retain | apply retain | apply retain | missing | review | stop
column.renamed               | apply | apply | review | apply | apply | review | stop
table.renamed                | apply | apply | review | apply | ignore | review | stop
column.widened               | apply | apply | apply | apply | apply | review | stop
column.narrowed              | kept | kept | kept | kept | kept | review | stop
column.retyped     | review quarantine | review quarantine | review quarantine | kept null | kept null | review | stop
column.nullability           | nullable | nullable | nullable | nullable | nullable | review | stop
column.default column.comment table.comment column.reordered | recorded | = | = | = | = | = | =
key.removed cursor.removed   | pause_table | = | = | stop | = | = | =
key.changed cursor.changed   | pause_table | = | = | stop | = | = | =
table.replaced               | generation | = | review | generation | = | review | stop
destination.drifted name.collided | review | = | = | = | = | = | stop
access.lost                  | error | = | = | = | = | = | =
rename.suspected             | apply | = | review | apply | = | review | apply
"""


def word(kind: str, preset: str) -> str:
    cell = choice(kind, preset)
    effect = cell.effect or effect_of(kind, cell.action)
    first = "stop" if cell.action == "pause_connection" else effect or cell.action
    return " ".join([first, *map(str, cell.modifiers.values())])


def golden() -> list[tuple[str, str, str]]:
    rows = []
    for line in GOLDEN.strip().splitlines():
        kinds, *cells = (part.strip() for part in line.split("|"))
        for i, cell in enumerate(cells):
            cells[i] = cells[i - 1] if cell == "=" else cell
        rows += [(kind, preset, cell) for kind in kinds.split() for preset, cell in zip(PRESETS, cells, strict=True)]
    return rows


@pytest.mark.parametrize(("kind", "preset", "expected"), golden())
def test_the_preset_table(kind: str, preset: str, expected: str) -> None:
    assert word(kind, preset) == expected


def test_the_table_has_every_kind_once() -> None:
    assert sorted(KINDS) == sorted(RECORDS)
    assert {kind for kind, _, _ in golden()} == {*KINDS, SUSPECTED}


@pytest.mark.parametrize(
    ("alias", "preset"),
    [
        ("ALLOW_ALL", "allow_all"),
        ("ALLOW_COLUMNS", "allow_columns"),
        ("BLOCK_ALL", "block_all"),
        ("propagate all", "propagate_all"),
        ("Propagate field changes only", "propagate_columns"),
        ("approve all changes myself", "approve"),
        ("ignore", "approve"),
        ("stop future syncs", "stop"),
        ("propagate-columns", "propagate_columns"),
    ],
)
def test_names_of_others(alias: str, preset: str) -> None:
    assert preset_named(alias) == preset
    assert Policy(preset=alias).preset == preset


CAREFUL = Policy(
    "careful",
    "allow_columns",
    (
        Rule(("column.removed",), "review"),
        Rule(("table.added",), "apply", ("billing.*",), modifiers={"backfill": "table"}),
        Rule(("column",), "pause_table", ("re:^s\\.secret",)),
        Rule(("*.added",), "ignore", tags=("prod", "eu")),
    ),
    (
        Override("s.wide*", "block_all"),
        Override("s.own", rules=(Rule(("column",), "ignore"),), modifiers={"removed": "drop"}),
    ),
    {"backfill": "column"},
)


def in_table(change: Change, name: str) -> Change:
    return replace(change, table=("s", name))  # type: ignore[call-arg]


PRECEDENCE: list[tuple[str, Change, Explicit | None, tuple[str, ...], str, str]] = [
    ("preset", ADDED, None, (), "apply", "preset allow_columns"),
    ("first rule", REMOVED, None, (), "review", "rule 1 of policy careful"),
    ("match", TableAdded(replace(table("x", "a"), schema="billing")), None, (), "apply", "rule 2 of policy careful"),
    ("no match", NEW_TABLE, None, (), "ignore", "preset allow_columns"),
    ("family and regex", in_table(ADDED, "secret_t"), None, (), "pause_table", "rule 3 of policy careful"),
    ("all tags", ADDED, None, ("eu", "prod"), "ignore", "rule 4 of policy careful"),
    ("one tag of two", ADDED, None, ("eu",), "apply", "preset allow_columns"),
    ("override's preset", in_table(ADDED, "wide_t"), None, (), "ignore", "override s.wide* of policy careful"),
    ("override over rules", in_table(REMOVED, "wide_t"), None, (), "apply", "override s.wide* of policy careful"),
    ("override's rule", in_table(REMOVED, "own"), None, (), "ignore", "rule 1 of override s.own of policy careful"),
    ("override without an answer", KeyRemoved(("s", "own"), ("a",)), None, (), "pause_table", "preset allow_columns"),
    ("on outranks", in_table(ADDED, "wide_t"), "on", (), "apply", "selection"),
    ("hashed is on", in_table(ADDED, "wide_t"), "hashed", (), "apply", "selection"),
    ("on answers additions only", REMOVED, "on", (), "review", "rule 1 of policy careful"),
    ("off", REMOVED, "off", (), "ignore", "selection"),
    ("mapped", ColumnRenamed(REF, column("a"), column("b")), "mapped", (), "apply", "selection"),
    ("approved", REMOVED, "approved", (), "apply", "review"),
    ("rejected", ADDED, "rejected", (), "ignore", "review"),
    ("a schema by name", SchemaAdded("billing"), None, (), "ignore", "preset allow_columns"),
]


@pytest.mark.parametrize(
    ("change", "explicit", "tags", "action", "rule"), [c[1:] for c in PRECEDENCE], ids=[c[0] for c in PRECEDENCE]
)
def test_precedence(change: Change, explicit: Explicit | None, tags: tuple[str, ...], action: str, rule: str) -> None:
    decision = decide(change, CAREFUL, explicit=explicit, tags=tags)
    assert (decision.action, decision.rule) == (action, rule)
    assert decision.why


def test_modifiers_lie_over_each_other() -> None:
    assert decide(ADDED, CAREFUL).modifiers.backfill == "column"
    assert decide(REMOVED, Policy(preset="propagate_all")).modifiers.removed == "drop"
    assert (
        decide(REMOVED, Policy(preset="propagate_all", modifiers={"removed": "retain"})).modifiers.removed == "retain"
    )
    assert decide(in_table(REMOVED, "own"), CAREFUL).modifiers == Modifiers("column", "drop")
    keep = decide(RETYPED, Policy(preset="propagate_all"))
    assert (keep.action, keep.effect, keep.modifiers.on_invalid_value) == ("ignore", "kept", "null")


def test_who_approves_says_yes_to_what_the_policy_would_do() -> None:
    rules = (Rule(("column.*",), "review", modifiers={"removed": "drop", "backfill": "table"}),)
    policy = Policy("careful", rules=rules)
    assert decide(REMOVED, policy, explicit="approved").modifiers == Modifiers("table", "drop")
    assert decide(REMOVED, policy, explicit="rejected").action == "ignore"


def test_a_replaced_table_with_another_key_is_a_changed_key() -> None:
    same = TableReplaced(table("t", "a!"), table("t", "a!"))
    other = TableReplaced(table("t", "a!"), table("t", "b!"))
    assert (decide(same, Policy()).action, decide(same, Policy()).effect) == ("apply", "generation")
    assert decide(other, Policy()).action == "pause_table"
    assert decide(other, Policy(preset="propagate_all")).action == "pause_connection"


def test_lost_access_is_never_applied() -> None:
    lost = AccessLost(REF, None, "permission denied")
    always = Policy(rules=(Rule(("*",), "apply"),))
    for policy in (Policy(), always):
        decision = decide(lost, policy)
        assert (decision.action, decision.effect) == ("ignore", "error")


def test_a_pause_opens_a_review() -> None:
    assert decide(KeyRemoved(REF, ("a",)), Policy()).needs_review
    assert decide(ADDED, Policy(preset="stop")).pauses
    assert not decide(ADDED, Policy()).needs_review


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Rule(("column.adde",), "apply"), "did you mean 'column.added'"),
        (lambda: Rule(("column.added",), "aply"), "did you mean 'apply'"),  # type: ignore[arg-type]
        (lambda: Rule(("column",), "apply", ("re:(",)), "pattern"),
        (lambda: Rule(("column",), "apply", modifiers={"backfil": "none"}), "did you mean 'backfill'"),
        (lambda: Policy(modifiers={"removed": "keep"}), "one of: retain, drop"),
        (lambda: Policy(modifiers={"rename_threshold": 2}), "from 0 to 1"),
        (lambda: Policy(preset="alow_all"), "did you mean 'allow_all'"),
        (lambda: Override("s.*", "nothing"), "unknown preset"),
        (lambda: choice("column.x", "allow_all"), "unknown kind of change"),
    ],
)
def test_wrong_words_are_named(make: object, message: str) -> None:
    with pytest.raises(SchemaError) as error:
        make()  # type: ignore[operator]
    assert message in str(error.value)


def tables(count: int) -> Catalog:
    return Catalog.of(table(f"t{i}", "a") for i in range(count))


def removed(accepted: Catalog, now: Catalog, **more: object) -> tuple[Decision, ...]:
    decisions, _ = decide_all(diff(accepted, now), Policy(preset="propagate_all"))
    return confirm_removals(decisions, accepted, **{"seen": {}, "proven": True, **more})  # type: ignore[arg-type]


def test_an_unproven_removal_is_applied_at_the_second_detection() -> None:
    before, now = tables(5), Catalog(tables(5).tables[1:])
    (first,) = removed(before, now, proven=False)
    assert (first.action, first.effect) == ("ignore", "waiting")
    assert "1 of 2" in first.why
    (second,) = removed(before, now, proven=False, seen={key(first.change): 2})
    assert second.action == "apply"
    (proven,) = removed(before, now)
    assert proven.action == "apply"


def test_reviews_and_pauses_act_at_the_first_detection() -> None:
    before, now = tables(5), Catalog(tables(5).tables[1:])
    for preset, action in (("approve", "review"), ("stop", "pause_connection")):
        decisions, _ = decide_all(diff(before, now), Policy(preset=preset))
        (decision,) = confirm_removals(decisions, before, seen={}, proven=False)
        assert decision.action == action


@pytest.mark.parametrize(
    ("have", "left", "trips"),
    [(10, 6, True), (10, 7, False), (4, 1, False), (5, 1, True), (13, 9, True), (14, 10, False)],
)
def test_many_tables_at_once(have: int, left: int, trips: bool) -> None:
    before = tables(have)
    decisions = removed(before, Catalog.of(before.tables[:left]))
    gone = [d for d in decisions if isinstance(d.change, TableRemoved)]
    assert {d.action for d in gone} == ({"pause_connection"} if trips else {"apply"})
    if trips:
        assert f"{have - left} of {have} tables vanished" in gone[0].why


@pytest.mark.parametrize(("have", "left", "trips"), [(10, 6, True), (10, 7, False), (3, 1, False), (6, 3, True)])
def test_many_columns_at_once_hold_everything(have: int, left: int, trips: bool) -> None:
    before = catalog(table("t", *[f"c{i}:int32#{i + 1}" for i in range(have)], oid="1"), table("u", "x", oid="2"))
    wide = table("t", *[f"c{i}:int32#{i + 1}" for i in range(left)], oid="1")
    decisions = removed(before, catalog(wide, table("u", "x", "y", oid="2")))
    by_kind = {d.change.kind: d for d in decisions}
    assert by_kind["column.removed"].action == ("pause_connection" if trips else "apply")
    assert by_kind["column.added"].action == ("ignore" if trips else "apply")


def test_what_a_person_approved_passes_the_limit() -> None:
    before = tables(10)
    decisions, _ = decide_all(diff(before, Catalog()), Policy(), explicit=lambda change: "approved")
    assert {d.action for d in confirm_removals(decisions, before, seen={}, proven=False)} == {"apply"}


SQLITE = catalog(table("t", "id:int32!", "name:string", "n:int32"))
RENAMED = catalog(table("t", "id:int32!", "full_name:string", "n:int32"))


@pytest.mark.parametrize("preset", PRESETS)
def test_a_suspected_rename(preset: str) -> None:
    decisions, (proposal,) = decide_all(diff(SQLITE, RENAMED), Policy(preset=preset))
    assert (proposal.rename.before.name, proposal.rename.after.name) == ("name", "full_name")
    assert proposal.score >= 0.8
    assert "same position" in proposal.evidence
    actions = {d.change.kind: (d.action, d.modifiers.removed) for d in decisions}
    if preset in ("block_all", "approve"):
        assert {a for a, _ in actions.values()} == {"review"}
    elif preset == "stop":
        assert {a for a, _ in actions.values()} == {"pause_connection"}
    else:
        assert actions == {"column.removed": ("apply", "retain"), "column.added": ("apply", "retain")}


@pytest.mark.parametrize(
    ("name", "now", "threshold"),
    [
        ("another type", table("t", "id:int32!", "full_name:date", "n:int32"), 0.8),
        ("elsewhere", table("t", "id:int32!", "n:int32", "zzz:string"), 0.8),
        ("above the threshold", table("t", "id:int32!", "full_name:string", "n:int32"), 1.0),
    ],
)
def test_no_suspicion(name: str, now: object, threshold: float) -> None:
    policy = Policy(modifiers={"rename_threshold": threshold})
    _, proposals = decide_all(diff(SQLITE, catalog(now)), policy)  # type: ignore[arg-type]
    assert proposals == ()


def test_ids_leave_nothing_to_suspect() -> None:
    before = catalog(table("t", "a:int32#1", "b:string#2", oid="1"))
    now = catalog(table("t", "a:int32#1", "b2:string#3", oid="1"))
    _, proposals = decide_all(diff(before, now), Policy())
    assert proposals == ()


def test_a_table_of_equal_columns_is_suspected_too() -> None:
    before, now = catalog(table("orders", "a", "b:string")), catalog(table("orders_2", "a", "b:string"))
    _, (proposal,) = decide_all(diff(before, now), Policy())
    assert (proposal.rename.before.name, proposal.rename.after.name) == ("orders", "orders_2")
    assert isinstance(proposal.removed, TableRemoved)
    _, none = decide_all(diff(before, catalog(table("orders_2", "a", "b:date"))), Policy())
    assert none == ()


def test_a_decision_of_a_person_is_not_doubted() -> None:
    _, proposals = decide_all(diff(SQLITE, RENAMED), Policy(), explicit=lambda change: "approved")
    assert proposals == ()


def test_the_evidence_shows_no_values() -> None:
    secret = catalog(table("t", column("a:string", default="'hunter2'"), "n"))
    now = catalog(table("t", column("b:string", default="'hunter2'"), "n"))
    _, (proposal,) = decide_all(diff(secret, now), Policy())
    assert "hunter2" not in " ".join(proposal.evidence)
    assert parse("string") == proposal.rename.after.type if isinstance(proposal.rename, ColumnRenamed) else True
    assert GONE_TABLE.kind == "table.removed"
