"""The shared tables of a project: which shard has which columns, and which one is behind. From the store alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from instep.project.project import Project
from instep.schema.catalog.catalog import Table
from instep.schema.planning.shards import ShardedColumn, compare
from instep.store.store import Store


@dataclass(frozen=True)
class Shard:
    """A connection as a shard: the version of its accepted schema, how its last run ended and when it began, how many
    changes wait for an answer."""

    name: str
    connection: str
    version: int = 0
    status: str = ""
    started: datetime | None = None
    waiting: int = 0


@dataclass(frozen=True)
class SharedTable:
    """A shared table with its shards."""

    destination: str
    name: str
    """Name at the destination."""
    shards: tuple[Shard, ...]
    columns: tuple[ShardedColumn, ...]
    missing: tuple[str, ...] = ()
    """Shards of its namespace that do not have it."""

    @property
    def differing(self) -> tuple[ShardedColumn, ...]:
        return tuple(c for c in self.columns if c.differs)


def shared_tables(project: Project, store: Store) -> list[SharedTable]:
    """Return all of them, by destination and name."""
    groups: dict[tuple[str, str], list[Shard]] = {}
    for connection, section in project.model.connections.items():
        if section.shard:
            place = project.destination_of(connection), project.namespace_of(connection)
            groups.setdefault(place, []).append(_shard(store, connection, section.shard))
    return [table for place, shards in sorted(groups.items()) for table in _tables(store, place, shards)]


def _shard(store: Store, connection: str, name: str) -> Shard:
    accepted, run = store.accepted.latest(connection), store.runs.latest(connection)
    return Shard(
        name,
        connection,
        accepted.version if accepted else 0,
        run.status if run else "",
        run.started if run else None,
        store.pages.waiting((connection,)).get(connection, 0),
    )


def _tables(store: Store, place: tuple[str, str], shards: Iterable[Shard]) -> Iterable[SharedTable]:
    destination, namespace = place
    ordered = sorted(shards, key=lambda s: s.name)
    by_name: dict[str, dict[str, Table]] = {}
    for shard in ordered:
        names = store.names.of(shard.connection)
        for table in store.accepted.catalog(shard.connection).tables:
            if (at := names.get(table.ref)) is not None and not table.retained:
                by_name.setdefault(at[1], {})[shard.name] = table
    for name, tables in sorted(by_name.items()):
        own = tuple(s for s in ordered if s.name in tables)
        missing = tuple(s.name for s in ordered if s.name not in tables)
        yield SharedTable(destination, f"{namespace}.{name}", own, compare(tables), missing)


def as_data(table: SharedTable) -> Mapping[str, object]:
    """Return a JSON-ready form."""
    return {
        "destination": table.destination,
        "table": table.name,
        "shards": [vars(s) for s in table.shards],
        "missing": list(table.missing),
        "columns": [
            {
                "column": c.name,
                "type": str(c.type),
                "shards": {shard: str(kind) if kind else None for shard, kind in c.shards.items()},
                "retained": sorted(c.retained),
                "lacking": list(c.lacking),
            }
            for c in table.columns
        ],
    }
