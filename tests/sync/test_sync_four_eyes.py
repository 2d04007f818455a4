"""Four eyes: whoever approves a destructive change is not who carries it out."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import pytest

from instep.bootstrap import App, open_project
from instep.control.reviews import answer
from instep.errors import Blocked
from instep.model import Review
from instep.schema.policy.policy import Policy, Rule
from instep.sync.context import SyncContext
from instep.sync.run import RunScope, sync
from instep.sync.schema_changes.evolve import evolve, preview
from instep.sync.schema_changes.undo import apply_undo, find, prepare

FILE = """\
engine: local
four_eyes: {on}
sources: {{db: {{type: sqlite, path: shop.db}}}}
destinations: {{lake: {{type: duckdb, path: lake.duckdb}}}}
connections: {{shop: {{policy: {policy}}}}}
"""


@dataclass
class Eyes:
    """`policy`: instead of the file's."""

    app: App
    policy: Policy | None = None

    def sql(self, script: str) -> None:
        with closing(sqlite3.connect(self.app.project.root / "shop.db")) as connection:
            connection.executescript(script)

    def by(self, who: str) -> SyncContext:
        context = replace(self.app.sync_context("shop"), who=who)
        return replace(context, policy=self.policy) if self.policy else context

    def sync(self, who: str) -> None:
        sync(self.by(who), RunScope(), engine=self.app.engine("shop"))

    def change(self, kind: str) -> Review:
        """The last one."""
        return next(r for r in self.app.store.reviews.find("shop") if r.kind == kind)

    def approved(self, script: str, kind: str) -> Review:
        """A change that alice has approved; it was seen often enough to be believed."""
        self.sql(script)
        for _ in range(3):
            preview(self.by("bob"), count=True)
        [done] = answer(self.app.store, [self.change(kind)], "approved", "alice")
        return done


def opened(folder: Path, on: bool, policy: str = "approve") -> Iterator[Eyes]:
    folder.joinpath("instep.yml").write_text(FILE.format(on=str(on).lower(), policy=policy))
    with open_project(folder) as app:
        eyes = Eyes(app)
        eyes.sql(
            "create table item (id integer primary key, name text, note text); insert into item values (1,'a','b')"
        )
        eyes.sync("bob")
        yield eyes


@pytest.fixture
def eyes(tmp_path: Path) -> Iterator[Eyes]:
    yield from opened(tmp_path, True)


@pytest.fixture
def one_eye(tmp_path: Path) -> Iterator[Eyes]:
    yield from opened(tmp_path, False)


DROP = "alter table item drop column note"


def test_the_approver_neither_syncs_nor_applies_it(eyes: Eyes) -> None:
    eyes.approved(DROP, "column.removed")
    eyes.sync("alice")
    assert eyes.change("column.removed").status == "approved"
    mine, other = preview(eyes.by("alice")), preview(eyes.by("bob"))
    assert not any(d.applied for d in mine.plan.decisions)
    assert [d.why for d in mine.detection.waiting] == [
        "approved by alice: with four_eyes another person has to apply it"
    ]
    assert [d.change.kind for d in other.plan.decisions if d.applied] == ["column.removed"]
    with pytest.raises(Blocked, match="alice has approved this"):
        evolve(eyes.by("alice"), other.plan)
    evolve(eyes.by("bob"), other.plan)
    assert eyes.change("column.removed").status == "applied"


@pytest.mark.parametrize("who", ["bob", "worker"])
def test_somebody_elses_sync_carries_it_out(eyes: Eyes, who: str) -> None:
    eyes.approved(DROP, "column.removed")
    eyes.sync(who)
    assert eyes.change("column.removed").status == "applied"


@pytest.mark.parametrize("sub", ["", "oidc https://login.example ada"], ids=["a key", "a provider"])
def test_the_approver_does_not_carry_it_out_under_another_key(eyes: Eyes, sub: str) -> None:
    """A key is replaced when it is lost, and a provider's person has another one with each role and address."""
    keys = eyes.app.store.api_keys
    old = keys.add("k-0a", "ada", "approver", (), sub or "test")
    eyes.sql(DROP)
    for _ in range(3):
        preview(eyes.by("bob"), count=True)
    answer(eyes.app.store, [eyes.change("column.removed")], "approved", old.who)
    keys.end(old.id, "test")
    new = keys.add("k-0b", "ada.b" if sub else "ada", "admin", (), sub or "test")
    for who in (new.who, f"{old.who}, {new.who}"):
        eyes.sync(who)
        assert eyes.change("column.removed").status == "approved"
        with pytest.raises(Blocked, match="has approved this"):
            evolve(eyes.by(who), preview(eyes.by("bob")).plan)
    eyes.sync(f"{new.who}, bob")
    assert eyes.change("column.removed").status == "applied"


@pytest.mark.parametrize("approved", [True, False])
@pytest.mark.parametrize("decides", ["review", "ignore"])
def test_a_policy_that_comes_later_lets_in_nothing_that_waits(
    tmp_path: Path, approved: bool, decides: Literal["review", "ignore"]
) -> None:
    """Whoever sets it could be the one person who is to be held."""
    for eyes in opened(tmp_path, True):
        eyes.policy = Policy(preset="propagate_all", rules=(Rule(("column.removed",), decides),))
        eyes.sql(DROP)
        for _ in range(3):
            preview(eyes.by("bob"), count=True)
        if approved:
            answer(eyes.app.store, [eyes.change("column.removed")], "approved", "alice")
        eyes.policy = Policy(preset="propagate_all")
        for _ in range(2):
            eyes.sync("alice")
            assert eyes.change("column.removed").status == ("approved" if approved else "open")
        made = preview(eyes.by("alice"))
        assert not any(d.applied for d in made.plan.decisions)
        if not approved:
            eyes.sync("bob")
            assert eyes.change("column.removed").status == "open", "nobody has approved it"
            answer(eyes.app.store, [eyes.change("column.removed")], "approved", "alice")
        eyes.sync("bob")
        assert eyes.change("column.removed").status == "applied"


def test_what_waits_for_another_reason_meanwhile_does_not_come_in_either(eyes: Eyes) -> None:
    """Seen once, it is not believed yet when the other policy is asked: that policy had kept it out stays on record."""
    eyes.policy = Policy(preset="propagate_all", rules=(Rule(("column.removed",), "review"),))
    eyes.sql(DROP)
    preview(eyes.by("bob"), count=True)
    eyes.policy = Policy(preset="propagate_all")
    for _ in range(3):
        preview(eyes.by("alice"))
        eyes.sync("alice")
    assert (eyes.change("column.removed").status, eyes.change("column.removed").rule) == ("open", "four eyes")
    answer(eyes.app.store, [eyes.change("column.removed")], "approved", "alice")
    eyes.sync("alice")
    assert eyes.change("column.removed").status == "approved"
    eyes.sync("bob")
    assert eyes.change("column.removed").status == "applied"


def test_what_the_destination_has_refused_takes_two_people_again(eyes: Eyes) -> None:
    kinds = ("column.retyped", "column.narrowed")
    eyes.policy = Policy(preset="propagate_all", rules=(Rule(kinds, "review"),))
    eyes.sql("create table u (id integer primary key, n integer); insert into u values (1, 5), (2, 6)")
    eyes.sync("bob")
    eyes.sql("drop table u; create table u (id integer primary key, n date); insert into u values (1, '2020-01-01')")
    for _ in range(2):
        preview(eyes.by("bob"), count=True)
    answer(eyes.app.store, [eyes.change("column.retyped")], "approved", "alice")
    eyes.sync("bob")
    assert (eyes.change("column.retyped").status, eyes.change("column.retyped").rule) == ("open", "destination")
    eyes.policy = Policy(preset="propagate_all", rules=(Rule(kinds, "apply"),))
    for _ in range(3):
        eyes.sync("alice")
    assert eyes.change("column.retyped").status == "open"


def test_a_plan_from_another_policy_does_not_carry_out_what_waits(eyes: Eyes) -> None:
    eyes.policy = Policy(preset="propagate_all")
    eyes.sql(DROP)
    for _ in range(3):
        made = preview(eyes.by("alice"), count=True).plan
    assert [d.rule for d in made.decisions if d.applied] == ["preset propagate_all"]
    eyes.policy = None
    preview(eyes.by("bob"))
    with pytest.raises(Blocked, match="it was open before the policy applied it"):
        evolve(eyes.by("alice"), made, ("*",))


@pytest.mark.parametrize("on", [True, False])
def test_what_policy_lets_in_from_the_start_needs_nobody(tmp_path: Path, on: bool) -> None:
    """Also where its removal has to be seen again first, which holds it back as well."""
    for eyes in opened(tmp_path, on, "propagate_all"):
        eyes.sql(DROP)
        for _ in range(3):
            eyes.sync("alice")
        assert eyes.change("column.removed").status == "applied"


def test_without_the_option_another_policy_lets_it_in(tmp_path: Path) -> None:
    for eyes in opened(tmp_path, False):
        eyes.sql(DROP)
        for _ in range(3):
            preview(eyes.by("bob"), count=True)
        eyes.policy = Policy(preset="propagate_all")
        eyes.sync("alice")
        assert eyes.change("column.removed").status == "applied"


def test_what_destroys_nothing_needs_one(eyes: Eyes) -> None:
    eyes.approved("alter table item add column more text", "column.added")
    eyes.sync("alice")
    assert eyes.change("column.added").status == "applied"


def test_without_the_option_one_is_enough(one_eye: Eyes) -> None:
    eyes = one_eye
    eyes.approved(DROP, "column.removed")
    eyes.sync("alice")
    assert eyes.change("column.removed").status == "applied"


@pytest.mark.parametrize("on", [True, False])
def test_an_undo_that_drops_takes_two_people(tmp_path: Path, on: bool) -> None:
    for eyes in opened(tmp_path, on, "propagate_all"):
        eyes.sql("alter table item add column more text")
        eyes.sync("bob")
        context = eyes.by("alice")
        made = prepare(context, find(context, eyes.change("column.added").id))
        dropped = tuple(s.object for s in made.drops)
        assert dropped
        if on:
            with pytest.raises(Blocked, match=r"which drops \S+item.more: .*only alice has asked for it"):
                apply_undo(context, made, dropped)
            context = eyes.by("carol")
        assert apply_undo(context, made, dropped) > 0


def test_an_undo_that_drops_nothing_needs_one(eyes: Eyes) -> None:
    eyes.approved("create table more (id integer primary key)", "table.added")
    eyes.sync("bob")
    context = eyes.by("alice")
    made = prepare(context, find(context, eyes.change("table.added").id))
    assert not made.drops
    assert apply_undo(context, made) > 0
