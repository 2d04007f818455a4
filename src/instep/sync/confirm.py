"""After a plan was carried out the destination is read back: what it says has to be what the plan leads to."""

from __future__ import annotations

from collections.abc import Mapping

from instep.errors import DestinationError
from instep.schema.catalog.catalog import Catalog, Table
from instep.schema.changes.describe import TableRenamed, TableReplaced
from instep.schema.planning.plan import Plan, StepGroup
from instep.sync.context import Ref, SyncContext


def confirm(context: SyncContext, made: Plan) -> None:
    """Raise DestinationError if a table is not as the plan leaves it. Names that tables only pass through are not
    looked at; of a table that is replaced the old generation is seen until the next load."""
    led: dict[Ref, StepGroup] = {ref: group for group in made.groups() for ref in refs_of(group)}
    there = context.destination.schema.inspect(sorted(led)) if led else Catalog()
    for ref, group in led.items():
        if any(isinstance(s.change, TableReplaced) for s in group.steps):
            continue
        if why := _fault(ref, group, there):
            raise DestinationError(
                f"table {'.'.join(ref)} does not match the result of its schema change: {why}",
                hint="another program may have changed it meanwhile: run `instep plan`, then try again",
            )


def carried_out(group: StepGroup, there: Catalog) -> bool:
    """Return whether what is there is what the steps of a table lead to."""
    return not any(_fault(ref, group, there) for ref in refs_of(group))


def refs_of(group: StepGroup) -> set[Ref]:
    """Return the names of a table before and after its steps."""
    return {group.ref, group.after.ref} if group.after else {group.ref}


def _fault(ref: Ref, group: StepGroup, there: Catalog) -> str:
    """Return how a table of this name differs from what the steps of a group leave there; "" if it does not."""
    found = there.get(ref)
    if group.after is None or group.after.ref != ref:
        return "it is still there" if found else ""
    if found is None:
        return "it is not there"
    return "" if isinstance(group.steps[-1].change, TableRenamed) else _odd(found, group.after)


def _odd(found: Table, after: Table) -> str:
    is_, wanted = _shape(found), _shape(after)
    odd = [name for name in (*wanted, *is_) if is_.get(name) != wanted.get(name)]
    return "; ".join(
        f"{name}: {_column_text(is_, name)} instead of {_column_text(wanted, name)}" for name in dict.fromkeys(odd)
    )


def _shape(table: Table) -> Mapping[str, tuple[str, str | None, str | None]]:
    return {c.name: (str(c.type), c.alias, c.id) for c in table.columns}


def _column_text(shape: Mapping[str, tuple[str, str | None, str | None]], name: str) -> str:
    if name not in shape:
        return "no column"
    kind, alias, _ = shape[name]
    return f"{kind} from {alias}" if alias and alias != name else kind
