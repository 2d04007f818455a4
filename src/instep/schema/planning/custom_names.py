"""Names at the destination that people give, and how loaded tables and columns follow them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.changes.kinds import Ref


@dataclass(frozen=True)
class CustomNames:
    """Destination names of a table and its columns by the settings; "" and absent: its own name."""

    table: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)


NO_NAMES = CustomNames()
NamesOf = Callable[[Ref], CustomNames]
Legal = Callable[[str, str, str], str]
"""What the destination makes of a name: (`table` or `column`, the name, the original that a hash is made of)."""


def no_custom_names(ref: Ref) -> CustomNames:
    return NO_NAMES


@dataclass(frozen=True)
class NamedCatalog:
    """The catalog with the given names, and why a table or a column of it keeps the one that it has."""

    catalog: Catalog
    unchanged: tuple[tuple[Ref, str], ...] = ()


@dataclass(frozen=True)
class _CustomName:
    alias: str
    wanted: str


def follow_custom_names(
    catalog: Catalog,
    before: Catalog,
    origins: Mapping[Ref, Ref],
    given: NamesOf,
    legal: Legal,
    fold: Callable[[str], str],
    system: frozenset[str],
) -> NamedCatalog:
    """`catalog` with the aliases of loaded tables and columns as the settings give them now. A name that another one
    has is not taken from it. A given name stays where its table was renamed at the source (`origins`: new to old) and
    nothing is said of the new one."""
    if given is no_custom_names:
        return NamedCatalog(catalog)
    tables = list(catalog.tables)
    wanted_names = [_wanted_table_name(t, before, origins, given, legal) for t in tables]
    aliases, stuck = _moved(wanted_names, fold, frozenset())
    unchanged = [
        (tables[i].ref, f"it stays {tables[i].alias}: the name {wanted_names[i].wanted} is taken") for i in stuck
    ]
    out = []
    for table, alias in zip(tables, aliases, strict=True):
        columns, notes = _columns(table, given, legal, fold, system)
        unchanged += [(table.ref, note) for note in notes]
        out.append(replace(table, alias=alias, columns=columns))
    return NamedCatalog(Catalog.of(out), tuple(unchanged))


def _wanted_table_name(
    table: Table, before: Catalog, origins: Mapping[Ref, Ref], given: NamesOf, legal: Legal
) -> _CustomName:
    """What has no alias yet gets its name as every new table does."""
    name = given(table.ref).table
    if table.alias and name and not table.retained:
        return _CustomName(table.alias, legal("table", name, f"{table.schema}\0{table.name}"))
    origin = origins.get(table.ref)
    old = before.get(origin) if origin else None
    if old is not None and not table.alias and not name and given(old.ref).table:
        return _CustomName("", old.alias)
    return _CustomName(table.alias, table.alias)


def _columns(
    table: Table,
    given: NamesOf,
    legal: Legal,
    fold: Callable[[str], str],
    system: frozenset[str],
) -> tuple[tuple[Column, ...], Iterator[str]]:
    names = given(table.ref).columns
    if not names:
        return table.columns, iter(())
    wanted_names = [_wanted_column_name(c, names.get(c.name, ""), legal) for c in table.columns]
    aliases, stuck = _moved(wanted_names, fold, system)
    notes = (
        f"{table.columns[i].name} stays {table.columns[i].alias}: the name {wanted_names[i].wanted} is taken"
        for i in stuck
    )
    return tuple(replace(c, alias=a) for c, a in zip(table.columns, aliases, strict=True)), notes


def _wanted_column_name(column: Column, name: str, legal: Legal) -> _CustomName:
    moves = column.alias and name and not column.retained
    return _CustomName(column.alias, legal("column", name, column.name) if moves else column.alias)


def _moved(
    wanted_names: Sequence[_CustomName], fold: Callable[[str], str], system: frozenset[str]
) -> tuple[list[str], list[int]]:
    """Return the aliases once those have moved that can, all at once, and the places of those that cannot."""
    going = [i for i, w in enumerate(wanted_names) if w.wanted != w.alias]
    stuck: list[int] = []
    while True:
        taken = {fold(w.alias) for i, w in enumerate(wanted_names) if i not in going and w.alias} | system
        fallen = []
        for i in going:
            name = fold(wanted_names[i].wanted)
            if name in taken:
                fallen.append(i)
            taken.add(name)
        if not fallen:
            return [w.wanted if i in going else w.alias for i, w in enumerate(wanted_names)], sorted(stuck)
        stuck += fallen
        going = [i for i in going if i not in fallen]
