"""How staged rows meet those of a table in this process: plainly, one row after the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from instep.destinations.base import Fill, LoadOutcome, Merge
from instep.errors import StageError
from memory.held import Held, Row

SYNCED, DELETED = "_instep_synced", "_instep_deleted"


@dataclass
class _Counts:
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    returned: int = 0


class Meeting:
    """One merge by key; `rows` is what it leads to."""

    def __init__(self, held: Held, staged: Sequence[Row], keys: Iterable[Row] | None, how: Merge,
                 asked: Iterable[Row] | None = None) -> None:  # fmt: skip
        self.held, self.how, self.ids = held, how, held.ids
        self.key = [self.ids[k] for k in how.key]
        self.staged = self._latest(staged)
        self.known = {self._of(row) for row in keys} if keys is not None else None
        self.asked = {self._of(row) for row in asked} if asked is not None else None
        self.mark = self.ids.get(DELETED, 0)
        stamps = {self.ids.get(SYNCED), self.mark}
        live = [self.ids[c.name] for c in held.table.live if c.name not in how.unread]
        self.values = [f for f in live if f not in stamps and f not in self.key]
        self.set = {*self.values, *self.key, *(f for f in stamps if f in held.fields)}
        times = [row.get(self.ids.get(SYNCED, 0)) for row in staged]
        self.now = max((t for t in times if t is not None), default=datetime.now(UTC))

    def run(self) -> tuple[list[Row], LoadOutcome]:
        counts, rows, met = _Counts(), [], set[tuple[Any, ...]]()
        for row in self.held.rows:
            key = self._of(row)
            if key in met:
                raise StageError(f"table {self.held.table.path} holds two rows of one key")
            met.add(key)
            if (now := self._row(row, key, counts)) is not None:
                rows.append(now)
        new = [row for key, row in self.staged.items() if key not in met]
        absent = len((self.known or set()) - met - self.staged.keys())
        return [*rows, *new], LoadOutcome(len(new), counts.updated, counts.deleted, absent, counts.returned)

    def _of(self, row: Row) -> tuple[Any, ...]:
        return tuple(row.get(f) for f in self.key)

    def _latest(self, staged: Sequence[Row]) -> dict[tuple[Any, ...], Row]:
        """The rows without older versions of the same key; the last one staged wins a draw."""
        cursor = self.ids[self.how.cursor] if self.how.cursor else 0
        found: dict[tuple[Any, ...], Row] = {}
        for row in staged:
            before = found.get(self._of(row))
            if before is None or not cursor or not _newer(before.get(cursor), row.get(cursor)):
                found[self._of(row)] = row
        return found

    def _row(self, row: Row, key: tuple[Any, ...], counts: _Counts) -> Row | None:
        """The row as it becomes, None if it goes."""
        gone = bool(row.get(self.mark))
        if (now := self.staged.get(key)) is not None:
            differs = gone or any(not _same(row.get(f), now.get(f)) for f in self.values)
            if not differs or self._is_older(now, row):
                counts.returned += gone and self.known is not None and key in self.known
                return row
            counts.updated += 1
            kept = {f: v for f, v in row.items() if f not in self.set and f in self.held.fields}
            return {**kept, **{f: now.get(f) for f in self.set}}
        if self.known is not None and key in self.known:
            counts.returned += gone
            return row
        if not self.how.complete and self.known is None and (self.asked is None or key not in self.asked):
            return row
        if self.how.deletes == "hard":
            counts.deleted += 1
            return None
        if self.how.deletes == "soft" and self.mark and not gone:
            counts.deleted += 1
            return {**row, self.mark: True, self.ids[SYNCED]: self.now}
        return row

    def _is_older(self, now: Row, row: Row) -> bool:
        cursor = self.ids[self.how.cursor] if self.how.cursor else 0
        a, b = now.get(cursor), row.get(cursor)
        return bool(cursor) and a is not None and b is not None and a < b


def _newer(a: Any, b: Any) -> bool:
    """NULL is the oldest."""
    return a is not None and (b is None or a > b)


def _same(a: Any, b: Any) -> bool:
    return bool(a == b) or (a != a and b != b)


def filled(held: Held, staged: Sequence[Row], fill: Fill) -> tuple[list[Row], int]:
    """The rows with staged values where they have none, and how many got one."""
    key, meta = [held.ids[k] for k in fill.key], held.ids[fill.meta]
    values = {tuple(row.get(f) for f in key): row for row in staged}
    fields, rows, count = [held.ids[name] for name in fill.columns], list[Row](), 0
    for row in held.rows:
        now = values.get(tuple(row.get(f) for f in key), {})
        new = {f: now[f] for f in fields if row.get(f) is None and now.get(f) is not None}
        told = {meta: now[meta]} if fill.holds and now.get(meta) is not None else {}
        rows.append({**row, **new, **told} if new or told else row)
        count += bool(new)
    return rows, count


def replaced_since(held: Held, staged: Sequence[Row], since: tuple[str, str]) -> tuple[list[Row], LoadOutcome]:
    """The staged rows in the place of those from that value on."""
    field, low = held.ids[since[0]], since[1]
    kept = [row for row in held.rows if row.get(field) is None or row[field] < _like(row[field], low)]
    return [*kept, *staged], LoadOutcome(len(staged), 0, len(held.rows) - len(kept))


def _like(value: Any, text: str) -> Any:
    """A literal as a value that compares with this one."""
    match value:
        case bool() | str():
            return text
        case int():
            return int(text)
        case Decimal():
            return Decimal(text)
        case datetime():
            found = datetime.fromisoformat(text)
            return found if found.tzinfo or not value.tzinfo else found.replace(tzinfo=UTC)
        case date():
            return date.fromisoformat(text)
    return type(value)(text)


def null_keys(held: Held, rows: Iterable[Mapping[int, Any]], key: Sequence[str]) -> int:
    fields = [held.ids[k] for k in key]
    return sum(any(row.get(f) is None for f in fields) for row in rows)
