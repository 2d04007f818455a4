"""Which channels are told of what: occasions, severity, kinds, tags, groups, names, and a connection's switch."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from notify_world import AT

from instep import events
from instep.events import ChangeApplied, ChangeDetected, Event, Paused, ReviewNeeded, RolloutMoved, RunEnded
from instep.notify.lines import lines_of, meaning
from instep.notify.message import Message, details
from instep.notify.routes import Routes
from instep.project.load import load
from instep.schema.catalog.catalog import Column
from instep.schema.catalog.types import parse
from instep.schema.changes.describe import change_to_dict
from instep.schema.changes.kinds import ColumnAdded
from instep.store.catalogs.reviews import DetectedChange
from instep.store.history.outbox import Notice, NotifiedEvent
from instep.store.store import Store

FILE = """\
sources: {{db: {{type: sqlite, path: x}}}}
destinations: {{lake: {{type: iceberg}}, attic: {{type: duckdb, path: y}}}}
channels:
  chat: {{type: slack, url: "${{env:URL}}"{chat}}}
  hook: {{type: teams, url: "${{env:URL}}"}}
connections:
  shop: {{destination: lake, tags: [pii, daily]{shop}}}
  bills: {{destination: attic}}
{rest}
"""
CHANGED = ChangeDetected("shop", "c-1", "column.added", "a column")
REMOVED = ChangeDetected("shop", "c-1", "column.removed", "a column")
KEY = ChangeDetected("shop", "c-1", "key.removed", "a key")
WAITS = ReviewNeeded("shop", "c-1", "a column", "why")
PAUSED = Paused("shop", "why")
FAILED = RunEnded("shop", "r-1", "sync", "failed", "why")
DONE = RunEnded("shop", "r-1", "sync", "done")
HALTED = RolloutMoved("", "w-1", "halted", 2, "shop: rows of a table differ by 40%", "ann")
LATE = events.FreshnessLate("shop", ("public.order",), 1, "2026-11-22T12:00:00+00:00", "2026-11-22T11:30:00+00:00")
RECOVERED = events.FreshnessRecovered("shop", ("public.order",), 1)
READY = RolloutMoved("", "w-1", "ready", 1, "", "ann")
ROLLOUTS = "notify: [{on: [rollout], to: chat%s}]"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(f"sqlite:///{tmp_path / 'state.db'}") as opened:
        yield opened


def told(store: Store, folder: Path, event: Event, shop: str = "", rest: str = "", chat: str = "") -> list[Notice]:
    folder.joinpath("instep.yml").write_text(FILE.format(shop=shop and f", {shop}", rest=rest, chat=chat))
    return Routes(load(folder, {"URL": "https://a.example"}), store)(event, AT)


def channels(found: list[Notice]) -> dict[str, str]:
    return {notice.channel: notice.notice for notice in found}


def notify(on: str, more: str = "", to: str = "chat") -> str:
    return f"notify: [{{on: [{on}], to: {to}{more and f', {more}'}}}]"


BOTH = {"chat": "paused", "hook": "paused"}
CASES = [
    ("by default all are told of pauses", PAUSED, "", "", BOTH),
    ("by default all are told of reviews", WAITS, "", "", {"chat": "review_needed", "hook": "review_needed"}),
    ("by default nobody is told of changes", CHANGED, "", "", {}),
    ("by default nobody is told of failures", FAILED, "", "", {}),
    ("by default all are told of late tables", LATE, "", "", {"chat": "late", "hook": "late"}),
    ("late tables and those on time again are one occasion", RECOVERED, notify("late"), "", {"chat": "late"}),
    ("a warning's end is no warning", RECOVERED, notify("late", "severity: warning"), "", {}),
    ("who says something is told that only", PAUSED, notify("applied"), "", {}),
    ("one occasion", CHANGED, notify("detected, failed"), "", {"chat": "detected"}),
    ("a rollout that halted", HALTED, "", ROLLOUTS % "", {"chat": "rollout"}),
    ("a rollout is about no group", HALTED, "", ROLLOUTS % ", tags: [pii]", {}),
    ("a rollout between two waves", READY, "", ROLLOUTS % "", {}),
    ("a rollout is told to those who ask", HALTED, notify("paused"), "", {}),
    ("another occasion", FAILED, notify("detected, failed"), "", {"chat": "failed"}),
    ("a finished sync", DONE, notify("done"), "", {"chat": "done"}),
    ("the gravest word", KEY, notify("detected, breaking"), "", {"chat": "breaking"}),
    ("a change of a key is breaking", KEY, notify("breaking"), "", {"chat": "breaking"}),
    ("another change is not", REMOVED, notify("breaking"), "", {}),
    ("grave enough", REMOVED, notify("detected", "severity: warning"), "", {"chat": "detected"}),
    ("not grave enough", CHANGED, notify("detected", "severity: warning"), "", {}),
    ("one of the kinds", CHANGED, notify("detected", "kinds: column.*"), "", {"chat": "detected"}),
    ("none of the kinds", KEY, notify("detected", "kinds: column.*"), "", {}),
    ("kinds are for changes only", PAUSED, notify("paused", "kinds: column.*"), "", {"chat": "paused"}),
    ("a route for a tag", PAUSED, "", notify("paused", "tags: [pii, x]"), {"chat": "paused"}),
    ("a route for another tag", PAUSED, "", notify("paused", "tags: [x]"), BOTH),
    ("a route for a group", PAUSED, "", notify("paused", "groups: [lake]"), {"chat": "paused"}),
    ("a route for another group", PAUSED, "", notify("paused", "groups: [attic]"), BOTH),
    ("a route for names", PAUSED, "", notify("paused", "connections: [s*]"), {"chat": "paused"}),
    ("a route for other names", PAUSED, "", notify("paused", "connections: [b*]"), BOTH),
    ("a route and its own", PAUSED, notify("paused"), notify("paused", to="hook"), BOTH),
    ("switched off: no changes", CHANGED, f"{notify('detected')}, notify_schema_changes: false", "", {}),
    ("switched off: no reviews", WAITS, "notify_schema_changes: false", "", {}),
    ("switched off: pauses all the same", PAUSED, "notify_schema_changes: false", "", BOTH),
    ("switched on: all changes", CHANGED, "notify_schema_changes: true", "", {"chat": "detected", "hook": "detected"}),
    ("switched on: where it tells anything", CHANGED, f"{notify('failed')}, notify_schema_changes: true", "",
     {"chat": "detected"}),
    ("nothing of a connection that is not known", Paused("gone", "why"), "", "", {}),
    ("nothing of what is no news", events.RunStarted("shop", "r-1", "sync"), "", "", {}),
    ("nothing of a connection that stayed paused", RunEnded("shop", "r", "sync", "blocked"), notify("failed"), "", {}),
]  # fmt: skip


@pytest.mark.parametrize(("event", "shop", "rest", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_who_is_told(
    store: Store, tmp_path: Path, event: Event, shop: str, rest: str, expected: dict[str, str]
) -> None:
    assert channels(told(store, tmp_path, event, shop, rest)) == expected


def test_kinds_are_looked_up_for_events_that_name_a_change_only(store: Store, tmp_path: Path) -> None:
    change = ColumnAdded(("public", "t"), Column("a", parse("int64")), 0)
    finding = DetectedChange(
        "k", change.kind, change.table, "a", "added", change_to_dict(change), "apply", "preset", "why"
    )  # fmt: skip
    [review] = store.reviews.record("shop", [finding], "f")
    applied = ChangeApplied("shop", review.id, review.summary, 2)
    for kinds, expected in (("column.added", {"chat": "applied"}), ("table.*", {})):
        assert channels(told(store, tmp_path, applied, notify("applied", f"kinds: {kinds}"))) == expected


def test_a_digest_is_over_all_connections_and_holds_no_pause(store: Store, tmp_path: Path) -> None:
    said = "digest: daily, quiet: 22:00-07:00, timezone: UTC"
    [later] = told(store, tmp_path, CHANGED, notify("detected, paused"), chat=f", {said}")
    assert (later.batch, later.due, later.urgent) == ("", AT.replace(hour=8) + timedelta(days=1), False)
    [now] = told(store, tmp_path, PAUSED, notify("detected, paused"), chat=f", {said}")
    assert (now.batch, now.due, now.urgent, now.severity) == ("shop", AT, True, "error")


def test_every_event_is_meant_to_be_told_or_not() -> None:
    """A new kind of event is to be thought of here."""
    silent = {
        "event", "change.approved", "change.rejected", "change.snoozed", "table.restored", "selection.changed",
        "backfill.cancelled", "table.key_set", "table.cursor_set", "source.upgraded", "table.copy_purged",
        "old_name.retained",
        "old_name.ended", "run.started", "table.loaded", "table.failed", "table.maintained", "connection.deleted",
        "rollout.applied", "rollout.taken_back", "operation.confirmed", "connection.tested",
        "sync.requested", "resync.requested",
        "connection.created", "connection.edited",
    }  # fmt: skip
    told = {
        "change.detected", "change.review_needed", "change.rename_suspected", "change.ignored", "change.waiting",
        "change.reopened", "change.mapped", "change.applied", "change.undone", "connection.paused",
        "connection.resumed", "run.ended", "detection.finished", "detector.disabled", "detector.enabled", "job.dead",
        "rollout.moved", "operation.requested", "freshness.late", "freshness.recovered",
    }  # fmt: skip
    kinds = {kind.type for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, Event)}
    assert kinds == silent | told
    assert meaning(events.Resumed("shop", "me")) is not None


def test_a_rollout_is_told_without_a_connection(store: Store) -> None:
    number = store.events.add(HALTED)
    [logged] = [e for e in store.events.latest() if e.type == "rollout.moved"]
    [line] = lines_of(
        store, [NotifiedEvent(logged, "rollout", "error")], lambda name: "", lambda name, of: f"/{name}/{of}"
    )
    assert (line.tone, line.severity, line.link, line.numbers) == ("stopped", "error", "", (number or logged.number,))
    message = Message("m-1", AT, (line,))
    assert (message.title, message.connections) == ("rollout w-1 halted, by ann", ())
    assert dict(details(line)) == {"why": HALTED.why, "next step": "instep rollout status w-1"}
