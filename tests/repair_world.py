"""Damages at the destination, and what its tables hold, read by the tests themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from instep.destinations.base import Commit, Merge
from instep.schema.planning.naming import destination_ref
from lake import stage_table
from sync_world import PREFIX, World

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Content:
    """The rows of a table that stand, by key, and when each was written."""

    rows: Mapping[tuple[Any, ...], tuple[tuple[str, Any], ...]]
    written: Mapping[tuple[Any, ...], Any]
    doubled: int = 0


def content(world: World, name: str = "t") -> Content:
    """Read the destination's table, rows that are marked as deleted left out."""
    table = world.accepted(name)
    read = world.destination.write.read(destination_ref(table, world.context.naming)).read_all().to_pylist()
    standing = [row for row in read if not row.get(f"{PREFIX}deleted")]
    key = [table.by_name[k].alias or k for k in table.key]
    by_key = {tuple(row[k] for k in key): row for row in standing}
    hidden = (f"{PREFIX}synced",)
    rows = {k: tuple((n, v) for n, v in sorted(row.items()) if n not in hidden) for k, row in by_key.items()}
    written = {k: row[f"{PREFIX}synced"] for k, row in by_key.items()}
    return Content(rows, written, len(standing) - len(by_key))


def remove(world: World, where: Any, name: str = "t", *, deletes: Literal["soft", "hard"] = "hard") -> None:
    """Delete the rows for which `where` is true, or mark them as deleted."""
    table = world.accepted(name)
    ref, key = destination_ref(table, world.context.naming), [table.by_name[k].alias or k for k in table.key]
    rows = world.destination.write.read(ref).read_all()
    stay = [at for at, row in enumerate(rows.to_pylist()) if not where(row)]
    keys = rows.take(pa.array(stay, pa.int64())).select(key)
    schema = pa.schema([f for f in world.destination.write.target(ref).schema if f.name in key])
    file = stage_table(world.destination, ref, keys.select(schema.names).cast(schema), 1)
    merge = Merge(tuple(key), keys=(file,), deletes=deletes)
    world.destination.write.merge(None, ref, [], merge, _commit(world, ref))


def put(world: World, change: Any, where: Any = lambda row: True, name: str = "t") -> None:
    """Write what `change` makes of the rows for which `where` is true, by their keys."""
    table = world.accepted(name)
    ref, key = destination_ref(table, world.context.naming), tuple(table.by_name[k].alias or k for k in table.key)
    rows = [row for row in world.destination.write.read(ref).read_all().to_pylist() if where(row)]
    _write(world, ref, [change(row) for row in rows], key)


def double(world: World, where: Any, name: str = "t") -> None:
    """Append the rows for which `where` is true once more."""
    ref = destination_ref(world.accepted(name), world.context.naming)
    rows = [row for row in world.destination.write.read(ref).read_all().to_pylist() if where(row)]
    schema = world.destination.write.target(ref).schema
    world.destination.write.append(
        ref, [stage_table(world.destination, ref, pa.Table.from_pylist(rows, schema=schema), 1)], _commit(world, ref)
    )


def _write(world: World, ref: tuple[str, str], rows: Sequence[Row], key: tuple[str, ...]) -> None:
    schema = world.destination.write.target(ref).schema
    file = stage_table(world.destination, ref, pa.Table.from_pylist(list(rows), schema=schema), 1)
    world.destination.write.merge(None, ref, [file], Merge(key, deletes="ignore"), _commit(world, ref))


def _commit(world: World, ref: tuple[str, str]) -> Commit:
    state = world.destination.schema.state(ref)
    assert state is not None
    return Commit("damage", state.fence, state.cursor, state.accepted)
