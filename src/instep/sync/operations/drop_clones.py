"""Lets go of the copies that were kept of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from instep.events import CopyPurged
from instep.store.catalogs.clones import Copy
from instep.sync.claim import claimed
from instep.sync.context import SyncContext
from instep.sync.two_people import two_people


def purge(context: SyncContext, copies: Sequence[Copy]) -> None:
    """Delete them as one run, the destination's side first: one that is gone there is fine. Blocked if four_eyes want
    a second person."""
    what = ", ".join(sorted(".".join(copy.place) for copy in copies))
    with two_people(context, "table purge", what), claimed(context, "apply") as run:
        context = replace(context, run=run)
        for copy in copies:
            if (clones := context.destination.lifecycle.clones) is not None:
                clones.purge_clone(copy.place, run.fence)
            with context.transaction():
                context.store.copies.end(copy.number)
                path, place = ".".join(filter(None, copy.table)), ".".join(copy.place)
                context.store.events.add(CopyPurged(context.name, path, place, context.who))
