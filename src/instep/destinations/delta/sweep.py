"""Deletes what dead runs wrote for a table and no version of it names."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote

from instep.destinations.base import Ref
from instep.destinations.delta.files import io_of
from instep.destinations.delta.held import find
from instep.destinations.delta.warehouse import Warehouse
from instep.stage.place import children, keep_only

ALIVE = 3_600
"""Seconds: no commit takes longer, and other shards may be at one."""


def sweep(warehouse: Warehouse, ref: Ref, runs: Mapping[str, int]) -> None:
    """`runs`: fences by run id. Call it after a claim: what these runs have not committed by then, they never will."""
    held = find(warehouse, ref)
    if held is None:
        return
    held.log.tidy(ALIVE if held.record.within else 0)
    place, area = held.folder / held.area, held.area
    data, held_back = place.as_uri(), (held.folder / held.aside).as_uri()
    known = {unquote(p) for p in (*held.snapshot.files, *held.snapshot.gone)}
    io = io_of(held)
    names = children(data, io)
    mine = [n for n in names if any(n == run or n.startswith(f"{run}-") for run in runs)]
    for folder in (n for n in mine if (place / n).is_dir()):
        keep_only(f"{data}/{folder}", io, [p for p in known if p.startswith(f"{area}/{folder}/")])
    lost = {n for n in mine if not (place / n).is_dir() and f"{area}/{n}" not in known}
    if lost:
        keep_only(data, io, [f"{data}/{n}" for n in names if n not in lost])
    gone, kept = tuple(f"{run}-" for run in runs if run not in held.record.runs), children(held_back, io)
    if gone and any(n.startswith(gone) for n in kept):
        keep_only(held_back, io, [f"{held_back}/{n}" for n in kept if not n.startswith(gone)])
