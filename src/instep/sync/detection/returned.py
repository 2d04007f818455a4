"""What was missing for a while and is back under its name: nobody knows what became of it meanwhile.

A cursor would find only what is newer, so that such a table is read anew. (What was let go as removed comes back as
an addition: see sync/detection/swapped.py.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from instep.model import Review
from instep.schema.table import Catalog
from instep.sync.pipe import Ref

KINDS = ("table.removed", "column.removed")


def returned(
    standing: Mapping[str, Review], found: Collection[str], accepted: Catalog, source: Catalog
) -> Iterator[tuple[Ref, str]]:
    """Accepted tables, and why: of the `standing` removals (by content key) those that are not `found` any more."""
    for key, review in standing.items():
        if review.kind not in KINDS or key in found:
            continue
        table, now = accepted.get(review.table), source.get(review.table)
        if table is None or now is None or table.retained:
            continue
        if not review.column:
            yield table.ref, f"{table.path} was missing and is back"
        elif review.column in now.by_name and review.column in {c.name for c in table.live}:
            yield table.ref, f"{table.path}.{review.column} was missing and is back"
