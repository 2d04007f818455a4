"""Small records of the store: what is answered before there is any, on the edge of a time, and after a repetition."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import func, select
from store_world import START, Clock

from instep.errors import Fenced, InstepError, ProjectError
from instep.events import ChangeDetected, ChangeWaiting, Event, RenameSuspected
from instep.model import DetectorState, Scheduled
from instep.schema.planning.projection import LoadedColumn, LoadedRules
from instep.schema.selection.overrides import Switch
from instep.store.engine.database import Database
from instep.store.engine.keyring import INSECURE, VARIABLE, add_key, has_keys, keyring, new_key, parse
from instep.store.engine.owner import Owner, this_process
from instep.store.history.recorded_event import LoggedEvent
from instep.store.history.totals import Counted, total
from instep.store.server.audit import RETENTION
from instep.store.store import Store
from instep.store.tables.catalogs import connections
from instep.store.tables.columns import Utc
from instep.store.work.jobs import FIRST, LONGEST, SPREAD, backoff
from instep.store.work.runs import Heartbeat
from instep.store.work.schedules import SourceInspection

T = ("public", "t")
U = ("public", "u")
MINUTE = timedelta(minutes=1)


def test_a_place_in_the_log_belongs_to_one_at_a_time(any_store: Store, clock: Clock) -> None:
    positions = any_store.positions
    assert (positions.at("mail"), positions.claim("mail", 60)) == (0, 0)
    assert positions.claim("mail", 60) is None
    assert positions.claim("other", 60) == 0
    positions.advance("mail", 7)
    clock.forward(59.9)
    assert positions.claim("mail", 60) is None
    clock.forward(0.1)
    assert positions.claim("mail", 60) == positions.at("mail") == 7
    positions.leave("mail")
    assert positions.claim("mail", 60) == 7
    positions.leave("mail", 5)
    clock.forward(4)
    assert positions.claim("mail", 60) is None
    clock.forward(1)
    assert positions.claim("mail", 60) == 7
    assert any_store.totals.all() == {}


def test_events_are_counted_once_whatever_the_batch(any_store: Store) -> None:
    any_store.events.add(*(ChangeDetected("shop", f"c-{n}", "column.added", "x") for n in range(7)))
    a, high = total("changes", kind="added", über="ja"), total("last", connection="shop")
    seen: list[int] = []

    def count(events: Any) -> Counted:
        seen.append(len(events))
        return Counted({a: float(len(events))}, {high: float(10 - len(seen))})

    assert any_store.totals.fold(count, 3) == 7
    assert (seen, any_store.totals.fold(count, 3), len(seen)) == ([3, 3, 1], 0, 3)
    assert any_store.totals.all() == {a: 7.0, high: 9.0}
    any_store.events.add(ChangeDetected("shop", "c-8", "column.added", "x"))
    assert any_store.totals.fold(count) == 1
    assert any_store.totals.all() == {a: 8.0, high: 9.0}


def test_a_count_that_fails_counts_nothing(store: Store) -> None:
    store.events.add(ChangeDetected("shop", "c-1", "column.added", "x"))

    def fails(events: Any) -> Counted:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        store.totals.fold(fails)
    assert store.totals.all() == {}
    assert store.totals.fold(lambda events: Counted({total("n"): 1.0})) == 1


def test_the_first_cursor_of_a_column_stands(any_store: Store) -> None:
    marks, a, b = any_store.watermarks, ("16385", "1"), ("16385", "2")
    assert marks.of("shop") == {}
    marks.add("shop", {})
    marks.add("shop", {a: '"1"'})
    marks.add("shop", {a: '"2"', b: '"2"'})
    assert (marks.of("shop"), marks.of("twin")) == ({a: '"1"', b: '"2"'}, {})
    marks.forget("shop", a)
    marks.forget("twin", b)
    marks.add("shop", {a: '"3"'})
    assert marks.of("shop") == {a: '"3"', b: '"2"'}


def look(source: str = "pg", settings: str = "s1", after: int = 0, **changes: Any) -> SourceInspection:
    return replace(SourceInspection(source, settings, "shop", "f1", START + after * MINUTE), **changes)


LOOKS: list[tuple[str, list[SourceInspection], SourceInspection | None]] = [
    ("none", [], None),
    ("of another source", [look(source="my")], None),
    ("under other settings", [look(settings="s0")], None),
    ("one", [look()], look()),
    ("a later one", [look(), look(after=1, connection="twin", fingerprint="f2")],
     look(after=1, connection="twin", fingerprint="f2")),
    ("one that began earlier comes too late", [look(after=1), look(fingerprint="f0")], look(after=1)),
    ("at the same time the last counts", [look(), look(fingerprint="f2")], look(fingerprint="f2")),
    ("other settings take its place", [look(), look(settings="s0", after=1)], None),
]  # fmt: skip


@pytest.mark.parametrize(("noted", "expected"), [c[1:] for c in LOOKS], ids=[c[0] for c in LOOKS])
def test_the_last_look_at_a_source(
    store: Store, noted: list[SourceInspection], expected: SourceInspection | None
) -> None:
    for one in noted:
        store.inspections.note(one)
    assert store.inspections.last("pg", "s1") == expected


def test_a_detector_switches_itself_off_for_its_first_reason(any_store: Store, clock: Clock) -> None:
    detectors = any_store.detectors
    any_store.connections.put("shop", destination="d")
    assert detectors.get("shop") == DetectorState("shop")
    assert not detectors.enable("shop")
    assert detectors.disable("shop", "a table is gone")
    clock.forward(60)
    assert not detectors.disable("shop", "another one")
    assert detectors.get("shop") == DetectorState("shop", "a table is gone", START)
    assert detectors.disabled(["shop", "twin"]) == {"shop": "a table is gone"}
    assert detectors.enable("shop")
    assert (detectors.get("shop"), detectors.disabled(["shop"])) == (DetectorState("shop"), {})


@pytest.mark.parametrize(("seconds", "may"), [(0, False), (599.9, False), (600, True), (-1, True)])
def test_an_error_sets_off_one_detection_in_a_while(store: Store, clock: Clock, seconds: float, may: bool) -> None:
    store.connections.put("shop", destination="d")
    assert store.detectors.may_trigger("shop", 10 * MINUTE)
    clock.forward(seconds)
    assert store.detectors.may_trigger("shop", 10 * MINUTE) is may
    at = START + timedelta(seconds=seconds if may else 0)
    assert store.detectors.get("shop").error_at == at


SETUPS: list[tuple[str, list[tuple[str, str]], str, list[str]]] = [
    ("nothing is known", [], "", []),
    ("a run that goes well is no news", [("record_result", "")], "", []),
    ("a run that fails is", [("record_result", "no login")], "no login", ["no login"]),
    ("once", [("record_result", "no login"), ("record_result", "no login")], "no login", ["no login"]),
    ("it works again", [("record_result", "no login"), ("record_result", "")], "", ["no login", ""]),
    ("each test is told", [("tested", ""), ("tested", "")], "", ["", ""]),
    ("a test after a run", [("record_result", "a"), ("tested", "b"), ("record_result", "")], "", ["a", "b", ""]),
]


@pytest.mark.parametrize(("calls", "broken", "told"), [c[1:] for c in SETUPS], ids=[c[0] for c in SETUPS])
def test_whether_a_set_up_works(store: Store, calls: list[tuple[str, str]], broken: str, told: list[str]) -> None:
    store.connections.put("shop", destination="d")
    for name, error in calls:
        getattr(store.setups, name)("shop", error)
    assert store.setups.broken(["shop", "twin"]) == ({"shop": broken} if broken else {})
    events = store.events.after(connection="shop", types=["connection.tested"])
    assert [e.data["error"] for e in events] == told


def test_backfills_of_one_object_differ_by_what_they_read(any_store: Store) -> None:
    fills = any_store.backfills
    wanted: list[dict[str, Any]] = [{}, {"column": "a"}, {"column": "a", "scope": "since"}, {"column": "b"}]
    assert [fills.request("shop", T, **w) for w in (*wanted, *wanted)] == [True] * 4 + [False] * 4
    assert [(f.column, f.scope) for f in fills.waiting("shop")] == [
        ("", "table"), ("a", "column"), ("a", "since"), ("b", "column"),
    ]  # fmt: skip
    assert fills.request("shop", U)
    assert fills.waiting("twin") == []


def test_a_backfill_ends_once(store: Store, clock: Clock) -> None:
    fills = store.backfills
    for column in ("a", "b", "c"):
        fills.request("shop", T, column=column, change="c-1", why="new")
    a, b, c = (f.number for f in fills.waiting("shop"))
    fills.start(a, "r-1")
    fills.start(a, "r-2")
    clock.forward(60)
    fills.done(a)
    fills.cancel(b)
    clock.forward(60)
    for number in (a, b):
        fills.start(number, "r-3")
        fills.done(number)
        fills.cancel(number)
    assert [(f.status, f.run, f.ended) for f in fills.find("shop")] == [
        ("done", "r-2", START + MINUTE), ("cancelled", "", START + MINUTE), ("requested", "", None),
    ]  # fmt: skip
    assert [f.number for f in fills.find("shop", ["requested", "done"])] == [a, c]
    assert not fills.request("shop", T, column="c")
    assert fills.request("shop", T, column="a")


def test_what_comes_again_fires_once(any_store: Store) -> None:
    schedules = any_store.schedules
    first = Scheduled("shop", "sync", "every 60", next_due=START, options={"full": True})
    later = Scheduled("shop", "detect", "0 3 * * *", "Europe/Oslo", next_due=START + MINUTE)
    never = Scheduled("twin", "sync", "every 60")
    schedules.put()
    schedules.put(first, later, never)
    assert schedules.all() == [later, first, never]
    assert (schedules.all("twin"), schedules.due(START)) == ([never], [first])
    assert schedules.due(START + MINUTE) == [first, later]
    assert schedules.due(START + MINUTE, limit=1) == [first]
    assert schedules.advance(first, START + 2 * MINUTE)
    assert not schedules.advance(first, START + 3 * MINUTE)
    moved = replace(first, next_due=START + 2 * MINUTE, last_due=START)
    assert schedules.all("shop") == [later, moved]
    schedules.put(replace(later, spec="every 5"))
    schedules.drop([("shop", "sync"), ("twin", "detect")])
    assert schedules.all() == [replace(later, spec="every 5"), never]
    assert not schedules.advance(moved, None)


def test_an_answer_is_given_again_for_a_day(any_store: Store, clock: Clock) -> None:
    answers = any_store.idempotency
    assert answers.find("ann", "t-1") is None
    answers.store_answer("ann", "t-1", b'{"password":"hunter2"}', 202, {"run": "r-1"})
    answers.store_answer("bo", "t-1", b"other", 200, {})
    found = answers.find("ann", "t-1")
    assert found is not None
    assert (found.status, found.body) == (202, {"run": "r-1"})
    assert found.answers(b'{"password":"hunter2"}')
    assert not found.answers(b'{"password":"hunter3"}')
    assert "hunter2" not in repr(found)
    clock.forward(RETENTION.total_seconds() - 1)
    assert answers.find("ann", "t-1") == found
    clock.forward(1)
    assert answers.find("ann", "t-1") is None
    answers.store_answer("ann", "t-1", b"anew", 200, {"run": "r-2"})
    again = answers.find("ann", "t-1")
    assert again is not None
    assert again.body == {"run": "r-2"}


def test_a_filter_stays_until_another_is_said_and_follows_its_table(store: Store) -> None:
    loaded, columns = store.loaded, (LoadedColumn("id"),)
    some, more = LoadedRules("id > 1", "public.t"), LoadedRules("id > 2", "public.t")
    loaded.save("shop", {T: columns, U: columns}, {T: some})
    loaded.save("shop", {T: columns, U: columns})
    assert loaded.filters("shop") == {T: some}
    loaded.move("shop", {T: U, U: T})
    assert loaded.filters("shop") == {U: some}
    loaded.save("shop", {T: columns, U: columns}, {T: more, U: LoadedRules()})
    assert (loaded.filters("shop"), loaded.filters("twin")) == ({T: more}, {})


def test_cursors_are_forgotten_one_by_one(any_store: Store) -> None:
    any_store.cursors.save("shop", {}, run="r", fence=1)
    any_store.cursors.save("shop", {T: "1", U: "2"}, run="r", fence=2)
    any_store.cursors.forget("shop", T)
    any_store.cursors.save("shop", {T: "3"}, run="r-0", fence=1)
    with pytest.raises(Fenced, match=r"later run has loaded public\.u"):
        any_store.cursors.save("shop", {T: "4", U: "4"}, run="r-1", fence=1)
    assert {t: c.cursor for t, c in any_store.cursors.of("shop").items()} == {T: "3", U: "2"}


def test_switches_are_forgotten_and_the_last_of_several_counts(any_store: Store) -> None:
    a, b = Switch("main", "t", "a", enabled=False), Switch("main", "t", "b", enabled=False)
    any_store.switches.set("shop", [], "ann")
    any_store.switches.set("shop", [a, b, replace(a, enabled=True)], "ann")
    assert any_store.switches.of("shop") == [replace(a, enabled=True), b]
    any_store.switches.forget("twin", [a])
    any_store.switches.forget("shop", [a, Switch("main", "t")])
    assert any_store.switches.of("shop") == [b]


EVENTS: list[Event] = [
    ChangeDetected("shop", "c-1", "column.added", "größe \0"),
    ChangeWaiting("shop", "c-1", "x", "why", 1, 2),
    RenameSuspected("shop", "c-1", "x", 0.75, ("a", "b")),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: e.type)
def test_a_logged_event_is_the_one_that_happened(store: Store, event: Event) -> None:
    store.events.add()
    store.events.add(event)
    (found,) = store.events.after()
    assert found.event == event
    assert (found.at, found.number, store.events.last_number()) == (START, 1, 1)


def test_an_event_of_a_later_version_is_told() -> None:
    with pytest.raises(InstepError, match="event 7 has the unknown type moonshot") as told:
        _ = LoggedEvent(7, "shop", START, "moonshot", {}).event
    assert told.value.hint == "update instep"


@given(st.integers(-5, 10_000), st.text(max_size=5))
def test_how_long_a_job_waits(attempt: int, name: str) -> None:
    base = min(FIRST * 2.0 ** (min(max(attempt, 1), 12) - 1), LONGEST)
    wait = backoff(attempt, name).total_seconds()
    assert base * (1 - SPREAD) - 1e-6 <= wait <= base * (1 + SPREAD) + 1e-6
    assert backoff(attempt, name).total_seconds() == wait


def test_jobs_that_failed_together_do_not_come_back_together() -> None:
    assert len({backoff(3, f"job-{n}") for n in range(100)}) == 100


def test_who_runs() -> None:
    me = this_process()
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert (me.pid, me.is_ended) == (os.getpid(), False)
    assert Owner(me.host, ended.pid).is_ended
    assert not Owner("elsewhere", ended.pid).is_ended
    assert not replace(me, started="").is_ended
    if me.started:
        assert replace(me, started=me.started + "1").is_ended


def test_a_heartbeat_tells_that_the_run_was_taken_over(url: str) -> None:
    with Store(url, lease=timedelta(milliseconds=30)) as store:
        run = store.runs.claim("shop", "sync")
        with Heartbeat(store.runs, run) as beat:
            beat.check()
            store.runs.finish(run, "failed")
            beat._thread.join(300)
            assert beat.is_lost
            with pytest.raises(Fenced, match=f"{run.id} was taken over"):
                beat.check()


@given(st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1)), st.integers(-23 * 60, 23 * 60))
def test_a_moment_is_kept_in_utc(moment: datetime, minutes: int) -> None:
    from sqlalchemy.dialects import postgresql, sqlite

    aware = moment.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    for dialect in (sqlite.dialect(), postgresql.dialect()):
        kept = Utc().process_bind_param(aware, dialect)
        found = Utc().process_result_value(kept, dialect)
        assert found == aware
        assert found is not None
        assert found.tzinfo is UTC
    assert (
        Utc().process_bind_param(None, sqlite.dialect()) is Utc().process_result_value(None, sqlite.dialect()) is None
    )


def test_what_is_called_after_a_commit_is_not_called_without_it(url: str, store: Store, clock: Clock) -> None:
    database, said = Database(url, clock), list[str]()
    with database.write() as outer:
        database.after_commit(lambda: said.append("outer"))
        with pytest.raises(Fenced), database.write():
            _fail_after(database, said)
        assert (said, outer.execute(select(func.count()).select_from(connections)).scalar()) == ([], 0)
    with pytest.raises(Fenced), database.write():
        _fail_after(database, said)
    assert said == ["outer"]
    database.close()


def _fail_after(database: Database, said: list[str]) -> None:
    database.after_commit(lambda: said.append("never"))
    raise Fenced


ids = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", fullmatch=True)


@given(st.lists(ids.filter(lambda i: i != INSECURE), min_size=1, max_size=4, unique=True), st.sampled_from(" \n\t"))
def test_keys_are_read_as_they_are_made(names: list[str], between: str) -> None:
    found = keyring(Path("nowhere"), variables={VARIABLE: between.join(map(new_key, names))})
    assert (list(found.keys), found.current, found.insecure) == (names, names[0], False)
    assert all(len(found.key(name)) == 32 for name in names)
    assert not any(str(key) in repr(found) for key in found.keys.values())


GOOD = new_key("k1")
BAD = [
    "k1", "k1:", ":" + GOOD.partition(":")[2], "k1:AAAA", GOOD + "=", GOOD[:-4] + "é===", f"{GOOD} {GOOD}",
    "-k:" + GOOD[3:], INSECURE + GOOD[2:], f"{new_key('k2')} {GOOD[:-1]}",
]  # fmt: skip


@pytest.mark.parametrize("text", BAD, ids=range(len(BAD)))
def test_what_is_no_key_is_named_by_its_place_and_not_repeated(text: str) -> None:
    with pytest.raises(ProjectError, match=r"^here: key number [12] ") as refused:
        parse(text, "here")
    assert GOOD.partition(":")[2][:-4] not in str(refused.value)


def test_the_newest_key_of_a_file_is_the_current_one(tmp_path: Path) -> None:
    file = tmp_path / ".instep" / "keys"
    assert not has_keys(tmp_path, {})
    assert [add_key(file), add_key(file), add_key(file, "mine"), add_key(file)] == ["k1", "k2", "mine", "k3"]
    assert list(keyring(tmp_path, variables={}).keys) == ["k3", "mine", "k2", "k1"]
    assert (has_keys(tmp_path, {}), file.stat().st_mode & 0o777) == (True, 0o600)
    before = file.read_text()
    for id in ("k1", INSECURE, "no id"):
        with pytest.raises(ProjectError):
            add_key(file, id)
    assert file.read_text() == before
    assert sorted(p.name for p in file.parent.iterdir()) == [".gitignore", "keys"]
    file.chmod(0o640)
    with pytest.raises(ProjectError, match="others may read"):
        keyring(tmp_path, variables={})


def test_a_folder_that_may_not_be_looked_into_hides_keys(tmp_path: Path) -> None:
    (tmp_path / ".instep").mkdir()
    assert not has_keys(tmp_path, {})
    (tmp_path / ".instep").chmod(0)
    me = os.geteuid()
    try:
        if me == 0:
            os.seteuid(65534)  # what root may look into is hidden from others; the folders above may be, too
        assert has_keys(tmp_path, {})
    finally:
        os.seteuid(me)
        (tmp_path / ".instep").chmod(0o700)
