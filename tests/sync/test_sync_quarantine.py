"""Quarantined values: replayed once their column takes them, discarded, erased, removed;
never over a newer value, never twice."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow.parquet as pq
import pytest
from into_world import world_into
from quarantine_world import FIRST_DAY, HeldWorld, Row, held_world, note

from instep.errors import Blocked, InstepError
from instep.model import TableRun
from instep.project.sections.tables import TableSettings
from instep.schema.policy.policy import Rule
from instep.schema.selection.selection import Selection, patterns
from instep.stage.conform import QuarantinedValue, digest
from instep.sync.operations import set_key
from instep.sync.quarantine.quarantine import (
    DiscardReport,
    discard,
    erase,
    expire,
    of_row,
    quarantine_places,
    quarantined_counts,
)
from instep.sync.quarantine.rejoin import REPLACED
from instep.sync.quarantine.replay import replay
from lake import PREFIX
from quarantined import entries_of, pending_of
from sync_world import MakeWorld, World, preset

NOTED = note("a")


@pytest.fixture
def held(make_world: MakeWorld) -> HeldWorld:
    return held_world(make_world("sqlite"), "a text", "b text")


# name, the row in the lake, held (original, day), the row afterwards, (replayed, superseded, held)
VALUES: list[tuple[str, Row, list[tuple[str, int]], tuple[Any, ...], tuple[int, int, int]]] = [
    ("fits", {"_instep_meta": NOTED}, [("x", 0)], (1, "x", "b", None), (1, 0, 0)),
    ("newer value", {"a": "new"}, [("x", 0)], (1, "new", "b", None), (0, 1, 0)),
    ("newer NULL", {}, [("x", 0)], (1, None, "b", None), (0, 1, 0)),
    ("same value came", {"a": "x"}, [("x", 0)], (1, "x", "b", None), (1, 0, 0)),
    ("held twice", {"_instep_meta": NOTED}, [("x", 0), ("y", 1)], (1, "y", "b", None), (1, 1, 0)),
    ("held again", {"_instep_meta": NOTED}, [("x", 0), ("x", 1)], (1, "x", "b", None), (1, 0, 0)),
    ("back again", {"_instep_meta": NOTED}, [("x", 0), ("y", 1), ("x", 2)], (1, "x", "b", None), (1, 1, 0)),
    ("other note stays", {"_instep_meta": note("a", "b"), "b": None}, [("x", 0)], (1, "x", None, note("b")), (1, 0, 0)),
    ("note of another", {"_instep_meta": note("b")}, [("x", 0)], (1, None, "b", note("b")), (0, 1, 0)),
    ("deleted row", {"_instep_meta": NOTED, "_instep_deleted": True}, [("x", 0)], (1, "x", "b", None), (1, 0, 0)),
    ("empty text", {"_instep_meta": NOTED}, [("", 0)], (1, "", "b", None), (1, 0, 0)),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("row", "originals", "after", "counts"), [v[1:] for v in VALUES], ids=[v[0] for v in VALUES])
def test_a_value(held: HeldWorld, row: Row, originals: Any, after: Any, counts: Any) -> None:
    held.load({"id": 1, "b": "b", **row}, {"id": 2, "a": "untouched"})
    for original, day in originals:
        held.value(1, original, day=day)
    looked = held.replay(dry_run=True)
    assert held.rows()[0] != after or not looked.updated
    done = held.replay()
    assert (done.replayed, done.superseded, done.held) == counts
    assert (looked.replayed == 0, looked.updated) == (done.replayed == 0, done.updated)
    assert held.rows() == [after, (2, "untouched", None, None)]
    again = held.replay()
    assert (again.replayed, again.superseded, again.updated) == (0, 0, 0)
    assert held.rows()[0] == after


def test_what_does_not_fit_stays_with_the_newest_reason(make_world: MakeWorld) -> None:
    held = held_world(make_world("sqlite"), "a int", "b date")
    held.load({"id": 1, "_instep_meta": note("a", "b")}, {"id": 2, "_instep_meta": NOTED})
    held.value(1, "many")
    held.value(2, "7")
    held.hold(QuarantinedValue('{"id":"1"}', "b", "2026-02-30", "older words"))
    done = held.replay()
    assert done.replayed == 1
    assert done.reasons == {("a", "not a number"): 1, ("b", "not an ISO date and time"): 1}
    assert [r[:2] for r in held.rows()] == [(1, None), (2, 7)]
    assert held.statuses() == {"many": "held", "7": "replayed", "2026-02-30": "held"}
    assert {e.reason for e in pending_of(held.world.context)} == {
        "not a number",
        "not an ISO date and time",
    }


ROWS: list[tuple[str, dict[str, str | None], list[Any], int]] = [
    ("no such row", {"id": "7", "a": "x", "b": None}, [(1, "o", None, None), (7, "x", None, None)], 1),
    ("the row came", {"id": "1", "a": "x", "b": None}, [(1, "o", None, None)], 0),
    ("no key", {"id": None, "a": "x", "b": None}, [(1, "o", None, None)], 0),
    ("key does not fit", {"id": "seven", "a": "x"}, [(1, "o", None, None)], 0),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("row", "after", "inserted"), [r[1:] for r in ROWS], ids=[r[0] for r in ROWS])
def test_a_refused_row(held: HeldWorld, row: Any, after: Any, inserted: int) -> None:
    held.load({"id": 1, "a": "o"})
    held.row(row)
    assert held.replay().inserted == inserted
    assert held.rows() == after
    assert held.replay().inserted == 0
    assert held.world.rows("t", "_instep_deleted", deleted=True) == [(False,)] * len(after)
    state = held.world.destination.schema.state(held.ref)
    assert state is not None
    assert (state.rows, state.cursor) == (len(after), '{"at":1}'), "the cursor stays where the data is"


@pytest.mark.parametrize("mode", ["auto", "cdc"])
@pytest.mark.parametrize("refused", [True, False], ids=["a row", "a value"])
def test_a_log_may_have_told_that_a_refused_row_is_gone(held: HeldWorld, mode: Any, refused: bool) -> None:
    """It told so while the row was in quarantine only, and tells nothing more of it: the table is compared again."""
    held.world.settings["t"] = TableSettings(mode=mode)
    held.load({"id": 1, "_instep_meta": NOTED})
    held.row({"id": "9", "a": "x"}) if refused else held.value(1, "x")
    assert held.replay().replayed == 1
    waiting = [(b.table, b.scope, b.is_required) for b in held.world.store.backfills.waiting("shop")]
    assert waiting == ([(("main", "t"), "table", True)] if refused and mode == "cdc" else [])


def test_of_two_refused_rows_of_one_key_the_newer_one_goes_in(held: HeldWorld) -> None:
    held.load({"id": 1})
    held.row({"id": "7", "a": "old"}, day=0)
    held.row({"id": "7", "a": "new"}, day=1)
    done = held.replay()
    assert (done.replayed, done.superseded) == (1, 1)
    assert held.rows()[1] == (7, "new", None, None)


class Killed(Exception):
    """Stands for a kill at a point: nothing of the process runs after it."""


BATCHED = [
    *((n, "newer", "newer", None) for n in range(10, 20)),
    (50, "new", "new", None),
    (99, "newer", None, None),
]
"""The rows of `many` after all of its batches."""


class TestBatches:
    @pytest.fixture
    def many(self, held: HeldWorld, monkeypatch: pytest.MonkeyPatch) -> HeldWorld:
        """Ten rows with values of both columns, held twice each, one that was refused, one that is newer."""
        monkeypatch.setattr("instep.sync.quarantine.replay.BATCH", 4)
        monkeypatch.setattr("instep.stage.quarantine_store.GROUP", 3)
        held.load(
            *({"id": n, "_instep_meta": note("a", "b")} for n in range(10, 20)), {"id": 50, "a": "new", "b": "new"}
        )
        for n in (*range(10, 20), 50):
            for day, text in enumerate(("old", "newer")):
                held.value(n, text, column="a", day=day)
                held.value(n, text, column="b", day=day)
        for day, text in enumerate(("old", "newer")):
            held.row({"id": "99", "a": text}, day=day)
        return held

    def commits(self, held: HeldWorld, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """How many rows each commit changes or adds, from now on."""
        found, write = list[int](), held.world.destination.write
        update = write.update_rows

        def counted(ref: Any, met: Any, change: Any, commit: Any) -> Any:
            found.append(len(change.rows) + len(change.inserted))
            return update(ref, met, change, commit)

        monkeypatch.setattr(type(write), "update_rows", lambda self, *of: counted(*of))
        return found

    def test_each_is_committed_by_itself(self, many: HeldWorld, monkeypatch: pytest.MonkeyPatch) -> None:
        commits = self.commits(many, monkeypatch)
        looked, done = many.replay(dry_run=True), many.replay()
        assert (done.replayed, done.superseded, done.held) == (21, 25, 0)
        assert looked == done
        assert many.rows() == BATCHED
        assert sum(commits) == 11
        assert len(commits) > 3
        assert set(many.statuses().values()) <= {"replayed", "superseded"}
        assert len(list(many.world.folder.glob("lake/shop/*/quarantine/*"))) == 1, "one file for all"

    def test_entries_of_neighbouring_keys_are_looked_at_together(
        self, many: HeldWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        found, write = list[list[int]](), many.world.destination.write
        lookup = write.lookup_rows

        def noted(ref: Any, keys: Any) -> Any:
            found.append(keys.column("id").to_pylist())
            return lookup(ref, keys)

        monkeypatch.setattr(type(write), "lookup_rows", lambda self, *of: noted(*of))
        many.replay(dry_run=True)
        ranges = sorted((min(ids), max(ids)) for ids in found)
        assert len(ranges) > 3
        assert all(one[1] < other[0] for one, other in pairwise(ranges)), ranges

    @pytest.mark.parametrize("point", ["replay.commit.before", "replay.commit.after", "replay.batch"])
    def test_a_replay_that_is_killed_goes_on(
        self, many: HeldWorld, point: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        commits, reached = self.commits(many, monkeypatch), list[str]()

        def crash(at: str) -> None:
            reached.append(at)
            if reached.count(point) == 2 and at == point:
                raise Killed

        with monkeypatch.context() as patched:
            patched.setattr("instep.sync.quarantine.replay.crashpoint", crash)
            with pytest.raises(Killed):
                replay(many.world.context)
        before = sum(commits)
        assert before
        done = many.replay()
        assert many.rows() == BATCHED
        assert sum(commits) == 11, "no row is changed twice"
        assert done.updated + done.inserted == 11 - before
        assert set(many.statuses().values()) <= {"replayed", "superseded"}

    def test_a_batch_that_fails_leaves_what_was_committed(
        self, many: HeldWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        commits, reached = self.commits(many, monkeypatch), list[str]()

        def fail(at: str) -> None:
            reached.append(at)
            if reached.count("replay.commit.before") == 3:
                raise InstepError("no room")

        with monkeypatch.context() as patched:
            patched.setattr("instep.sync.quarantine.replay.crashpoint", fail)
            [done] = replay(many.world.context)
        assert (done.error, done.updated + done.inserted) == ("no room", sum(commits))
        assert 0 < done.held < 46
        assert done.held == len(pending_of(many.world.context))
        assert many.replay().error == ""
        assert many.rows() == BATCHED

    def test_what_is_old_goes_without_the_rest_being_read_at_once(self, many: HeldWorld) -> None:
        store = many.world.store
        store.runs.record_tables(TableRun(many.run_done()[0], ("main", "t"), "done", invalid_values=3))
        run = replace(store.runs.claim("shop", "apply"), started=FIRST_DAY + timedelta(days=30, hours=12))
        assert expire(many.world.context, run) == 23
        assert set(many.statuses()) == {"newer", '{"id":"99","a":"newer"}'}


def test_every_type_comes_back_as_it_was(make_world: MakeWorld) -> None:
    kinds = {
        "i": ("bigint", "9007199254740993"), "d": ("numeric(12,2)", "1.50"), "f": ("float8", "0.1"),
        "t": ("timestamptz", "2026-01-02T03:04:05.678901Z"), "l": ("timestamp", "2026-01-02T03:04:05"),
        "y": ("date", "2026-01-02"), "o": ("boolean", "true"), "x": ("bytea", "\\x00ff"),
        "u": ("uuid", "00000000-0000-0000-0000-000000000001"), "j": ("jsonb", '{"a": 1}'), "s": ("text", "ünï 🦀"),
    }  # fmt: skip
    world = make_world("postgres")
    held = held_world(world, *(f"{name} {kind}" for name, (kind, _) in kinds.items()))
    held.load({"id": 1, "_instep_meta": note(*kinds)})
    for name, (_, text) in kinds.items():
        held.value(1, text, column=name)
    done = held.replay()
    assert (done.replayed, done.held) == (len(kinds), 0)
    world.run(f"INSERT INTO t VALUES (1, {', '.join(f'$${text}$$' for _, text in kinds.values())})")  # noqa: S608
    assert world.differing() == {}


def test_a_renamed_column_is_found_by_its_id(make_world: MakeWorld) -> None:
    world = make_world("postgres")
    held = held_world(world, "a text")
    held.load({"id": 1, "_instep_meta": NOTED})
    held.value(1, "x")
    world.run("ALTER TABLE t RENAME a TO c", "ALTER TABLE t ADD a text", "ALTER TABLE t RENAME id TO key")
    world.evolve()
    assert held.replay().replayed == 1
    assert [r[:3] for r in held.rows()] == [(1, "x", None)]


def test_tables_that_rows_cannot_be_found_in(make_world: MakeWorld) -> None:
    world = make_world("sqlite")
    world.run("CREATE TABLE t (a text, b text)")
    world.evolve()
    held = HeldWorld(world)
    held.load({"a": None, "_instep_meta": NOTED, "_instep_id": "1"})
    held.hold(QuarantinedValue('{"_instep_id":"1"}', "a", "x", "not a number"))
    [(_, reason)] = held.replay().reasons
    assert "sync --full" in reason


def test_a_paused_table_is_left_and_a_paused_connection_too(held: HeldWorld) -> None:
    held.load({"id": 1, "_instep_meta": NOTED})
    held.value(1, "x")
    world = held.world
    world.store.pauses.pause("shop", "later", table=("main", "t"))
    [done] = replay(world.context)
    assert "main.t is paused: later" in done.error
    assert held.rows()[0][1] is None
    world.store.pauses.pause("shop", "all of it")
    with pytest.raises(Blocked, match="all of it"):
        replay(world.context)
    assert discard(world.context, ["main.t"]).discarded == 1, "privacy does not wait"


def test_a_run_is_recorded(held: HeldWorld) -> None:
    held.load({"id": 1, "_instep_meta": NOTED}, {"id": 2})
    held.value(1, "x")
    held.replay()
    run = held.world.store.runs.latest("shop", kind="replay")
    assert run is not None
    assert run.status == "done"
    [table] = held.world.store.runs.tables(run.id)
    assert (table.read, table.updated, table.invalid_values) == (1, 1, 0)
    assert held.world.events()[-3:] == ["run.started", "table.loaded", "run.ended"]


def test_what_a_dead_run_held_does_not_count(held: HeldWorld) -> None:
    held.load({"id": 1, "_instep_meta": NOTED})
    run = held.world.store.runs.claim("shop", "sync")
    held.value(1, "x", run=run.id)
    assert held.statuses() == {}, "while it runs"
    held.world.store.runs.finish(run, "failed")
    assert held.statuses() == {}
    assert replay(held.world.context) == []
    assert not list(held.world.folder.glob("lake/shop/*/quarantine/*"))


def test_a_file_that_a_task_left_half_written_is_told_and_left(held: HeldWorld) -> None:
    held.load({"id": 1, "_instep_meta": NOTED})
    held.value(1, "x")
    [file] = held.world.folder.glob("lake/shop/*/quarantine/*")
    file.with_name("r-0-half.parquet").write_bytes(b"PAR1")
    [place] = quarantine_places(held.world.context)
    with place.stored(held.world.context) as found:
        assert (found.count, found.broken) == (1, ["r-0-half.parquet"])
    assert held.replay().replayed == 1


class TestDiscard:
    def test_originals_are_gone_and_stay_so(self, held: HeldWorld) -> None:
        held.load({"id": 1, "_instep_meta": NOTED}, {"id": 2, "_instep_meta": NOTED})
        held.value(1, "secret-x", day=0)
        held.value(2, "y", day=0)
        [entry] = [e for e in pending_of(held.world.context) if e.original == "secret-x"]
        assert discard(held.world.context, ids=[entry.id[:8]]) == DiscardReport(1, (entry.id,))
        assert held.statuses() == {None: "discarded", "y": "held"}
        assert b"secret-x" not in b"".join(f.read_bytes() for f in held.world.folder.glob("lake/shop/*/quarantine/*"))
        held.value(1, "secret-x", day=5)
        assert held.statuses() == {None: "discarded", "y": "held"}, "the same value held again"
        held.value(1, "z", day=6)
        assert held.statuses() == {None: "discarded", "y": "held", "z": "held"}
        assert held.replay().updated == 2

    def test_an_older_value_does_not_take_the_place_of_a_discarded_one(self, held: HeldWorld) -> None:
        held.load({"id": 1, "_instep_meta": NOTED})
        held.value(1, "old", day=0)
        held.value(1, "last", day=1)
        [entry] = [e for e in pending_of(held.world.context) if e.original == "last"]
        discard(held.world.context, ids=[entry.id])
        done = held.replay()
        assert (done.updated, done.superseded) == (0, 1)
        assert held.rows() == [(1, None, None, NOTED)]

    def test_a_discarded_older_value_does_not_stand_in_the_way_of_a_newer_one(self, held: HeldWorld) -> None:
        held.load({"id": 1, "_instep_meta": NOTED})
        held.value(1, "old", day=0)
        held.value(1, "last", day=1)
        [entry] = [e for e in pending_of(held.world.context) if e.original == "old"]
        discard(held.world.context, ids=[entry.id])
        assert held.replay().updated == 1
        assert held.rows() == [(1, "last", None, None)]

    @pytest.mark.parametrize("ids", [["q-zzz"], ["q-"]], ids=["none", "several"])
    def test_an_id_that_is_not_clear(self, held: HeldWorld, ids: list[str]) -> None:
        held.load({"id": 1})
        held.value(1, "x")
        held.value(1, "y")
        with pytest.raises(InstepError, match="in quarantine"):
            discard(held.world.context, ids=ids)
        assert len(held.statuses()) == 2

    def test_an_unknown_table(self, held: HeldWorld) -> None:
        with pytest.raises(InstepError, match=r"main\.nothing"):
            discard(held.world.context, ["main.nothing"])


def _erase_row(held: HeldWorld, key: str) -> int:
    return erase(held.world.context, "main.t", of_row(held.world.context, "main.t", {"id": key}))


def test_a_row_is_erased_by_its_key(held: HeldWorld) -> None:
    held.load({"id": 1, "_instep_meta": NOTED}, {"id": 2})
    held.value(1, "x", day=0)
    held.value(1, "y", day=1)
    held.replay()
    held.row({"id": "1", "a": "z"})
    held.value(2, "other")
    assert _erase_row(held, "1") == 3
    assert held.statuses() == {"other": "held"}
    assert _erase_row(held, "1") == 0


COLUMN, TABLE = "ALTER TABLE t RENAME a TO c", "ALTER TABLE t RENAME TO u"
NAMES = {
    "a column's, which waits": ((COLUMN, "public.t.c"), False),
    "a column's old one, while it waits": ((COLUMN, "public.t.a"), False),
    "a column's": ((COLUMN, "public.t.c"), True),
    "a column's old one": ((COLUMN, "public.t.a"), True),
    "a table's, which waits": ((TABLE, "public.u.a"), False),
    "a table's": ((TABLE, "public.u.a"), True),
}
"""(the rename, what is hidden), and whether the rename is accepted."""


class TestPrivacy:
    def test_a_column_that_is_switched_off_or_hashed_later(self, held: HeldWorld) -> None:
        held.load({"id": 1, "_instep_meta": note("a", "b")})
        held.value(1, "clear-a", column="a")
        held.value(1, "clear-b", column="b")
        held.row({"id": "9", "a": "clear-a", "b": "clear-b"})
        off, on = patterns(["main.t.a"]), patterns(["main.t.b"])
        held.world.selection = Selection(exclude_columns=off, hashed=on)
        shown = json.dumps([e.original for e in entries_of(held.world.context)])
        assert "clear-" not in shown
        done = held.replay()
        assert (done.updated, done.inserted) == (0, 0)
        files = list(held.world.folder.glob("lake/shop/*/quarantine/*"))
        assert b"clear-" not in b"".join(f.read_bytes() for f in files)

    @pytest.mark.parametrize("hides", ["hashed", "exclude_columns"])
    @pytest.mark.parametrize(("names", "accepted"), list(NAMES.values()), ids=list(NAMES))
    def test_a_column_that_has_another_name_by_now(
        self, make_world: MakeWorld, names: tuple[str, ...], accepted: bool, hides: str
    ) -> None:
        """Loads go by each of its names; so does what is shown of it, and what is put into rows."""
        rename, pattern = names
        world = make_world()
        held = held_world(world, "a text", "b text")
        held.load({"id": 1, "b": "b", "_instep_meta": NOTED})
        held.value(1, "clear-a")
        held.row({"id": "9", "a": "clear-a", "b": None})
        world.policy = preset("allow_all" if accepted else "block_all")
        world.run(rename)
        if accepted:
            world.evolve()
        else:
            world.detect()
        held.name = "u" if accepted and rename.endswith("u") else "t"
        world.selection = Selection(**{hides: patterns([pattern])})
        context = world.context if accepted else replace(world.context, before=world.selection)
        shown = json.dumps([e.original for e in entries_of(context)])
        assert "clear-" not in shown
        [done] = replay(context)
        assert (done.updated, done.error) == (0, "")
        assert "clear-" not in str(held.rows())
        assert [row[1] for row in held.rows()] == [None] * len(held.rows()), "no hash of it in a column in clear either"
        discard(context, ids=[next(e.id for e in pending_of(context))])
        files = list(world.folder.glob("lake/shop/*/quarantine/*"))
        assert b"clear-" not in b"".join(f.read_bytes() for f in files)

    def test_a_value_that_looks_like_a_hash_is_none(self, held: HeldWorld) -> None:
        """A token of 64 hexadecimal digits is hashed, once; what was hashed when it came stays as it is."""
        token, came = "ab" * 32, digest("secret", held.world.context.salt)
        held.load({"id": 1, "_instep_meta": note("a", "b")}, {"id": 2, "_instep_meta": note("b")})
        held.value(1, token, column="b")
        held.row({"id": token, "a": "x", "b": token})
        held.value(2, came, column="b", hashed="b")
        held.world.selection = Selection(hashed=patterns(["main.t.b", "main.t.id"]))
        hashed = digest(token, held.world.context.salt)
        for _ in range(3):
            texts = json.dumps([(e.key, e.original) for e in entries_of(held.world.context)])
            assert token not in texts
            assert (texts.count(hashed), texts.count(came)) == (4, 1)
            held.replay()  # writes the files again
            discard(held.world.context, until=datetime(2026, 1, 1, tzinfo=UTC))
        run = held.world.store.runs.claim("shop", "apply")
        [place] = quarantine_places(held.world.context, run=run)
        with place.stored(held.world.context) as stored:
            stored.put_together(run.id, 0)
        files = b"".join(f.read_bytes() for f in held.world.folder.glob("lake/shop/*/quarantine/*"))
        assert token.encode() not in files

    def test_of_entries_from_before_it_was_recorded_what_looks_like_a_hash_counts_as_one(self, held: HeldWorld) -> None:
        held.load({"id": 1, "_instep_meta": note("b")})
        held.value(1, "ab" * 32, column="b")
        [file] = held.world.folder.glob("lake/shop/*/quarantine/*")
        pq.write_table(pq.read_table(file).drop_columns(["digest", "hashed"]), file)
        held.world.selection = Selection(hashed=patterns(["main.t.b"]))
        for _ in range(2):
            assert [e.original for e in entries_of(held.world.context)] == ["ab" * 32]
            held.replay()

    def test_a_hashed_key_is_erased_by_what_a_person_knows(self, held: HeldWorld) -> None:
        held.load({"id": 1})
        held.value("ann@example.org", "x")
        held.world.selection = Selection(hashed=patterns(["main.t.id"]))
        [entry] = pending_of(held.world.context)
        assert "ann" not in entry.key
        assert _erase_row(held, "ann@example.org") == 1


def test_what_is_old_goes_at_the_first_sync_of_a_day(held: HeldWorld) -> None:
    held.load({"id": 1, "_instep_meta": NOTED})
    held.value(1, "old", day=0)
    held.value(1, "kept", day=1)
    held.value(1, "old but held again", day=0)
    held.value(1, "old but held again", day=2)
    store = held.world.store
    store.runs.record_tables(TableRun(held.run_done()[0], ("main", "t"), "done", invalid_values=3))
    run = replace(store.runs.claim("shop", "apply"), started=FIRST_DAY + timedelta(days=31))
    assert expire(held.world.context, run) == 1
    assert set(held.statuses()) == {"kept", "old but held again"}
    assert len(list(held.world.folder.glob("lake/shop/*/quarantine/*"))) == 1, "the files of a table are put together"
    assert expire(held.world.context, run) == 0


def test_a_held_retype_is_approved_and_its_values_come_back(world: World) -> None:
    world.run("CREATE TABLE t (id int PRIMARY KEY, a int)", "INSERT INTO t VALUES (1, 5), (2, 6), (3, 7)")
    world.sync()
    world.run("ALTER TABLE t ALTER a TYPE varchar(9)", "UPDATE t SET a = 'x' WHERE id = 2")
    world.sync()
    world.sync()
    [entry], [review] = pending_of(world.context), world.store.reviews.find("shop", ("open",))
    assert (entry.original, entry.key, entry.column, entry.table) == ("x", '{"id":"2"}', "a", "public.t")
    assert (entry.change, entry.rule) == (review.id, review.rule)
    [done] = replay(world.context)
    assert (done.held, done.updated) == (1, 0)
    world.answer("approved")
    world.evolve()
    assert world.rows("t") == [(1, "5"), (2, None), (3, "7")]
    [done] = replay(world.context)
    assert done.updated == 1
    assert world.rows("t", "a", f"{PREFIX}meta") == [("5", None), ("7", None), ("x", None)]
    assert world.differing() == {}
    report = world.sync()
    assert [(t.updated, t.invalid_values) for t in report.tables] == [(0, 0)]


def test_waiting_entries_are_counted_once_while_the_files_are_the_same(held: HeldWorld) -> None:
    context = held.world.context
    held.load({"id": 1, "_instep_meta": NOTED})
    assert quarantined_counts(context) == {}
    held.value(1, "x")
    held.value(2, "y")
    assert quarantined_counts(context) == {held.path: 2}
    [place] = quarantine_places(context)
    [((uri, files), count)] = context.store.quarantines.of(context.name).items()
    assert (uri, count) == (place.target.quarantine, 2)
    context.store.quarantines.save(context.name, uri, files, 7)
    assert quarantined_counts(context) == {held.path: 7}, "the files are those that were counted"
    held.value(3, "z")
    assert quarantined_counts(context) == {held.path: 3}
    discard(context, [held.path])
    assert quarantined_counts(context) == {}


def test_a_count_without_a_file_that_cannot_be_read_is_not_recorded(held: HeldWorld) -> None:
    context = held.world.context
    held.load({"id": 1, "_instep_meta": NOTED})
    held.value(1, "x")
    held.value(2, "y")
    [place] = quarantine_places(context)
    broken = Path(unquote(urlsplit(place.target.quarantine).path)) / place.files()[0]
    whole = broken.read_bytes()
    broken.write_bytes(whole[:20])
    assert quarantined_counts(context) == {held.path: 1}
    broken.write_bytes(whole)
    assert quarantined_counts(context) == {held.path: 2}


AGAIN: dict[str, tuple[str, ...]] = {
    "same names": ("DROP TABLE t", "CREATE TABLE t (id int PRIMARY KEY, a varchar(20), b varchar(20))"),
    "other names": ("DROP TABLE t", "CREATE TABLE t (id int PRIMARY KEY, c varchar(20))"),
    "rebuilt": (),
}


@pytest.mark.sampled
@pytest.mark.parametrize("how", AGAIN)
@pytest.mark.parametrize("destination", ["iceberg", "delta", "duckdb", "postgres"])
def test_entries_of_the_table_before_are_closed(
    make_world: MakeWorld, request: pytest.FixtureRequest, destination: str, how: str
) -> None:
    """Their rows are those of another table, which nothing would take out of this one."""
    held = held_world(world_into(make_world, request, "postgres", destination), "a varchar(20)", "b varchar(20)")
    world = held.world
    world.settings["t"] = TableSettings(deletes="ignore")
    world.policy = preset("allow_all", Rule(("table.replaced",), "apply"))
    world.run("INSERT INTO t VALUES (1, NULL, 'b')")
    world.sync()
    held.value(1, "x")
    held.row({"id": "7", "a": "y", "b": None})
    held.value(1, "let go", column="b")
    discard(world.context, ids=[e.id for e in entries_of(world.context) if e.original == "let go"])
    if how == "rebuilt":
        world.run("ALTER TABLE t DROP CONSTRAINT t_pkey", "ALTER TABLE t ADD PRIMARY KEY (id, b)")
        set_key.carry_out(world.context, set_key.prepare(world.context, "public.t", ("id", "b"), "rebuild"))
        world.sync()
    else:
        world.run(*AGAIN[how], "INSERT INTO t (id) VALUES (2)")
        world.sync()
    rows = held.rows()
    assert len(rows) == 1
    for _ in range(2):
        looked = held.replay(dry_run=True)
        assert (looked.superseded, looked.replaced, looked.replayed, looked.held) == (2, 2, 0, 0)
    done = held.replay()
    assert (done.superseded, done.replaced, done.updated, done.inserted, done.held) == (2, 2, 0, 0, 0)
    assert held.rows() == rows
    closed = {e.reason for e in entries_of(world.context) if e.status == "superseded"}
    assert closed == {REPLACED}
    assert (quarantined_counts(world.context), held.replay().replaced) == ({}, 0)


def test_an_entry_of_the_new_table_goes_into_it_beside_those_of_the_one_before(make_world: MakeWorld) -> None:
    held = held_world(make_world("postgres"), "a varchar(20)", "b varchar(20)")
    held.world.policy = preset("allow_all", Rule(("table.replaced",), "apply"))
    held.world.sync()
    held.row({"id": "7", "a": "old", "b": None})
    held.world.run(*AGAIN["same names"], "INSERT INTO t VALUES (1)")
    held.world.sync()
    held.row({"id": "7", "a": "new", "b": None}, day=1)
    held.row({"id": "8", "a": "new", "b": None}, day=1)
    done = held.replay()
    assert (done.replayed, done.superseded, done.replaced) == (2, 1, 1)
    assert [row[:2] for row in held.rows()] == [(1, None), (7, "new"), (8, "new")]


@pytest.mark.parametrize("change", ["ALTER TABLE t DROP COLUMN a", "ALTER TABLE t ALTER COLUMN a TYPE text"])
def test_a_changed_table_is_no_other_one(make_world: MakeWorld, change: str) -> None:
    held = held_world(make_world("postgres"), "a varchar(20)", "b varchar(20)")
    held.world.sync()
    held.row({"id": "7", "a": "x", "b": None})
    held.world.run(change)
    held.world.sync(again=1)
    assert (held.replay().replayed, held.replay().replaced) == (1, 0)


def test_a_full_refresh_is_the_same_table(held: HeldWorld) -> None:
    held.world.sync()
    held.row({"id": "7", "a": "x", "b": None})
    held.world.sync(full=True)
    assert (held.replay().replayed, held.rows()) == (1, [(7, "x", None, None)])
