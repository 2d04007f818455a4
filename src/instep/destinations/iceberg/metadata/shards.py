"""Tables that several connections share: what their properties record of each shard, and how one shard reads them.

What is recorded of a shard are properties of its own (`instep.shard.<name>.<what>`), set in the commit that they
describe: commits of others leave them alone. Seen by the shard they have the names that they have in any table.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from instep.destinations.base import PartChange
from instep.schema.catalog.catalog import Column, Table, table_from_dict, table_to_dict

SHARD = "instep.shard"
"""The property of a snapshot that names the shard whose rows it changed; how the names of a shard's own begin."""
SHAPE = "instep.shape"
"""A number that another one takes the place of with each change of schema."""
WITHIN = "instep.within"
"""Of a table as one shard has it: the shard column and the shard's name. No table has it in its metadata."""
PLACE, TOTALS = "instep.place", "instep.totals"
_OWN = ("fence", "run", "accepted", "state", "maintained", "place", "totals", "layout")
_PART = re.compile(re.escape(SHARD) + r"\.([^.]+)\.table")
_COUNTED = {
    "records": ("added-records", "deleted-records"),
    "files-size": ("added-files-size", "removed-files-size"),
    "data-files": ("added-data-files", "deleted-data-files"),
    "delete-files": ("added-delete-files", "removed-delete-files"),
    "position-deletes": ("added-position-deletes", "removed-position-deletes"),
}
Properties = Mapping[str, str]
ShardKey = tuple[str, str]
Metadata = Mapping[str, Any]


def own_name(shard: str, name: str) -> str:
    """Return the name of a shard's own property in the table's metadata; any other keeps its name."""
    what = name.removeprefix("instep.")
    return f"{SHARD}.{shard}.{what}" if name != what and what in _OWN else name


def shards_of(properties: Properties) -> list[str]:
    """Return the shards of a table; none: it is not shared."""
    return sorted(match[1] for name in properties if (match := _PART.fullmatch(name)))


def shape_of(properties: Properties) -> int:
    return int(properties.get(SHAPE, "0"))


def shard_key_of(properties: Properties) -> ShardKey | None:
    """Return the shard column and the shard, of a table as one of them has it; None for a whole one."""
    text = properties.get(WITHIN)
    if text is None:
        return None
    column, shard = json.loads(text)
    return column, shard


def as_shard(properties: Properties, key: ShardKey) -> dict[str, str] | None:
    """Return the properties as one shard has them; None if it does not have the table."""
    prefix = f"{SHARD}.{key[1]}."
    if f"{prefix}table" not in properties:
        return None
    hidden = {f"instep.{what}" for what in _OWN}
    shared = {k: v for k, v in properties.items() if k not in hidden}
    own = {f"instep.{k.removeprefix(prefix)}": v for k, v in properties.items() if k.startswith(prefix)}
    own = {k: v for k, v in own.items() if k in hidden}
    return {**shared, **own, WITHIN: json.dumps(key)}


def projected(metadata: Metadata, key: ShardKey) -> Metadata | None:
    """Return a table's metadata as one shard has it; None if it does not have the table."""
    properties = as_shard(metadata.get("properties", {}), key)
    return None if properties is None else {**metadata, "properties": properties}


def part_table(properties: Properties, shard: str, whole: Table) -> Table:
    """Return the table as a shard has it."""
    record = json.loads(properties[f"{SHARD}.{shard}.table"])
    return table_from_dict({**record, "schema": whole.schema, "name": whole.name})


def as_stored(whole: Table, properties: Properties) -> Table:
    """Return the columns of one shard as they are stored, the shard column first; a whole table stays what it is."""
    within = shard_key_of(properties)
    if within is None:
        return whole
    columns = whole.by_name
    part = part_table(properties, within[1], whole)
    own = (c for c in part.columns if c.name in columns)
    return replace(whole, columns=(columns[within[0]], *(_stored(c, columns[c.name]) for c in own)))


def _stored(column: Column, whole: Column) -> Column:
    return replace(column, type=whole.type, key=whole.key, nullable=whole.nullable)


def part_properties(properties: Properties, part: PartChange) -> dict[str, str]:
    """Return a schema commit's record of a shard, and the table's next shape. A shard that starts over has no load."""
    record = json.dumps(table_to_dict(part.table), separators=(",", ":"), ensure_ascii=False)
    own = {f"{SHARD}.{part.shard}.table": record, own_name(part.shard, "instep.fence"): str(part.fence)}
    place = own_name(part.shard, PLACE)
    if place not in properties:
        own[place] = uuid.uuid4().hex[:12]
    if part.replaces_rows:
        own[own_name(part.shard, "instep.state")] = "null"
    return {**own, SHAPE: str(part.seen + 1)}


def totals(metadata: Metadata) -> dict[str, int]:
    """Return files, bytes and records of a table, or of the shard by which it is seen, by their names in summaries."""
    if text := metadata["properties"].get(TOTALS):
        recorded: dict[str, int] = json.loads(text)
        return recorded
    if shard_key_of(metadata["properties"]):
        return {}
    at = metadata.get("current-snapshot-id")
    main = next((s for s in metadata.get("snapshots", ()) if s["snapshot-id"] == at), None)
    return {k.removeprefix("total-"): int(v) for k, v in main["summary"].items() if _is_total(k)} if main else {}


def _is_total(name: str) -> bool:
    return name.startswith("total-")


def grown(before: Mapping[str, int], summaries: Iterable[Mapping[str, str]]) -> dict[str, int]:
    """Return the totals after snapshots with these summaries, all of the same shard."""
    snapshots = list(summaries)
    return {
        what: before.get(what, 0) + sum(int(s.get(more, 0)) - int(s.get(less, 0)) for s in snapshots)
        for what, (more, less) in _COUNTED.items()
    }
