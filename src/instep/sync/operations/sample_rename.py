"""The values of the two columns of a suspected rename, side by side, for the person who has to decide."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from instep.errors import Blocked, InstepError
from instep.model import Review
from instep.operations.decide.sample_rename import SHOWN, RenameSample, SampleRenameRequest, ValuePair
from instep.operations.spec import DirectWork
from instep.operations.values import EXISTING
from instep.schema.changes.describe import ColumnRenamed, change_from_dict
from instep.schema.planning.projection import pair_tables
from instep.schema.policy.similarity import PROPOSAL
from instep.sources.base import Snapshot
from instep.sync.context import SyncContext
from instep.sync.detection.detect import detect
from instep.sync.detection.evidence import CatalogSides, RenameValues, is_same, values_of_rename

LONGEST = 200
"""Characters of a value that are shown."""


class SampleRename(DirectWork):
    """The work of the operation `sample_rename`."""

    def run(self, context: SyncContext, request: SampleRenameRequest) -> RenameSample:
        """Read both sides. Raises Blocked for a change that is no suspected rename of a column, or is settled."""
        change = context.store.reviews.get(request.change)
        rename = _rename(context, change)
        with context.destination_open(), context.source.snapshot() as snapshot:
            values = _values(context, snapshot, rename)
        path = ".".join(filter(None, rename.table))
        names = f"{path}.{rename.before.name}", f"{path}.{rename.after.name}"
        if isinstance(values, str):
            return RenameSample(change.id, *names, (), 0, 0, (), values)
        pairs = list(_by_key(values) if values.key else _by_value(values))
        compared, same = sum(many for many, _ in pairs), sum(many for many, pair in pairs if pair.same)
        different = [pair for _, pair in pairs if not pair.same]
        equal = [pair for _, pair in pairs if pair.same]
        half = max(SHOWN // 2, SHOWN - len(equal))
        shown = (*different[:half], *equal)[:SHOWN]
        return RenameSample(change.id, *names, values.key, compared, same, shown, "" if shown else "no row has a value")


def _rename(context: SyncContext, change: Review) -> ColumnRenamed:
    if change.connection != context.name:
        raise InstepError(f"change {change.id} is one of connection {change.connection}", hint="name that connection")
    rename = change_from_dict(change.change)
    if change.rule != PROPOSAL or not isinstance(rename, ColumnRenamed):
        raise Blocked(
            f"change {change.id} is not a suspected rename of a column: there are no two columns to compare",
            hint=f"see `instep changes show {change.id}`",
        )
    if change.status not in EXISTING:
        raise Blocked(
            f"change {change.id} is {change.status}: there is nothing to compare", hint="see `instep changes`"
        )
    return rename


def _values(context: SyncContext, snapshot: Snapshot, rename: ColumnRenamed) -> RenameValues | str:
    discovery = snapshot.discover()
    detection = detect(context, discovery, count=False, recalled=True)
    accepted = pair_tables(detection.accepted.tables, detection.source)
    by_now = {now.ref: detection.accepted.by_ref[ref] for ref, now in accepted.items()}
    table, now = by_now.get(rename.table), discovery.catalog.get(rename.table)
    if table is None or now is None or rename.before.name not in table.by_name:
        return f"table {'.'.join(filter(None, rename.table))} is not as it was when the rename was suspected"
    if rename.after.name not in now.by_name:
        return f"column {rename.after.name} is no longer at the source"
    sides = CatalogSides(detection.source, discovery.catalog, by_now, context.selected_before)
    return values_of_rename(context, sides, snapshot, rename)


def _by_key(values: RenameValues) -> Iterator[tuple[int, ValuePair]]:
    """Yield the rows in which one side has a value, each counted once."""
    for row, old, new in zip(values.keys, values.old, values.new, strict=True):
        if old is not None or new is not None:
            key = tuple(_text(value) or "" for value in row)
            yield 1, ValuePair(key, _text(old), _text(new), is_same(old, new))


def _by_value(values: RenameValues) -> Iterator[tuple[int, ValuePair]]:
    """Yield each value, with the rows that have it, on the sides on which it occurs; the most frequent first."""
    old, new = (Counter(_text(value) for value in side if value is not None) for side in (values.old, values.new))
    for value, _ in (old | new).most_common():
        both = value in old and value in new
        pair = ValuePair((), value if value in old else None, value if value in new else None, both)
        yield (min(old[value], new[value]) if both else max(old[value], new[value])), pair


def _text(value: Any) -> str | None:
    """Return a value as text; bytes as hexadecimal digits."""
    if value is None:
        return None
    text = value.hex() if isinstance(value, bytes) else str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
