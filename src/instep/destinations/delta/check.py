"""`destination test` of a warehouse."""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep.destinations.base import Ref
from instep.destinations.scratch import COMMIT, checks_of, scratch, scratch_file
from instep.model import Check
from instep.schema.change import TableRemoved
from instep.schema.step import step
from instep.schema.table import Table

if TYPE_CHECKING:
    from instep.destinations.delta.destination import DeltaDestination


def check_warehouse(destination: DeltaDestination) -> list[Check]:
    """One line for each thing that the folder must allow, until the first that fails."""
    on, folder = scratch("instep_test"), "the folder must allow new files and links to them"

    def write() -> None:
        destination.append(on.ref, [scratch_file(destination.target(on.ref))], COMMIT)

    return checks_of([
        ("create a table", folder, lambda: destination.execute(on.ref, [on.added], on.table, COMMIT)),
        ("write a file", folder, write),
        ("alter the table", folder, lambda: destination.execute(on.ref, [on.widened], on.wider, COMMIT)),
        ("read it back", folder, lambda: destination.read(on.ref).read_all()),
        ("drop the table", folder, lambda: _drop(destination, on.ref, on.table)),
    ])  # fmt: skip


def _drop(destination: DeltaDestination, ref: Ref, table: Table) -> None:
    """Nothing of it stays on the disk."""
    destination.execute(ref, [step(ref, TableRemoved(table))], None, COMMIT)
    for one in destination.warehouse.waiting():
        if one.ref == ref:
            destination.warehouse.delete(one.folder)
    destination.warehouse.unname(ref)
