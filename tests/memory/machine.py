"""The rules of the stateful test: what happens to a database, a connection and its process, in any order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from instep.control import pauses
from instep.control.reviews import answer
from instep.errors import Blocked, InstepError
from instep.model import Review
from instep.project.sections.tables import TableSettings
from instep.schema.catalog.catalog import Column
from instep.schema.catalog.types import DataType, Int, String, parse
from instep.schema.policy.policy import Policy
from instep.schema.policy.presets import PRESETS
from instep.schema.selection.selection import patterns
from instep.sync.detection.detect import detect_if_changed, record
from instep.sync.operations import set_key as rekey
from instep.sync.progress import SyncReport
from instep.sync.quarantine.replay import replay
from instep.sync.schema_changes import declare_column_rename, declare_table_rename
from instep.sync.schema_changes.backfill_plan import check_columns
from instep.sync.schema_changes.evolve import evolve, preview
from instep.sync.schema_changes.undo import apply_undo, find, prepare
from memory import promises
from memory.database import MemoryTable
from memory.held import BY_HAND
from memory.world import NAME, World

T = TypeVar("T")
N = st.integers(0, 11)
TYPES = tuple(map(parse, ("int32", "int64", "string(5)", "string", "decimal(10,2)")))
WIDER = {"int32": "int64", "string(5)": "string", "decimal(10,2)": "decimal(12,2)"}
COLUMNS, TABLES = tuple("abcdef"), ("t", "u", "k", "v", "w")
SETTINGS = (
    TableSettings(),
    TableSettings(deletes="hard"),
    TableSettings(mode="full_refresh"),
    TableSettings(history=True),
)
CURSORED = "u"
"""The table with a cursor: every change of a row moves it, as users promise who name one."""


def value(kind: DataType, n: int) -> Any:
    """One of a few values of a type, some of which fit other types."""
    match kind:
        case Int(bits):
            return n if bits == 32 or n % 3 else 2**40 + n
        case String():
            return f"{n}" if n % 3 else f"x{n}"
    return Decimal(n) / 4


def converted(kind: DataType) -> Callable[[Any], Any]:
    """What a database makes of a value when a column gets another type; it puts NULL where it has none."""

    def convert(old: Any) -> Any:
        text = str(old)
        match kind:
            case Int(bits):
                whole = int(float(text)) if text.replace(".", "").isdigit() else None
                return whole if whole is None or bits == 64 or whole < 2**31 else None
            case String(length):
                return text if length is None else text[:length]
        return Decimal(text).quantize(Decimal("0.01")) if text.replace(".", "").isdigit() and len(text) < 8 else None

    return convert


class Machine(RuleBasedStateMachine):
    """See test_stateful.py for the table of rules and promises."""

    ids = True
    types = TYPES

    def __init__(self) -> None:
        super().__init__()
        self.world = self.make_world()
        self.clock, self.seen = 0, 0
        self.loose: dict[str, set[str]] = {CURSORED: set()}
        self.failures: list[str] = []

    def make_world(self) -> World:
        return World(ids=self.ids)

    def teardown(self) -> None:
        self.world.close()

    @property
    def database(self) -> Any:
        return self.world.database

    @initialize(preset=st.sampled_from(sorted(PRESETS)), drop=st.booleans())
    def start(self, preset: str, drop: bool) -> None:
        """Three tables: one with a key, one with a key and a cursor, one with neither."""
        self.set_policy(preset, drop, False)
        pair = (Column("a", TYPES[0]), Column("b", TYPES[3]))
        self.database.create("t", Column("id", TYPES[0], key=1), *pair)
        self.database.create("u", Column("id", TYPES[0], key=1), Column("at", TYPES[1], nullable=False), *pair)
        self.database.create("k", *pair)
        self.world.settings[CURSORED] = TableSettings(cursor="at")
        for n in range(3):
            self.insert(n, n)
        self.sync()

    # the source's rows

    @rule(n=N, k=N)
    def insert(self, n: int, k: int) -> None:
        if (table := self.table(n)) is None:
            return
        row = {c.name: value(c.type, k + i) for i, c in enumerate(table.table.columns) if (k + i) % 5 or not c.nullable}
        key = table.table.key
        for taken in range(len(table.rows) + 1):
            row |= {name: value(table.table.by_name[name].type, k + taken) for name in key}
            if not key or all(any(old[name] != row[name] for name in key) for old in table.named()):
                break
        self.database.insert(table.table.name, self.moved(table, row))

    @rule(n=N, k=N, c=N)
    def update(self, n: int, k: int, c: int) -> None:
        table = self.table(n)
        if table is None or not table.rows:
            return
        column = pick([x for x in table.table.columns if not x.key], c)
        if column is not None and column.name != "at":
            new = None if k % 5 == 0 and column.nullable else value(column.type, k)
            self.change_row(table, k, {column.name: new})

    @rule(n=N, k=N)
    def update_key(self, n: int, k: int) -> None:
        table = self.table(n)
        if table is None or not table.rows or not table.table.key:
            return
        name = table.table.key[0]
        new = value(table.table.by_name[name].type, k + 20)
        if all(row[name] != new for row in table.named()):
            self.change_row(table, k, {name: new})

    @rule(n=N, k=N)
    def delete(self, n: int, k: int) -> None:
        if (table := self.table(n)) is not None and table.rows:
            gone = table.named()[k % len(table.rows)]
            self.database.delete(table.table.name, lambda row: row == gone)

    @rule(n=N)
    def truncate(self, n: int) -> None:
        if (table := self.table(n)) is not None:
            self.database.delete(table.table.name)

    def change_row(self, table: MemoryTable, k: int, new: Mapping[str, Any]) -> None:
        chosen, name = table.named()[k % len(table.rows)], table.table.name
        self.database.update(name, lambda row: self.moved(table, new) if row == chosen else {})

    def moved(self, table: MemoryTable, row: Mapping[str, Any]) -> Mapping[str, Any]:
        self.clock += 1
        return {**row, "at": self.clock} if "at" in table.table.by_name else row

    # the source's columns

    @rule(n=N, c=N, k=N)
    def add_column(self, n: int, c: int, k: int) -> None:
        table = self.table(n)
        name = pick([x for x in COLUMNS if table and x not in table.table.by_name], c)
        if table is None or name is None:
            return
        kind = self.types[k % len(self.types)]
        default = value(kind, k) if k % 2 and table.table.name != CURSORED else None
        self.spoil(table, name)
        self.database.add_column(table.table.name, Column(name, kind), default)

    @rule(n=N, c=N)
    def drop_column(self, n: int, c: int) -> None:
        if (found := self.column(n, c)) is not None and len(found[0].table.columns) > 2:
            self.spoil(*found)
            self.database.drop_column(found[0].table.name, found[1])

    @rule(n=N, c=N, k=N)
    def rename_column(self, n: int, c: int, k: int) -> None:
        found = self.column(n, c)
        new = pick([x for x in COLUMNS if found and x not in found[0].table.by_name], k)
        if found is not None and new is not None:
            self.spoil(*found)
            self.spoil(found[0], new)
            self.database.rename_column(found[0].table.name, found[1], new)

    @rule(n=N, c=N)
    def swap_columns(self, n: int, c: int) -> None:
        one, other = self.column(n, c), self.column(n, c + 1)
        if one is None or other is None or one[1] == other[1]:
            return
        name, (a, b) = one[0].table.name, (one[1], other[1])
        for old, new in ((a, "swap"), (b, a), ("swap", b)):
            self.spoil(one[0], new)
            self.database.rename_column(name, old, new)

    @rule(n=N, c=N)
    def widen(self, n: int, c: int) -> None:
        found = self.column(n, c)
        if found is not None and (wider := WIDER.get(str(found[0].table.by_name[found[1]].type))):
            self.database.retype(found[0].table.name, found[1], parse(wider), lambda old: old)

    @rule(n=N, c=N, k=N)
    def retype(self, n: int, c: int, k: int) -> None:
        if (found := self.column(n, c)) is not None:
            kind = self.types[k % len(self.types)]
            self.spoil(*found)
            self.database.retype(found[0].table.name, found[1], kind, converted(kind))

    @rule(n=N, c=N)
    def change_key(self, n: int, c: int) -> None:
        table = self.table(n)
        if table is None or table.table.name == CURSORED:
            return
        names = [(), *((x.name,) for x in table.table.columns), tuple(x.name for x in table.table.columns[:2])]
        with suppress(ValueError):
            self.database.set_key(table.table.name, names[c % len(names)])

    @rule(n=N, k=N)
    def retype_key(self, n: int, k: int) -> None:
        """Values that have none of the new type, or not one of their own, get another one."""
        table = self.table(n)
        if table is None or not table.table.key:
            return
        name, kind = table.table.key[0], self.types[k % len(self.types)]
        old, convert = [row[name] for row in table.named()], converted(kind)
        new = [convert(one) for one in old]
        if None in new or len(set(new)) < len(set(old)):
            new = [value(kind, 30 + at) for at in range(len(old))]
        after = dict(zip(old, new, strict=True))
        self.database.retype(table.table.name, name, kind, after.__getitem__)

    def column(self, n: int, c: int) -> tuple[MemoryTable, str] | None:
        """A table and one of its columns; neither a key nor the cursor, whose changes have rules of their own."""
        table = self.table(n)
        column = pick([x for x in table.table.columns if not x.key and x.name != "at"], c) if table else None
        return (table, column.name) if table is not None and column is not None else None

    def spoil(self, table: MemoryTable, column: str) -> None:
        """Where only changed rows are read, what a statement does to a column's old values is not seen."""
        if table.table.name in self.loose:
            self.loose[table.table.name].add(column)

    # the source's tables

    @rule(n=N, k=N)
    def create_table(self, n: int, k: int) -> None:
        if (name := pick([x for x in TABLES if x not in self.database.tables], n)) is not None and name != CURSORED:
            key = 1 if k % 3 else 0
            self.database.create(
                name, Column("id", TYPES[k % 2], key=key), Column("a", self.types[k % len(self.types)])
            )

    @rule(n=N)
    def drop_table(self, n: int) -> None:
        if (table := self.other(n)) is not None:
            self.database.drop(table.table.name)

    @rule(n=N, k=N)
    def recreate_table(self, n: int, k: int) -> None:
        """Another table under the same name, with or without the same columns."""
        if (table := self.other(n)) is not None:
            name, columns = table.table.name, table.table.columns
            self.database.drop(name)
            self.database.create(name, *(columns if k % 2 else columns[:1]), key=table.table.key if k % 2 else ())
            if k % 2:
                self.database.insert(name, *table.named()[:1])

    @rule(n=N, k=N)
    def rename_table(self, n: int, k: int) -> None:
        new = pick([x for x in TABLES if x not in self.database.tables and x != CURSORED], k)
        if (table := self.other(n)) is not None and new is not None:
            self.database.rename(table.table.name, new)

    # what people choose

    @rule(preset=st.sampled_from(sorted(PRESETS)), drop=st.booleans(), null=st.booleans())
    def set_policy(self, preset: str, drop: bool, null: bool) -> None:
        modifiers = {"removed": "drop" if drop else "retain", "on_invalid_value": "null" if null else "quarantine"}
        self.world.policy = Policy(preset=preset, modifiers={**self.world.policy.modifiers, **modifiers})

    @rule(backfill=st.sampled_from(["none", "column", "table"]))
    def set_backfill(self, backfill: str) -> None:
        modifiers = {**self.world.policy.modifiers, "backfill": backfill}
        self.world.policy = replace(self.world.policy, modifiers=modifiers)

    @rule(n=N)
    def exclude_table(self, n: int) -> None:
        chosen = patterns([f"re:main\\.{pick(TABLES, n)}"]) if n % 2 else ()
        self.world.selection = replace(self.world.selection, exclude_tables=chosen)

    @rule(n=N, c=N)
    def leave_out(self, n: int, c: int) -> None:
        """A column is left out, or taken in again: then rows that do not change may keep old values."""
        if (found := self.column(n, c)) is not None:
            self.spoil(*found)
            chosen = self.world.selection
            self.world.selection = replace(chosen, off=chosen.off ^ {f"main.{found[0].table.name}.{found[1]}"})

    @rule(n=N, c=N)
    def hash_column(self, n: int, c: int) -> None:
        """A column is hashed, or shown in clear again."""
        if (found := self.column(n, c)) is not None:
            chosen = self.world.selection
            self.world.selection = replace(chosen, masked=chosen.masked ^ {f"main.{found[0].table.name}.{found[1]}"})

    @rule(n=N, k=N)
    def set_table(self, n: int, k: int) -> None:
        """Another way to load a table, or what becomes of deleted rows."""
        if (name := pick(TABLES, n)) is not None:
            cursor = {"cursor": "at"} if name == CURSORED else {}
            self.world.settings[name] = SETTINGS[k % len(SETTINGS)].model_copy(update=cursor)

    @rule(n=N, c=N, k=N)
    def declare_rename(self, n: int, c: int, k: int) -> None:
        """Somebody says that a column which stays behind is one that the source has now."""
        table = pick([t for t in self.world.store.accepted.catalog(NAME).tables if not t.retained], n)
        old = pick([x for x in table.columns if x.retained], c) if table else None
        source = self.database.tables.get(table.name) if table else None
        new = pick([x.name for x in source.table.columns], k) if source else None
        if table is None or source is None or old is None or new is None:
            return
        self.spoil(source, new)
        with suppress(InstepError):
            made = declare_column_rename.prepare(self.world.context, f"{table.path}.{old.name}", f"{table.path}.{new}")
            declare_column_rename.carry_out(self.world.context, made)

    @rule(n=N, k=N)
    def declare_table_rename(self, n: int, k: int) -> None:
        """Somebody says that a table which stays behind is one that the source has now."""
        old = pick([t for t in self.world.store.accepted.catalog(NAME).tables if t.retained], n)
        new = pick([name for name in sorted(self.database.tables) if name != CURSORED], k)
        if old is not None and new is not None:
            with suppress(InstepError):
                made = declare_table_rename.prepare(self.world.context, old.path, f"main.{new}")
                declare_table_rename.carry_out(self.world.context, made)

    @rule(n=N)
    def approve(self, n: int) -> None:
        self.answer(n, "approved")

    @rule(n=N)
    def reject(self, n: int) -> None:
        self.answer(n, "rejected")

    def answer(self, n: int, status: Any) -> None:
        review = pick(self.world.store.reviews.find(NAME, ("open",)), n)
        if review is not None:
            answer(self.world.store, [review], status, "test")

    @rule(status=st.sampled_from(["approved", "rejected"]))
    def answer_all(self, status: Any) -> None:
        """Somebody clears the table: everything that waits is answered, everything that is paused resumed."""
        store = self.world.store
        answer(store, store.reviews.find(NAME, ("open",)), status, "test")
        for paused in store.pauses.active(NAME):
            pauses.resume(store, NAME, "test", paused.table)

    @rule(n=N)
    def resume(self, n: int) -> None:
        paused = pick(self.world.store.pauses.active(NAME), n)
        if paused is not None:
            with suppress(Blocked):
                pauses.resume(self.world.store, NAME, "test", paused.table)

    @rule(n=N)
    def undo(self, n: int) -> None:
        review = pick(self.world.store.reviews.find(NAME, ("applied",)), n)
        if review is None:
            return
        with suppress(InstepError):
            made = prepare(self.world.context, find(self.world.context, review.id))
            self.world.named.update(s.object for s in made.drops)
            apply_undo(self.world.context, made, ("*",))

    # runs

    @rule()
    def sync(self) -> None:
        self.run()

    @rule(n=N)
    def reload_table(self, n: int) -> None:
        self.one_table(n, full=True)

    @rule(n=N)
    def backfill_table(self, n: int) -> None:
        self.one_table(n, full=True, kind="backfill")

    @rule(n=N, c=N)
    def backfill_column(self, n: int, c: int) -> None:
        """Values for rows that have none; what else has happened to the rows is left to the next sync."""
        table = pick([t for t in self.world.store.accepted.catalog(NAME).tables if not t.retained], n)
        column = pick([x for x in table.live if x.name not in table.key], c) if table else None
        if table is None or column is None:
            return
        with suppress(InstepError):
            check_columns(self.world.context, table.path, (column.name,))
            self.world.store.backfills.request(NAME, table.ref, column=column.name, why="asked for")
            self.world.sync(tables=frozenset([table.path]), columns=(column.name,), kind="backfill")

    @rule(n=N, c=N, way=st.sampled_from(["rekey", "clear", "rebuild"]))
    def set_key(self, n: int, c: int, way: Any) -> None:
        """A person gives a table another key, or the source's."""
        found = self.world.store.accepted.catalog(NAME).tables
        table = pick([t for t in found if not t.retained and t.name != CURSORED], n)
        column = pick(table.live, c) if table else None
        if table is not None and column is not None:
            with suppress(InstepError):
                rekey.carry_out(
                    self.world.context, rekey.prepare(self.world.context, table.path, (column.name,), way), ("*",)
                )

    @rule(n=N, c=N, drops=st.booleans())
    def drift(self, n: int, c: int, drops: bool) -> None:
        """Somebody changes a table of the destination manually."""
        held = self.world.destination.held
        ref = pick(sorted(held), n)
        if ref is None or held[ref].pending is not None or BY_HAND in held[ref].table.by_name:
            return
        table = held[ref].table
        own = [x for x in table.columns if x.alias and not x.key]
        column = pick(own, c) if drops else None
        self.world.change_by_hand(ref, column.name if column else BY_HAND)

    def one_table(self, n: int, **wanted: Any) -> None:
        table = pick([t for t in self.world.store.accepted.catalog(NAME).tables if not t.retained], n)
        if table is not None:
            self.run(tables=frozenset([table.path]), **wanted)

    @rule()
    def let_go(self) -> None:
        """A full refresh with consent to lose what the source has dropped."""
        catalog = self.world.store.accepted.catalog(NAME)
        lost = [f"{world_ref[0]}.{world_ref[1]}.{c.alias}" for t in catalog.tables if not t.key
                for world_ref in [self.world.place(t)] for c in t.columns if c.retained]  # fmt: skip
        self.world.named.update(lost)
        self.run(full=True, drop_retained=True)

    @rule(k=st.integers(0, 40))
    def crash(self, k: int) -> None:
        """The process dies at its k-th crash point; the next run is another process."""
        with self.world.killed_at(k):
            self.run()

    @rule(k=st.integers(0, 6), n=N)
    def crash_undo(self, k: int, n: int) -> None:
        with self.world.killed_at(k):
            self.undo(n)

    @rule()
    def detect_twice(self) -> None:
        """Two detections that have seen the same source: the second adds nothing but its count."""
        first, second = detect_if_changed(self.world.context), detect_if_changed(self.world.context)
        record(self.world.context, first)
        before = {r.key: (r.id, r.status) for r in self.world.store.reviews.find(NAME)}
        record(self.world.context, second)
        assert {r.key: (r.id, r.status) for r in self.world.store.reviews.find(NAME)} == before

    @rule(stale=st.booleans(), n=N, c=N)
    def plan_and_apply(self, stale: bool, n: int, c: int) -> None:
        """Changes without rows; a plan whose source or destination moved is refused."""
        with suppress(InstepError):
            made = preview(self.world.context)
            if stale:
                self.drop_column(n, c)
            evolve(self.world.context, made.plan)

    @rule()
    def replay(self) -> None:
        with suppress(Blocked):
            replay(self.world.context)

    @rule()
    def restart(self) -> None:
        self.world.restart()

    @rule()
    def sync_twice(self) -> None:
        """Nothing has happened in between: nothing is changed."""
        self.run()
        before = {ref: held.rows for ref, held in self.world.destination.held.items()}
        if (report := self.run()) is not None and not report.applied:
            after = {ref: held.rows for ref, held in self.world.destination.held.items()}
            keyed = {ref for ref, held in self.world.destination.held.items() if held.table.key}
            assert {r: rows for r, rows in after.items() if r in keyed} == {r: before[r] for r in keyed}

    def run(self, **wanted: Any) -> SyncReport | None:
        """A sync; None if a pause or a wish that nobody can fulfil kept it from running."""
        asked, kept = len(self.world.read), promises.recovered_values(self.world)
        try:
            report = self.world.sync(**wanted)
        except InstepError as error:
            self.failures.append(str(error))
            return None
        self.failures += [t.error for t in report.tables if t.error]
        promises.check_converged(self.world, report, self.loose)
        promises.check_kept(self.world, kept)
        promises.check_reasons(self.world, report, whole=not wanted)
        self.check_read(self.world.read[asked:])
        return report

    def check_read(self, names: Sequence[str]) -> None:
        """Promise 11: what is excluded is not read."""
        excluded = self.world.selection.exclude_tables
        assert not [n for n in names if any(p.matches(f"main.{n}") for p in excluded)]

    def table(self, n: int) -> MemoryTable | None:
        return pick([self.database.tables[name] for name in sorted(self.database.tables)], n)

    def other(self, n: int) -> MemoryTable | None:
        found = self.table(n)
        return found if found is not None and found.table.name != CURSORED else None

    # promises

    @invariant()
    def promised(self) -> None:
        promises.check_doubled(self.world)
        promises.check_drops(self.world)
        last = self.world.store.events.last_number()
        if last == self.seen:
            return
        self.seen = last
        reviews: Mapping[str, Review] = {r.id: r for r in self.world.store.reviews.find(NAME)}
        log = self.world.store.events.after(0, connection=NAME, limit=1_000_000)
        promises.check_events(self.world, log, reviews)
        if not self.world.crashed:
            promises.check_blocked(self.world, reviews)
        promises.check_versions(self.world)
        promises.check_cursors(self.world)


def pick(choices: Sequence[T], n: int) -> T | None:
    return choices[n % len(choices)] if choices else None


class MachineWithoutIds(Machine):
    """Over a source that knows its tables and columns by name only."""

    ids = False
