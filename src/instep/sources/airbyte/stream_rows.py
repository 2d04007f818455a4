"""The records of one stream on their way into frames, and what is known of the stream so far."""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from instep.redaction import cut
from instep.schema.catalog.types import parse
from instep.sources.airbyte.catalog import DELETED_AT
from instep.sources.airbyte.columns import PackedColumn, Packing, Piece, inferred, packing
from instep.sources.airbyte.wire import FrameWriter, SpilledFrames, encoded
from instep.sources.connector.segment import EACH, RESERVED, stored_name

UPSERT, DELETE = 0, 2
MOST_ROWS, MOST_BYTES = 5_000, 2 << 20
"""A frame: records wait for it as objects, which take several times the memory of their text."""
MOST_UNSENT = 100_000_000
"""Rows that are deleted because a run before has sent them and this one has not. Numbers begin at a clock's
nanoseconds, so that those of two beginnings are further apart."""
_LONGEST_REASON = 200


class SameColumn(Exception):
    """Two properties of a record would be the column of this name."""


@dataclass(frozen=True)
class StreamPlan:
    """A stream as the request of a run has it. `first` is the number of its first record, where records have no key,
    `reserved` the number up to which it may go on without asking, and `sent` the one up to which runs before may have
    gone. `replaces`: its records replace what is there, as they come."""

    ref: tuple[str, str]
    number: int
    columns: Mapping[str, str]
    key: tuple[str, ...]
    paths: Mapping[str, Sequence[str]]
    key_values: Mapping[str, Sequence[str]]
    required: tuple[str, ...]
    overwrite: bool
    deletes: bool
    resumes: bool
    first: int = 0
    sent: int = 0
    reserved: int = 0
    replaces: bool = False
    """Its records replace what is there, as they come."""

    @property
    def path(self) -> str:
        return ".".join(filter(None, self.ref))

    def record(self, at: int) -> int | None:
        """Return the number of a record by its place in this run; None if its key tells it from others."""
        if self.key:
            return None
        return EACH if self.overwrite else self.first + at


class StreamRows:
    """`fault` is why no more of the stream is taken, `good` how many of its records were handed on before. `status` is
    what the connector last said of it, `expected` how many records it expects to send (0: it does not say).
    `is_limited`: it ended because its source has let it read no more for now."""

    def __init__(self, plan: StreamPlan, frames: FrameWriter, spill: SpilledFrames | None, place: Callable[[int], int]):
        """Take where rows go; `place` reserves that many numbers in the order of operations, and returns the first
        of them."""
        self.plan, self._frames, self._spill, self._place = plan, frames, spill, place
        self._packings: dict[str, Packing] = {name: packing(parse(kind)) for name, kind in plan.columns.items()}
        self.rows: list[dict[str, Any]] = []
        self._notes: dict[int, Sequence[Mapping[str, str]]] = {}
        self.bytes = 0
        self.total_at_state, self.total, self.good, self.expected = 0, 0, 0, 0
        self._offered: list[tuple[int, Any]] = []
        self.status, self.fault, self.closed, self.is_limited = "", "", False, False
        self._named = False
        self._reserved = plan.reserved
        self._truncate = place(1) if plan.overwrite or plan.replaces else 0
        self.has_replaced, self.has_state = False, False
        self.comes_again = False
        """The last state that it shares with others seems to bring its records again, which look like new ones."""
        self.unfit: Counter[str] = Counter()
        self.absent: Counter[str] = Counter()
        self.unknown: dict[str, None] = {}

    @property
    def begins_again(self) -> bool:
        """Return whether the next run reads it from its first record on, whatever its state says."""
        is_over = not self.plan.resumes and self.status == "COMPLETE" and not self.fault
        return self.plan.overwrite or is_over

    def add_record(self, data: dict[str, Any], size: int, changes: Sequence[Mapping[str, str]] = ()) -> None:
        """Take a record; `changes` is what the source says about its values."""
        if changes:
            self._notes[len(self.rows)] = changes
        self.rows.append(data)
        self.bytes += size
        if len(self.rows) >= MOST_ROWS or self.bytes >= MOST_BYTES:
            self.flush()

    def fail(self, why: str) -> None:
        """Take no more of it; the first reason counts."""
        self.fault = self.fault or why
        self.rows, self.bytes, self._notes = [], 0, {}
        if self._spill is not None:
            self._spill.discard()

    def offer(self, state: Any) -> None:
        """Remember a state that counts once the records before it are handed on."""
        self._offered.append((self.total, state))
        self.has_state = True

    def accepted_state(self) -> tuple[int, Any] | None:
        """Return the last of the states that count by now behind the number of records before it, None if there is
        none; the others are forgotten."""
        counting = [one for one in self._offered if one[0] <= self.good]
        self._offered = []
        return counting[-1] if counting else None

    def flush(self) -> None:
        """Send the records so far, up to one that no table can take."""
        rows, self.rows, self.bytes = self.rows, [], 0
        notes, self._notes = self._notes, {}
        if self.fault:
            return
        if not rows:
            self.good = self.total
            return
        before = self.total - len(rows)
        rows, collision = self._by_column(rows)
        bad = self._first_bad(rows) or collision
        if bad is not None:
            rows = rows[: bad[0]]
        if rows:
            self._send(rows, before, {str(at): self._note_of(some) for at, some in notes.items() if at < len(rows)})
        self.good = before + len(rows)
        if bad is not None:
            self.fail(bad[1])

    def _by_column(self, rows: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], tuple[int, str] | None]:
        """Return the records with a value a column, up to the first that has two of a column, and its place and why."""
        if not self.plan.paths and not self.plan.key_values:
            return rows, None
        found: list[dict[str, Any]] = []
        for row in rows:
            try:
                columns = self._flattened(row) if self.plan.paths else dict(row)
                for name, path in self.plan.key_values.items():
                    value = _at(row, path)
                    if (other := columns.get(name, value)) is not value and other != value:
                        raise SameColumn(name)
                    columns[name] = value
            except SameColumn as error:
                why = f"a record has two properties that would be the column {error}: rename one, or do not flatten it"
                return found, (len(found), why)
            found.append(columns)
        return found, None

    def _first_bad(self, rows: list[dict[str, Any]]) -> tuple[int, str] | None:
        """Return the place of the first record that no table can take, and why; None if there is none."""
        found: list[tuple[int, str]] = []
        for name in self.plan.key:
            if None in (values := [row.get(name) for row in rows]):
                why = f"a record has no value of {name}, which is part of its primary key"
                found.append((values.index(None), why))
        for name in set().union(*rows) - self._packings.keys():
            if not name.strip() or "\0" in name or name in RESERVED:
                at = next(at for at, row in enumerate(rows) if name in row)
                found.append((at, f"a record has a property that cannot be a column: {cut(repr(name), 100)}"))
        return min(found, default=None)

    def finish(self) -> None:
        """Release the rows that waited for the end of a stream which replaces all rows."""
        self.flush()
        if self._spill is None or self.fault or self.closed:
            return
        self._name()
        self._remove_rows()
        self._spill.replay(self._frames)
        self.closed = True

    def remove_unsent(self) -> None:
        """Delete what a run before has sent, without a state behind it, and this one has not sent again: those are the
        rows of the numbers that follow, for the numbers of both begin at the same state. A state whose numbers are
        further apart than any run sends fails the stream: nothing tells which rows are meant."""
        end = self.plan.first + self.total
        if self.plan.sent - end > MOST_UNSENT:
            self.fail(
                f"its saved state has rows up to number {self.plan.sent}, but its records end at {end}: `records` and"
                " `ends` or `reserved` do not belong together; `instep sync --full` reads it again from the start"
            )
            return
        for first in range(end, self.plan.sent, MOST_ROWS):
            rows = min(MOST_ROWS, self.plan.sent - first)
            place = self._place(rows)
            body: list[Piece] = [bytes([DELETE]) * rows, _numbers(place, rows)]
            head = {"frame": "rows", "table": self.plan.number, "rows": rows, "columns": [], "found": {}}
            self._name()
            self._frames.send({**head, "first": first}, body)

    def _reserve(self) -> None:
        """Have numbers reserved for all records so far before they are handed on."""
        end = self.plan.first + self.total
        if self.plan.first and end > self._reserved:
            self._reserved = end + self.total
            self._frames.send({"frame": "reserve", "stream": self.plan.ref, "number": self._reserved})
            self._frames.read("reserved")

    def _name(self) -> None:
        if not self._named:
            self._named = True
            schema, name = self.plan.ref
            self._frames.send({"frame": "table", "number": self.plan.number, "schema": schema, "table": name})

    def _remove_rows(self) -> None:
        self._frames.send({"frame": "truncate", "table": self.plan.number, "number": self._truncate})

    def _note_of(self, changes: Sequence[Mapping[str, str]]) -> str:
        """Return what the source says about a record's values, by column: what it says of an object that is taken apart
        is about all of the object's columns."""
        found: list[Mapping[str, str]] = []
        for change in changes:
            path = tuple(change["field"].split("."))
            inner = [name for name, one in self.plan.paths.items() if tuple(one[: len(path)]) == path]
            names = inner or [change["field"] if change["field"] in self._packings else path[0]]
            found += [{**change, "field": name} for name in map(stored_name, names)]
        return json.dumps(found)

    def _send(self, rows: list[dict[str, Any]], before: int, notes: Mapping[str, str]) -> None:
        self._reserve()
        head, body = self._packed(rows)
        if notes:
            head["notes"] = notes
        if (first := self.plan.record(before)) is not None:
            head["first"] = first
        self._name()
        if self._spill is None:
            if self.plan.replaces and not self.has_replaced:
                self._remove_rows()
                self.has_replaced = True
            self._frames.send(head, body)
        else:
            self._spill.add(encoded(head, body))

    def _packed(self, rows: list[dict[str, Any]]) -> tuple[dict[str, Any], list[Piece]]:
        operations = self._operations(rows)
        first = self._place(len(rows))
        body: list[Piece] = [operations, _numbers(first, len(rows))]
        columns: list[Any] = []
        found: dict[str, tuple[str, ...]] = {}
        for name, values in self._columns(rows):
            plan = self._packings.get(name)
            packed = inferred(values) if plan is None else plan.pack(values)
            if packed is not None:
                self._note(name, packed)
                columns.append([name, list(packed.kinds), packed.placed])
                found |= {name: packed.found} if packed.found else {}
                body += packed.pieces
        head = {"frame": "rows", "table": self.plan.number, "rows": len(rows), "columns": columns, "found": found}
        return head, body

    def _operations(self, rows: list[dict[str, Any]]) -> bytes:
        if not self.plan.deletes:
            return bytes(len(rows))
        return bytes(UPSERT if row.get(DELETED_AT) is None else DELETE for row in rows)

    def _columns(self, rows: list[dict[str, Any]]) -> list[tuple[str, list[Any]]]:
        """Return the values by column, in the order of the declaration; names that nothing declares come last."""
        known = self._packings
        names = dict.fromkeys(known)
        seen = set().union(*rows)
        if more := seen - known.keys():
            self.unknown.update(dict.fromkeys(sorted(more)))
            names |= dict.fromkeys(sorted(more))
        for name in self.plan.required:
            if name not in seen:
                self.absent[name] += len(rows)
        return [(name, self._values(rows, name)) for name in names if name in seen]

    def _values(self, rows: list[dict[str, Any]], name: str) -> list[Any]:
        try:
            return list(map(itemgetter(name), rows))
        except KeyError:
            if name in self.plan.required:
                self.absent[name] += sum(name not in row for row in rows)
            return [row.get(name) for row in rows]

    def _note(self, name: str, packed: PackedColumn) -> None:
        if packed.unfit:
            self.unfit[name] += packed.unfit

    def _flattened(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return the record with the columns that lie inside of objects; whatever else these hold comes along."""
        return _spread(row, (), {tuple(path[:n]) for path in self.plan.paths.values() for n in range(1, len(path))})

    def warnings(self) -> list[str]:
        """Return differences from the catalog, without values."""
        path = self.plan.path
        found = [f"{path}: records have {name}, which the catalog does not have" for name in self.unknown]
        for name, count in self.unfit.items():
            found.append(
                f"{path}.{name}: {count:,} values do not fit {self.plan.columns[name]}, which the catalog says"
            )
        for name, count in self.absent.items():
            found.append(f"{path}.{name}: {count:,} records lack it, and the catalog says that all have it")
        if self.comes_again:
            found.append(
                f"{path}: the state that it shares with other streams does not cover its records, which have no key: "
                "they may come again as new rows; name a `key` for its table, or `mode: full_refresh`"
            )
        return found


def noted_changes(meta: Any) -> list[dict[str, str]]:
    """Return what a record says in its `meta.changes` about values that the source could not read or had to cut."""
    changes = meta.get("changes") if isinstance(meta, dict) else None
    found = [one for one in changes if isinstance(one, dict)] if isinstance(changes, list) else []
    return [
        {
            "field": one["field"],
            "change": str(one.get("change") or "nulled").lower(),
            "reason": str(one.get("reason") or "")[:_LONGEST_REASON],
        }
        for one in found
        if isinstance(one.get("field"), str)
    ]


def _numbers(first: int, count: int) -> bytes:
    """Return consecutive numbers of 64 bits."""
    return array("q", range(first, first + count)).tobytes()


def _at(row: Any, path: Sequence[str]) -> Any:
    for name in path:
        row = row.get(name) if isinstance(row, dict) else None
    return row


def _spread(row: dict[str, Any], path: tuple[str, ...], objects: set[tuple[str, ...]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in row.items():
        here = (*path, name)
        if here in objects and isinstance(value, dict):
            _add(found, _spread(value, here, objects))
        elif here not in objects or value is not None:
            _add(found, {"_".join(here): value})
    return found


def _add(found: dict[str, Any], more: Mapping[str, Any]) -> None:
    if same := found.keys() & more.keys():
        raise SameColumn(min(same))
    found.update(more)
