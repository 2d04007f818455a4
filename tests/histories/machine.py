"""The rules of a history: what happens to a live database and what people decide, in any order, with syncs between.

After each sync the law: what differs from the source has a reason that a person sees: a change that is open or was
refused, a pause, an entry in quarantine, an error. And a person who says yes to everything ends with equal tables.
"""

# ruff: noqa: S608 - the test makes all names and values itself
from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from histories.databases import CURSOR, LiveDatabase, Refused, SourceColumn, SourceTable
from histories.world import CURSORED, LOGGED, NAME, Check, HistoryWorld
from instep.control import pauses
from instep.control.reviews import answer
from instep.errors import Blocked, InstepError
from instep.model import Review
from instep.schema.policy.policy import Policy
from instep.schema.policy.presets import PRESETS
from instep.schema.policy.similarity import PROPOSAL
from instep.sync.detection.detect import detect_if_changed, record
from instep.sync.operations import set_key as rekey
from instep.sync.progress import SyncReport
from instep.sync.quarantine.replay import replay
from instep.sync.schema_changes.answer import approving

T = TypeVar("T")
N = st.integers(0, 11)
ENGINE: Any = os.environ["INSTEP_ENGINE"]
NAMES = ("t", CURSORED, "k", LOGGED, "v")
COLUMNS = tuple("abcde")
ROUNDS = 8
NUMBERS = ("integer", "int", "bigint", "smallint", "decimal(10,2)", "numeric(10,2)")


def pick(found: Sequence[T], n: int) -> T | None:
    return found[n % len(found)] if found else None


class Histories(RuleBasedStateMachine):
    """`open_database` and `open_destination` give a history a database and a destination of its own; `start_spark` the
    session of all."""

    open_database: ClassVar[Callable[[Path], Any]]
    start_spark: ClassVar[Callable[[], Any]]
    open_destination: ClassVar[Callable[[Path, int], Any]]
    shortest_key: ClassVar[str] = "integer"

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="instep-history-", dir="/dev/shm"))
        self.live: LiveDatabase = type(self).open_database(self.folder)
        self.world: HistoryWorld | None = None
        self.clock, self.broken = 0, False
        self.born: list[dict[str, str]] = []

    @initialize(preset=st.sampled_from(sorted(PRESETS)), destination=st.integers(0, 3), early=st.booleans())
    def start(self, preset: str, destination: int, early: bool) -> None:
        """A table of each mode; the policy may be there before the first sync, or come after it."""
        self.world = HistoryWorld(
            self.live.case(), self.folder, type(self).start_spark, engine=ENGINE, database=self.live
        )
        self.world.destination = type(self).open_destination(self.folder, destination)
        whole, text = self.live.types[1], "text"
        pair = [SourceColumn("a", whole), SourceColumn("b", text)]
        for name in NAMES[:4]:
            key = () if name == "k" else ("id",)
            first = [SourceColumn("id", self.shortest_key)]
            at = [SourceColumn(CURSOR, self.live.types[2])] if name == CURSORED else []
            self.live.create(name, [*first, *at, *pair], key)
        for n in range(4):
            for k in range(3):
                self.insert(n, k)
        if early:
            self.set_policy(preset, n=0, null=False)
        self.sync()
        self.set_policy(preset, n=0, null=False)

    def teardown(self) -> None:
        try:
            if self.world is not None and not self.broken:
                self.yes_to_all()
        finally:
            if self.world is not None:
                self.world.close()
            self.live.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def flow(self) -> HistoryWorld:
        assert self.world is not None
        return self.world

    # rows of the source

    @rule(n=N, k=N)
    def insert(self, n: int, k: int) -> None:
        if (table := self.table(n)) is None:
            return
        row = {c.name: self.literal(c.type, k + i) for i, c in enumerate(table.columns) if (k + i) % 4 or c.name == "a"}
        self.clock += 1
        for name in (*table.key, *({CURSOR} & set(table.names))):
            row[name] = self.distinct(table.column(name).type)
        if table.name == CURSORED:
            self.born.append({name: row[name] for name in table.key})
        self.attempt(lambda: self.live.insert(table, row))

    @rule(n=N, k=N, new=st.booleans())
    def insert_below(self, n: int, k: int, new: bool) -> None:
        """A row that no cursor tells of: a new one, or one that was deleted and is back with other values."""
        if (table := self.live.tables.get(CURSORED)) is None or CURSOR not in table.names:
            return
        before = {} if new else pick(self.born, n) or {}
        row = {c.name: self.literal(c.type, k) for c in table.columns if c.name not in (CURSOR, *table.key)}
        self.clock += new
        row |= {name: before.get(name) or self.distinct(table.column(name).type) for name in table.key}
        self.attempt(lambda: self.live.insert(table, {**row, CURSOR: "0"}))

    @rule(n=N, k=N, c=N)
    def update(self, n: int, k: int, c: int) -> None:
        table, column = self.table(n), self.column(n, c)
        if table is None or column is None or not table.key:
            return
        new = {column: "NULL" if k % 5 == 0 else self.literal(table.column(column).type, k)}
        self.attempt(lambda: self.live.update(table, self.moved(table, new), self.some(table)))

    @rule(n=N)
    def delete(self, n: int) -> None:
        if (table := self.table(n)) is not None and table.key:
            self.attempt(lambda: self.live.delete(table, self.some(table)))

    def moved(self, table: SourceTable, new: dict[str, str]) -> dict[str, str]:
        self.clock += 1
        return {**new, CURSOR: str(self.clock)} if CURSOR in table.names else new

    def some(self, table: SourceTable) -> str:
        """The first row by its key."""
        key = self.live.quoted(table.key[0])
        return f"{key} = (SELECT m FROM (SELECT {key} AS m FROM {self.live.quoted(table.name)} ORDER BY 1 LIMIT 1) x)"

    def literal(self, kind: str, n: int) -> str:
        values = self.live.values[kind]
        return values[n % len(values)]

    def distinct(self, kind: str) -> str:
        """A literal that no row has yet."""
        text = str(self.clock)
        if kind == "uuid":
            return f"'{text:0>32}'"
        return (
            text if kind in ("integer", "int", "bigint", "smallint", "decimal(10,2)", "numeric(10,2)") else f"'{text}'"
        )

    # columns of the source

    @rule(n=N, c=N, k=N)
    def add_column(self, n: int, c: int, k: int) -> None:
        table = self.table(n)
        name = pick([x for x in COLUMNS if table and x not in table.names], c)
        if table is None or name is None:
            return
        kind = self.live.types[k % len(self.live.types)]
        default = self.literal(kind, k) if k % 3 == 0 and kind not in ("text", "blob") else None
        self.spoil(table, name)
        self.attempt(lambda: self.live.add_column(table, SourceColumn(name, kind), default))

    @rule(n=N, c=N)
    def drop_column(self, n: int, c: int) -> None:
        table, column = self.table(n), self.column(n, c)
        if table is not None and column is not None and len(table.columns) > 2:
            self.spoil(table, column)
            self.attempt(lambda: self.live.drop_column(table, column))

    @rule(n=N, c=N, k=N)
    def rename_column(self, n: int, c: int, k: int) -> None:
        table, column = self.table(n), self.column(n, c)
        new = pick([x for x in COLUMNS if table and x not in table.names], k)
        if table is not None and column is not None and new is not None:
            self.spoil(table, column)
            self.spoil(table, new)
            self.attempt(lambda: self.live.rename_column(table, column, new))

    @rule(n=N, c=N, k=N)
    def retype(self, n: int, c: int, k: int) -> None:
        table, column = self.table(n), self.column(n, c)
        if table is not None and column is not None:
            kind = self.live.types[k % len(self.live.types)]
            self.attempt(lambda: self.live.retype(table, column, kind))

    @rule(n=N, k=N)
    def retype_key(self, n: int, k: int) -> None:
        table = self.table(n)
        kinds = [x for x in ("bigint", "text", "varchar(20)", "uuid", "smallint") if x in self.live.types]
        if table is not None and table.key and (kind := pick(kinds, k)):
            self.attempt(lambda: self.live.retype(table, table.key[0], kind))

    @rule(n=N, c=N)
    def change_key(self, n: int, c: int) -> None:
        table = self.table(n)
        if table is not None and table.name != CURSORED:
            keys = [(), *((x,) for x in table.names), tuple(table.names[:2])]
            self.attempt(lambda: self.live.set_key(table, keys[c % len(keys)]))

    def column(self, n: int, c: int) -> str | None:
        """A column that is neither of the key nor the cursor, whose changes have rules of their own."""
        table = self.table(n)
        return pick([x for x in table.names if x not in table.key and x != CURSOR], c) if table else None

    def spoil(self, table: SourceTable, column: str) -> None:
        if table.name == CURSORED:
            self.flow.stale.add((table.name, column))

    # tables of the source

    @rule(n=N, k=N)
    def create_table(self, n: int, k: int) -> None:
        if (name := pick([x for x in NAMES if x not in self.live.tables and x != CURSORED], n)) is not None:
            kind = self.live.types[k % len(self.live.types)]
            columns = [SourceColumn("id", self.shortest_key), SourceColumn("a", kind)]
            self.attempt(lambda: self.live.create(name, columns, ("id",) if k % 3 else ()))

    @rule(n=N)
    def drop_table(self, n: int) -> None:
        if (table := self.other(n)) is not None:
            self.attempt(lambda: self.live.drop(table.name))

    @rule(n=N, k=N, c=N)
    def replace_table(self, n: int, k: int, c: int) -> None:
        """Another table under the same name, in which a column has another type."""
        if (table := self.other(n)) is None:
            return
        columns, key, name = list(table.columns), table.key, table.name
        place = c % len(columns)
        if columns[place].name not in key:
            columns[place] = SourceColumn(columns[place].name, self.live.types[k % len(self.live.types)])
        self.attempt(lambda: self.live.drop(name))
        self.attempt(lambda: self.live.create(name, columns, key))
        for m in range(k % 3):
            self.insert(sorted(self.live.tables).index(name), m)

    @rule(n=N, k=N)
    def rename_table(self, n: int, k: int) -> None:
        new = pick([x for x in NAMES if x not in self.live.tables and x != CURSORED], k)
        if (table := self.other(n)) is not None and new is not None:
            self.attempt(lambda: self.live.rename(table.name, new))

    def table(self, n: int) -> SourceTable | None:
        return pick([self.live.tables[name] for name in sorted(self.live.tables)], n)

    def other(self, n: int) -> SourceTable | None:
        """A table without a cursor."""
        return pick([self.live.tables[name] for name in sorted(self.live.tables) if name != CURSORED], n)

    def attempt(self, change: Callable[[], None]) -> None:
        with suppress(Refused):
            change()

    # what people choose

    @rule(preset=st.sampled_from(sorted(PRESETS)), n=N, null=st.booleans())
    def set_policy(self, preset: str, n: int, null: bool) -> None:
        backfill = ("none", "column", "table")[n % 3]
        on_invalid_value = "null" if null else "quarantine"
        self.flow.policy = Policy(preset=preset, modifiers={"backfill": backfill, "on_invalid_value": on_invalid_value})

    @rule(n=N, status=st.sampled_from(["approved", "rejected"]))
    def answer_one(self, n: int, status: Any) -> None:
        if (review := pick(self.flow.open_reviews(), n)) is not None:
            answer(self.flow.store, [review], status, "test")

    @rule()
    def approve_all(self) -> None:
        self.answer_all("approved")

    def answer_all(self, status: Any) -> list[Review]:
        found = self.flow.open_reviews()
        answer(self.flow.store, found, status, "test")
        for paused in self.flow.store.pauses.active(NAME):
            with suppress(Blocked):
                pauses.resume(self.flow.store, NAME, "test", paused.table)
        return found

    @rule(n=N, way=st.sampled_from(["rekey", "clear", "rebuild"]))
    def set_key(self, n: int, way: Any) -> None:
        """A person gives a table the key that its source has."""
        table = self.other(n)
        if table is not None and table.key:
            self.give_key(table, way)

    def give_key(self, table: SourceTable, way: Any) -> None:
        path = f"{self.live.schema}.{table.name}"
        with suppress(InstepError):
            rekey.carry_out(self.flow.context, rekey.prepare(self.flow.context, path, table.key, way), ("*",))

    # runs

    @rule()
    def sync(self) -> None:
        self.run()

    @rule()
    def sync_twice(self) -> None:
        """Removals that the catalog cannot prove are believed at the second."""
        self.run()
        self.run()

    @rule(n=N)
    def reload_table(self, n: int) -> None:
        """`sync --full --table`."""
        found = self.flow.store.accepted.catalog(NAME).tables
        table = pick([t for t in found if not t.retained], n)
        if table is not None:
            self.run(tables=frozenset([table.path]), full=True)

    @rule()
    def detect(self) -> None:
        record(self.flow.context, detect_if_changed(self.flow.context))

    @rule()
    def replay(self) -> None:
        with suppress(InstepError):
            replay(self.flow.context)

    def run(self, **wanted: Any) -> SyncReport | None:
        """A sync, and the law."""
        try:
            report = self.flow.sync(**wanted)
        except Blocked:
            assert self.flow.store.pauses.active(NAME) or wanted, "blocked, and nothing is paused"
            return None
        except Exception as error:
            if wanted and isinstance(error, InstepError):  # the table is not there any more
                return None
            self.broken = True
            raise
        found = [] if wanted else list(Check(self.flow, report).differences())
        self.broken = bool(found)
        assert not found, "\n".join(found)
        return report

    def yes_to_all(self) -> None:
        """Syncs and answers until nothing is open; then each table is equal to its source."""
        self.flow.policy = Policy(preset="allow_all")
        for _ in range(ROUNDS):
            self.run(drop_retained=True, full=True)
            self.run()
            self.look_at_questions()
            self.give_keys()
            self.rebuild_refused()
            self.reject_unfit()
            found = self.answer_all("approved")
            if not found and not self.flow.store.pauses.active(NAME):
                break
        else:
            asked = [f"{r.kind} {r.summary}: {r.action}, {r.rule}, {r.why}" for r in found]
            raise AssertionError(f"asked again and again: {asked}; paused: {self.flow.store.pauses.active(NAME)}")
        self.run()

    def look_at_questions(self) -> None:
        """Nothing has moved since the sync, so what waits can be approved as it was shown."""
        self.broken = True
        approving(self.flow.context, self.flow.open_reviews())
        self.broken = False

    def reject_unfit(self) -> None:
        """A suspected rename that was approved once and does not fit is none."""
        unfit = [r for r in self.flow.open_reviews() if r.rule == PROPOSAL and r.decided_by]
        answer(self.flow.store, unfit, "rejected", "test")

    def rebuild_refused(self) -> None:
        """Where rows that the source has deleted are in the way of a new type, a person builds the table anew."""
        for review in self.flow.open_reviews():
            table = self.live.tables.get(review.table[1])
            if review.rule == "destination" and table is not None and table.key:
                answer(self.flow.store, [review], "approved", "test")
                self.give_key(table, "rebuild")

    def give_keys(self) -> None:
        """Each table that is paused for its key gets the one that its source has."""
        for paused in self.flow.store.pauses.active(NAME):
            table = self.live.tables.get(paused.table[1]) if paused.table else None
            if table is not None and table.key:
                self.give_key(table, "rebuild")
