"""`simulate`: recorded changes under another policy. What no policy decided is no difference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from instep.control.policy.sample_changes import OF_COLUMN, PolicyQuestion, sample
from instep.control.policy.simulation import Simulation, moment, simulate
from instep.errors import InstepError
from instep.project.load import load
from instep.project.project import Project
from instep.project.sections.policies import PolicySection, RuleSection
from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import parse
from instep.schema.changes.describe import (
    Change,
    ColumnAdded,
    ColumnRemoved,
    change_to_dict,
    column_of,
    describe,
    key,
    table_of,
)
from instep.schema.policy.policy import Decision, Explicit
from instep.schema.policy.presets import KINDS, PRESETS
from instep.schema.policy.removal import confirm_removals, decide_all
from instep.store.catalogs.reviews import DetectedChange
from instep.store.store import Store

PROJECT = """\
sources: {db: {type: sqlite, path: shop.db}}
destinations: {lake: {type: iceberg}}
policies: {mine: {preset: PRESET}}
connections:
  shop: {policy: mine, tags: [eu], tables: {"s.own": {preset: stop}}}
"""


def project(folder: Path, preset: str = "allow_all") -> Project:
    (folder / "instep.yml").write_text(PROJECT.replace("PRESET", preset))
    return load(folder, {})


def of(kind: str, table: str = "s.t", column: str = "a") -> Change:
    return sample(PolicyQuestion(kind, table, column if kind in OF_COLUMN else ""))


def record(store: Store, decisions: Sequence[Decision], print_: str = "f") -> None:
    findings = [
        DetectedChange(key(d.change), d.change.kind, table_of(d.change) or ("", ""),
            column_of(d.change), describe(d.change),
                change_to_dict(d.change), d.action, d.rule, d.why, asdict(d.modifiers))
        for d in decisions
    ]  # fmt: skip
    store.reviews.record("shop", findings, print_)


def decided(
    opened: Project, changes: Sequence[Change], explicit: Explicit | None = None, *, proven: bool = True
) -> tuple[Decision, ...]:
    policy, tags = opened.policy("shop"), opened.connection("shop").tags
    decisions, _ = decide_all(changes, policy, explicit=lambda change: explicit, tags=tags)
    return confirm_removals(decisions, Catalog(), seen={}, proven=proven)


def told(found: Simulation) -> list[tuple[str, str, str]]:
    return [(c.review.kind, c.then.text, c.now.text) for c in found.different]


# name | the preset then | the change | the policy now | (then, now) where they differ
DIFFERENT = [
    ("the same preset", "allow_all", of("column.added"), {}, []),
    ("an action", "allow_all", of("column.added"), {"preset": "approve"}, [("apply", "review")]),
    ("what a removal does", "allow_all", of("column.removed"), {"preset": "propagate_all"},
     [("apply, removed: retain", "apply, removed: drop")]),
    ("what a backfill does", "allow_all", of("column.added"), {"backfill": "table"},
     [("apply", "apply, backfill: table")]),
    ("what becomes of invalid values", "propagate_all", of("column.retyped"),
     {"preset": "propagate_all", "on_invalid_value": "fail"},
     [("ignore, on_invalid_value: null", "ignore, on_invalid_value: fail")]),
    ("modifiers that mean nothing here", "allow_all", of("column.widened"),
     {"removed": "drop", "on_invalid_value": "fail"}, []),
    ("a rule", "allow_all", of("key.changed"),
     {"rules": ({"on": "key", "decide": "pause_connection", "tags": "eu"},)}, [("pause_table", "pause_connection")]),
    ("a rule for other tags", "allow_all", of("key.changed"),
     {"rules": ({"on": "key", "decide": "pause_connection", "tags": "us"},)}, []),
    ("a table with settings of its own", "allow_all", of("column.added", "s.own"), {"preset": "approve"}, []),
]  # fmt: skip


@pytest.mark.parametrize(
    ("preset", "change", "section", "expected"), [d[1:] for d in DIFFERENT], ids=[d[0] for d in DIFFERENT]
)
def test_what_differs(
    tmp_path: Path, store: Store, preset: str, change: Change, section: object, expected: list[tuple[str, str]]
) -> None:
    opened = project(tmp_path, preset)
    record(store, decided(opened, [change]))
    found = simulate(opened, store, "shop", "other", PolicySection.model_validate(section))
    assert told(found) == [(change.kind, *texts) for texts in expected]
    assert len(found.compared) == 1


# What no policy decided: name | what was recorded | the policy now
HELD: list[tuple[str, str, dict[str, str]]] = [
    ("not confirmed yet", "ignore|preset allow_all|seen as removed 1 of 2 times: applied when the next agrees", {}),
    ("a mass removal", "pause_connection|mass removal limit|9 of 10 tables vanished at once", {}),
    ("a mass removal, whatever the policy", "pause_connection|mass removal limit|9 of 10 tables vanished at once",
     {"preset": "approve"}),
    ("private", "review|privacy|a is hashed and b would not be: name it under `hash`", {}),
    ("a name in use", "ignore|preset allow_all|the name 'a' is still used by a pending change", {}),
    ("switched on", "apply|selection|applied", {"preset": "stop"}),
    ("switched off", "ignore|selection|not applied", {"preset": "stop"}),
    ("asked again", "review|review|approved for another table: ask again", {}),
    ("mapped", "apply|selection column.renamed|applied", {"preset": "stop"}),
]  # fmt: skip


@pytest.mark.parametrize(("then", "section"), [h[1:] for h in HELD], ids=[h[0] for h in HELD])
def test_what_no_policy_decided_does_not_differ(
    tmp_path: Path, store: Store, then: str, section: dict[str, str]
) -> None:
    action, by, why = then.split("|")
    rule, _, kind = by.partition(" ") if "selection" in by else (by, "", "column.removed")
    change = of(kind or "table.added")
    record(store, [Decision(change, action, rule, why)])  # type: ignore[arg-type]
    found = simulate(project(tmp_path), store, "shop", "other", PolicySection.model_validate(section))
    assert told(found) == []


def test_what_a_safeguard_held_and_the_policy_would_not_apply_differs(tmp_path: Path, store: Store) -> None:
    opened = project(tmp_path)
    record(store, decided(opened, [of("column.removed")], proven=False))
    found = simulate(opened, store, "shop", "other", PolicySection(preset="approve"))
    assert told(found) == [("column.removed", "ignore", "review, removed: retain")]


REMOVED = ColumnRemoved(("s", "t"), Column("name", parse("string")), 1)
ADDED = ColumnAdded(("s", "t"), Column("full_name", parse("string")), 1)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("now", ["allow_all", "block_all", "approve"])
def test_suspected_renames_are_seen_as_a_detection_sees_them(
    tmp_path: Path, store: Store, preset: str, now: str
) -> None:
    record(store, decided(project(tmp_path, preset), [REMOVED, ADDED]))
    found = simulate(project(tmp_path, preset), store, "shop", "other", PolicySection(preset=now))
    expected = decided(project(tmp_path, now), [REMOVED, ADDED])
    assert {c.review.kind: (c.now.action, c.now.why) for c in found.compared} == {
        d.change.kind: (d.action, d.why) for d in expected
    }


def test_changes_of_another_time_are_no_rename(tmp_path: Path, store: Store) -> None:
    opened = project(tmp_path, "block_all")
    record(store, decided(opened, [REMOVED]), "monday")
    record(store, decided(opened, [ADDED]), "tuesday")
    assert told(simulate(opened, store, "shop", "other", PolicySection(preset="block_all"))) == []


changes = st.lists(
    st.builds(of, st.sampled_from(KINDS), st.sampled_from(["s.t", "s.own", "s.u"]), st.sampled_from(["a", "b"])),
    min_size=1,
    max_size=6,
    unique_by=key,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes, st.sampled_from(PRESETS), st.booleans(), st.sampled_from([None, "on", "off"]))
def test_the_same_policy_decides_the_same(
    tmp_path_factory: pytest.TempPathFactory, found: list[Change], preset: str, proven: bool, explicit: Explicit | None
) -> None:
    folder = tmp_path_factory.mktemp("law")
    opened = project(folder, preset)
    with Store(f"sqlite:///{folder / 'state.db'}") as store:
        record(store, decided(opened, found, explicit, proven=proven))
        before = store.reviews.find(), store.events.after()
        answer = simulate(opened, store, "shop", "mine", opened.model.policies["mine"])
        assert told(answer) == []
        assert sum(then for then, _ in answer.counts.values()) == len(found)
        assert all(then == now for then, now in answer.counts.values())
        assert (store.reviews.find(), store.events.after()) == before


def test_only_what_was_seen_since(tmp_path: Path, store: Store) -> None:
    opened = project(tmp_path)
    record(store, decided(opened, [of("column.added")]))
    [review] = store.reviews.find()
    for since, expected in ((review.first_seen, 1), (datetime(2999, 1, 1, tzinfo=UTC), 0), (None, 1)):
        assert len(simulate(opened, store, "shop", "other", PolicySection(), since).compared) == expected


def test_past_changes_count_and_others_connections_do_not(tmp_path: Path, store: Store) -> None:
    opened = project(tmp_path)
    record(store, decided(opened, [of("column.added")]))
    store.reviews.obsolete(r.id for r in store.reviews.find())
    record(store, decided(opened, [of("column.added")]))
    found = simulate(opened, store, "shop", "other", PolicySection(rules=(RuleSection(on=("*",), decide="review"),)))
    assert found.counts == {"apply": (2, 0), "review": (0, 2)}


def test_what_cannot_be_read_is_named(tmp_path: Path, store: Store) -> None:
    newer = DetectedChange(
        "k", "column.moved", ("s", "t"), "a", "moved", {"kind": "column.moved"}, "apply", "x", "applied"
    )
    store.reviews.record("shop", [newer], "f")
    found = simulate(project(tmp_path), store, "shop", "other", PolicySection())
    assert (found.compared, found.unread) == ((), (store.reviews.find()[0].id,))


def test_oldest_first(tmp_path: Path, store: Store) -> None:
    opened = project(tmp_path)
    for number, kind in enumerate(("column.added", "key.changed", "column.removed")):
        record(store, decided(opened, [of(kind)]), str(number))
    found = simulate(opened, store, "shop", "other", PolicySection())
    assert [c.review.kind for c in found.compared] == ["column.added", "key.changed", "column.removed"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-21", datetime(2026, 11, 21, tzinfo=UTC)),
        ("2026-11-21T09:30", datetime(2026, 11, 21, 9, 30, tzinfo=UTC)),
        ("2026-11-21T09:30+02:00", datetime(2026, 11, 21, 7, 30, tzinfo=UTC)),
    ],
)
def test_moments(text: str, expected: datetime) -> None:
    assert moment(text) == expected


def test_no_moment() -> None:
    with pytest.raises(InstepError, match="'yesterday' is not a date"):
        moment("yesterday")


def test_a_table_that_policy_knows_nothing_of_is_no_error(tmp_path: Path, store: Store) -> None:
    change = sample(PolicyQuestion("table.added", "flat"), Catalog.of([Table("", "flat", ())]))
    record(store, decided(project(tmp_path), [change]))
    assert told(simulate(project(tmp_path), store, "shop", "other", PolicySection(preset="block_all"))) == [
        ("table.added", "apply", "ignore")
    ]
