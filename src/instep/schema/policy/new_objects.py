"""New objects at a source since it was seen before, and those of them that stay left out until a person accepts them.

An object is decided when it is born: by the policy of that moment. What policy leaves out then is listed as switched
off and stays so under any later policy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.changes.describe import Change, ColumnAdded, SchemaAdded, TableAdded, TableReplaced
from instep.schema.changes.diff import pair, pair_columns
from instep.schema.policy.policy import LISTED_OFF, Decision
from instep.schema.selection.overrides import Switch, bind, located

Object = tuple[str, str, str]
"""(schema, table, column) as the source calls them; "" where the object is a schema or a table."""
RULE = "listing"


def object_of(change: Change) -> Object | None:
    """Return the object that an addition brings; None for any other change."""
    match change:
        case SchemaAdded():
            return change.name, "", ""
        case TableAdded():
            return *change.after.ref, ""
        case ColumnAdded():
            return *change.table, change.after.name
    return None


def additions(before: Catalog, now: Catalog) -> list[SchemaAdded | TableAdded | ColumnAdded]:
    """Return the additions between two looks at one source; keys and cursors come with their table."""
    pairs = pair(before, now)
    added_objects: list[SchemaAdded | TableAdded | ColumnAdded] = []
    added_objects += (SchemaAdded(name) for name in sorted(now.schemas - before.schemas) if name)
    added_objects += map(TableAdded, pairs.added)
    for old, new in pairs.same:  # a table that was replaced is one change with its columns
        added = pair_columns(old, new).added
        places = {c.name: n for n, c in enumerate(new.columns)}
        added_objects += (ColumnAdded(new.ref, c, places[c.name]) for c in added if not _is_needed(new, c))
    return added_objects


def _is_needed(table: Table, column: Column) -> bool:
    return bool(column.key) or column.name == table.cursor or column.retained


@dataclass(frozen=True)
class FirstLook:
    """The source as it was seen first. Until something is accepted, what was there then comes in."""

    born: frozenset[Object]
    """Objects that came after it."""
    configured: bool = False
    """A person made the schema config before: policy decides about schemas and tables that it does not name."""

    @classmethod
    def of(cls, seen: Catalog, now: Catalog, *, configured: bool) -> FirstLook:
        return cls(frozenset(o for c in additions(seen, now) if (o := object_of(c))), configured)

    def lets_in(self, change: Change) -> bool:
        """Return whether the object of an addition was there and is not left to policy."""
        place = object_of(change)
        if place is None or place in self.born or (place[0], place[1], "") in self.born:
            return False
        return not self.configured or bool(place[2])


def listed_off(switches: Iterable[Switch], catalog: Catalog, identity: str) -> frozenset[Object]:
    """Return the objects of the catalog that are listed as switched off and that nobody has switched on."""
    switches_off = (s for s in switches if s.listed_off and s.enabled is not True)
    return frozenset((*b.ref, b.column) for b in (bind(s, catalog, identity) if s.table else s for s in switches_off))


def without_listed_off(changes: Sequence[Change], is_off: Callable[[Table, Column], bool]) -> list[Change]:
    """Return the changes with new tables stripped of the columns that are off, which are additions of their own."""
    out: list[Change] = []
    for change in changes:
        out.append(change)
        if isinstance(change, TableAdded | TableReplaced):
            table = change.after
            off = {n: c for n, c in enumerate(table.columns) if not _is_needed(table, c) and is_off(table, c)}
            if off and len(off) < len(table.columns):
                columns = tuple(c for n, c in enumerate(table.columns) if n not in off)
                out[-1] = replace(change, after=replace(table, columns=columns))
                out += (ColumnAdded(table.ref, c, n) for n, c in off.items())
    return out


def stay_off(decisions: Sequence[Decision], is_off: Callable[[Change], bool]) -> tuple[Decision, ...]:
    """Return the decisions with the additions of listed objects left out, whatever the policy says by now."""

    def decide_off(decision: Decision) -> Decision:
        if decision.by_person or decision.action == "ignore" or not is_off(decision.change):
            return decision
        return replace(decision, action="ignore", rule=RULE, effect="off", why=LISTED_OFF)

    return tuple(map(decide_off, decisions))


def to_list_off(decisions: Iterable[Decision], catalog: Catalog, identity: str) -> list[Switch]:
    """Return the switches to record as off: additions that were left out, by policy or by a person."""
    left = (d.change for d in decisions if d.action == "ignore" and d.effect in ("off", "pending"))
    switches = (Switch(*place, listed_off=True) for change in left if (place := object_of(change)))
    return [bind(s, catalog, identity) if s.table else s for s in switches]


def let_in(switches: Iterable[Switch], accepted: Catalog, identity: str) -> list[Switch]:
    """Return the listed objects that are accepted by now."""
    schemas = {t.schema for t in accepted.tables if not t.retained}

    def is_accepted(switch: Switch) -> bool:
        if not switch.table:
            return switch.schema in schemas
        located_switch = located(switch, accepted, identity)
        return (
            located_switch is not None
            and not located_switch[0].retained
            and not (located_switch[1] and located_switch[1].retained)
        )

    return [s for s in switches if s.listed_off and is_accepted(s)]
