"""Records of tables, in a table that every transaction checks and writes."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from instep.destinations.base import Commit, LoadState, PartChange, Ref, TableSize
from instep.destinations.shared import ShardSchemaChanged, ShardStatus, SharedTable
from instep.errors import Fenced
from instep.schema.catalog.catalog import Column, Table, table_from_dict, table_to_dict
from instep.stage.spec import StagedFile

MOST_IDS = 200
"""Number of ids of changes, runs and backfills that a table remembers."""


@dataclass(frozen=True)
class Parked:
    """A dropped column that waits under the name `place`: `name` is what it was, `at` milliseconds since 1970 UTC,
    `written` the rows that came since and have no value in it."""

    name: str
    place: str
    field: int
    at: int
    written: int = 0


@dataclass(frozen=True)
class LoadRecord:
    """Record of the last data commit; `files` and `bytes` of all staged files that are in the table, `last` the
    names of those that the commit brought."""

    run: str
    fence: int
    cursor: str
    accepted: str
    rows: int
    files: int
    bytes: int
    deleted: bool
    last: tuple[str, ...] = ()

    @property
    def state(self) -> LoadState:
        return LoadState(
            self.run, self.fence, self.cursor, self.accepted, self.rows, self.bytes, self.files, deleted=self.deleted
        )


@dataclass(frozen=True)
class ShardRecord:
    """One shard of a shared table: `table` is the table as that shard has it, the rest as of a record."""

    table: Table
    place: str
    fence: int = 0
    loaded: LoadRecord | None = None
    runs: tuple[str, ...] = ()
    fills: tuple[int, ...] = ()
    version: int = 0


def rows_key(record: Record, requested: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that identify the rows; more than those requested if the table's key has more (versions of
    rows)."""
    key = record.table.key
    return key if set(key) > set(requested) else tuple(requested)


@dataclass(frozen=True)
class Record:
    """One table."""

    table: Table
    place: str
    """Name of the table's folder of staged files; it outlives renames."""
    fence: int = 0
    numbers: Mapping[str, int] = field(default_factory=dict)
    """A number by column that no other column of the table has ever had."""
    next_number: int = 1
    stored: Mapping[str, str] = field(default_factory=dict)
    """The types by column as the database told them when it made them; another one was made manually."""
    loaded: LoadRecord | None = None
    pending: Table | None = None
    """Waits for its rows."""
    parked: tuple[Parked, ...] = ()
    changes: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    fills: tuple[int, ...] = ()
    version: int = 0
    """Number of commits."""
    copy: str = ""
    """The place and version of the table that this one is a copy of."""
    parts: Mapping[str, ShardRecord] = field(default_factory=dict)
    """The shards of a table that connections share."""
    shape: int = 0
    """Number of changes of the schema."""
    by: tuple[str, ...] | None = None
    """The partition columns that the next whole load brings (None: those that there are); a record of one shard
    alone has the shard column and the shard's name as `within`, and that shard's columns only."""
    within: tuple[str, str] | None = None

    @property
    def ref(self) -> Ref:
        return self.table.ref

    @property
    def names(self) -> list[str]:
        """The columns, in order."""
        return [c.name for c in self.table.columns]

    @property
    def state(self) -> LoadState | None:
        return None if self.loaded is None or self.pending is not None else self.loaded.state

    def size(self, size: int | None) -> TableSize:
        """Return how large the table is, whose relation takes `size` bytes (None: not known)."""
        return TableSize(self.loaded.rows, size) if self.loaded else TableSize()

    @property
    def waiting(self) -> Record:
        """The generation that the next whole load fills: no number of an old column is used again."""
        assert self.pending is not None, "no replacement waits"
        return numbered(replace(self, table=self.pending, pending=None, loaded=None, parked=(), numbers={}))

    def check(self, fence: int) -> None:
        """Raise Fenced if a later run holds the table."""
        if self.fence > fence:
            raise Fenced(
                f"table {self.table.path} was claimed by a later run (fence {self.fence}, ours is {fence}): "
                "nothing was written"
            )

    def after_load(
        self,
        commit: Commit,
        rows: int,
        files: Sequence[StagedFile] = (),
        *,
        new: int,
        replaces_rows: bool = False,
        deleted: bool = False,
    ) -> Record:
        """Return the record after a data commit with `rows`, of which `new` are new.

        `replaces_rows`: all of them are in `files`."""
        was = None if replaces_rows else self.loaded
        loaded = LoadRecord(
            commit.run,
            commit.fence,
            commit.cursor,
            commit.accepted,
            rows,
            len(files) + (was.files if was else 0),
            sum(f.bytes for f in files) + (was.bytes if was else 0),
            deleted or bool(was and was.deleted),
            tuple(sorted(f.path for f in files)),
        )
        parked = tuple(replace(p, written=p.written + new) for p in self.parked)
        runs = _last((*self.runs, commit.run))
        return replace(self, loaded=loaded, parked=parked, runs=runs, version=self.version + 1)

    def rows_after(self, new: int, removed: int = 0) -> int | None:
        """Return how many rows a commit leaves that adds and removes so many, as far as we know the table: counting
        them would read all of it for a few changed rows. None before its first load."""
        return max(0, self.loaded.rows + new - removed) if self.loaded else None

    def after_fill(self, commit: Commit, rows: int, backfills: Iterable[int]) -> Record:
        """Return the record after a commit of these backfills; cursor and accepted schema stay."""
        assert self.state is not None, "only what is loaded is filled"
        own = replace(commit, cursor=self.state.cursor, accepted=self.state.accepted)
        return replace(self.after_load(own, rows, new=0), fills=_last((*self.fills, *backfills)))

    def after_changes(self, commit: Commit, changes: Sequence[str]) -> Record:
        changed = replace(self, changes=_last((*self.changes, *changes)), version=self.version + 1)
        return changed._with_part(commit.part) if commit.part else replace(changed, fence=max(commit.fence, self.fence))

    def _with_part(self, change: PartChange) -> Record:
        """Raise Conflict if another shard has changed the table meanwhile, Fenced if a later run holds this one."""
        if change.seen != self.shape:
            raise ShardSchemaChanged(self.table.path)
        old = self.parts.get(change.shard) or ShardRecord(change.table, uuid.uuid4().hex)
        replace(self, fence=old.fence).check(change.fence)
        loaded = None if change.replaces_rows else old.loaded
        part = replace(old, table=change.table, fence=change.fence, loaded=loaded, version=old.version + 1)
        return replace(self, parts={**self.parts, change.shard: part}, shape=self.shape + 1)

    def part(self, shard: str, column: str) -> Record | None:
        """Return the record of one shard alone, whose rows have its name in `column`; None if it does not have the
        table."""
        part = self.parts.get(shard)
        if part is None:
            return None
        return replace(
            self,
            table=replace(self.table, columns=_own(self.table, part.table, column)),
            fence=part.fence,
            loaded=part.loaded,
            runs=part.runs,
            fills=part.fills,
            version=part.version,
            within=(column, shard),
            place=part.place,
            parts={},
        )

    def whole(self, table: Table) -> SharedTable:
        """Return the table as it is, with its shards."""
        parts = {n: ShardStatus(p.table, p.loaded.state if p.loaded else None) for n, p in self.parts.items()}
        return SharedTable(table, parts, self.shape)

    def merge_shard(self, shard_record: Record) -> Record:
        """Return the whole table's record after a commit of one shard, whose record is `shard_record`."""
        assert shard_record.within is not None, "the record of one shard"
        shard = shard_record.within[1]
        part = replace(
            self.parts[shard],
            fence=shard_record.fence,
            loaded=shard_record.loaded,
            runs=shard_record.runs,
            fills=shard_record.fills,
            version=shard_record.version,
        )
        return replace(self, parts={**self.parts, shard: part}, parked=shard_record.parked, version=self.version + 1)


def _own(whole: Table, part: Table, column: str) -> tuple[Column, ...]:
    """Return the columns of one shard as they are stored, the shard column first."""
    columns = whole.by_name
    own = (c for c in part.columns if c.name in columns)
    return columns[column], *(replace(c, type=columns[c.name].type, key=columns[c.name].key) for c in own)


def _last(values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(values))[-MOST_IDS:]


def numbered(record: Record) -> Record:
    """Return the record with a number for each column that has none."""
    numbers = {c.name: record.numbers[c.name] for c in record.table.columns if c.name in record.numbers}
    new = [c.name for c in record.table.columns if c.name not in numbers]
    fresh = dict(zip(new, range(record.next_number, record.next_number + len(new)), strict=True))
    return replace(record, numbers=numbers | fresh, next_number=record.next_number + len(new))


def dump(record: Record) -> str:
    """Return the record as JSON; the fence and the table's name have columns of their own."""
    apart = ("table", "pending", "fence", "within")
    plain = {f.name: getattr(record, f.name) for f in fields(record) if f.name not in apart}
    plain["loaded"] = asdict(record.loaded) if record.loaded else None
    plain["parked"] = [asdict(p) for p in record.parked]
    plain["parts"] = {name: {**asdict(p), "table": table_to_dict(p.table)} for name, p in record.parts.items()}
    plain["table"] = table_to_dict(record.table)
    plain["pending"] = table_to_dict(record.pending) if record.pending else None
    return json.dumps(plain, separators=(",", ":"), ensure_ascii=False)


def load(ref: Ref, fence: int, text: str) -> Record:
    data = json.loads(text)
    named = {"schema": ref[0], "name": ref[1]}
    loaded, pending = data.pop("loaded"), data.pop("pending")
    return Record(
        table=table_from_dict({**data.pop("table"), **named}),
        fence=fence,
        loaded=_loaded(loaded),
        parts={name: _part(part, named) for name, part in data.pop("parts", {}).items()},
        pending=table_from_dict({**pending, **named}) if pending else None,
        parked=tuple(Parked(**p) for p in data.pop("parked")),
        changes=tuple(data.pop("changes")),
        runs=tuple(data.pop("runs")),
        fills=tuple(data.pop("fills")),
        by=tuple(by) if (by := data.pop("by", None)) is not None else None,
        **data,
    )


def _loaded(data: Mapping[str, Any] | None) -> LoadRecord | None:
    return LoadRecord(**{**data, "last": tuple(data["last"])}) if data else None


def _part(data: Mapping[str, Any], named: Mapping[str, str]) -> ShardRecord:
    table = table_from_dict({**data["table"], **named})
    return ShardRecord(
        table,
        data["place"],
        data["fence"],
        _loaded(data["loaded"]),
        tuple(data["runs"]),
        tuple(data["fills"]),
        data["version"],
    )
