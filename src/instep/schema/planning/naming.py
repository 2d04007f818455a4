"""Names at the destination: assigned when a table or column is accepted, and unchanged afterwards.

A name is kept as it is wherever the destination can hold it. Otherwise it is mapped by a fixed rule that ends in
a hash of the original, so that the same name always leads to the same alias and two names never to one.

Names at the destination that people give, and how loaded tables and columns follow them.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, count
from typing import Literal

from instep.errors import SchemaError
from instep.schema.catalog.catalog import Catalog, Column, Table, fold_case, is_row_id
from instep.schema.changes.kinds import Ref


@dataclass(frozen=True)
class CustomNames:
    """Destination names of a table and its columns by the settings; "" and absent: its own name."""

    table: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)


NO_NAMES = CustomNames()
NamesOf = Callable[[Ref], CustomNames]
Legal = Callable[[str, str, str], str]
"""The function that makes a name legal: (`table` or `column`, the name, the original that a hash is made of)."""


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
    requested: str


def follow_custom_names(
    catalog: Catalog,
    before: Catalog,
    origins: Mapping[Ref, Ref],
    custom_names: NamesOf,
    legal: Legal,
    fold: Callable[[str], str],
    system: frozenset[str],
) -> NamedCatalog:
    """Return `catalog` with the aliases of loaded tables and columns as the settings name them now. A name that
    another object has is not taken from it. A custom name stays where its table was renamed at the source
    (`origins`: new to old) and the settings do not mention the new name."""
    if custom_names is no_custom_names:
        return NamedCatalog(catalog)
    tables = list(catalog.tables)
    custom = [_custom_table_name(t, before, origins, custom_names, legal) for t in tables]
    aliases, stuck = _reassign_aliases(custom, fold, frozenset())
    unchanged = [(tables[i].ref, f"it stays {tables[i].alias}: the name {custom[i].requested} is taken") for i in stuck]
    out = []
    for table, alias in zip(tables, aliases, strict=True):
        columns, notes = _columns(table, custom_names, legal, fold, system)
        unchanged += [(table.ref, note) for note in notes]
        out.append(replace(table, alias=alias, columns=columns))
    return NamedCatalog(Catalog.of(out), tuple(unchanged))


def _custom_table_name(
    table: Table, before: Catalog, origins: Mapping[Ref, Ref], custom_names: NamesOf, legal: Legal
) -> _CustomName:
    """Return the name of a table by its alias; without one it gets its name as every new table does."""
    name = custom_names(table.ref).table
    if table.alias and name and not table.retained:
        return _CustomName(table.alias, legal("table", name, f"{table.schema}\0{table.name}"))
    origin = origins.get(table.ref)
    old = before.get(origin) if origin else None
    if old is not None and not table.alias and not name and custom_names(old.ref).table:
        return _CustomName("", old.alias)
    return _CustomName(table.alias, table.alias)


def _columns(
    table: Table,
    custom_names: NamesOf,
    legal: Legal,
    fold: Callable[[str], str],
    system: frozenset[str],
) -> tuple[tuple[Column, ...], Iterator[str]]:
    names = custom_names(table.ref).columns
    if not names:
        return table.columns, iter(())
    custom = [_custom_column_name(c, names.get(c.name, ""), legal) for c in table.columns]
    aliases, stuck = _reassign_aliases(custom, fold, system)
    notes = (
        f"{table.columns[i].name} stays {table.columns[i].alias}: the name {custom[i].requested} is taken"
        for i in stuck
    )
    return tuple(replace(c, alias=a) for c, a in zip(table.columns, aliases, strict=True)), notes


def _custom_column_name(column: Column, name: str, legal: Legal) -> _CustomName:
    moves = column.alias and name and not column.retained
    return _CustomName(column.alias, legal("column", name, column.name) if moves else column.alias)


def _reassign_aliases(
    custom: Sequence[_CustomName], fold: Callable[[str], str], system: frozenset[str]
) -> tuple[list[str], list[int]]:
    """Return the aliases once those have moved that can, all at once, and the places of those that cannot."""
    going = [i for i, w in enumerate(custom) if w.requested != w.alias]
    stuck: list[int] = []
    while True:
        used = {fold(w.alias) for i, w in enumerate(custom) if i not in going and w.alias} | system
        fallen = []
        for i in going:
            name = fold(custom[i].requested)
            if name in used:
                fallen.append(i)
            used.add(name)
        if not fallen:
            return [w.requested if i in going else w.alias for i, w in enumerate(custom)], sorted(stuck)
        stuck += fallen
        going = [i for i in going if i not in fallen]


SYSTEM = ("synced", "deleted", "id", "meta", "extra", "valid_from", "valid_to", "current")
HASH = 8
LONGEST = 65_536
"""Characters of a name at the source: questions of a survey and keys of documents have hundreds or thousands."""
_SHOWN = 200

Style = Literal["ansi", "mysql", "spark"]
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_QUOTES: Mapping[Style, str] = {"ansi": '"', "mysql": "`", "spark": "`"}


@dataclass(frozen=True)
class Naming:
    """Naming rules of one connection in one destination.

    `namespace` holds its tables; `prefix` begins the system columns; tables of `default_schema` are named without
    their schema. `max_bytes` counts UTF-8. `case_sensitive`: the destination tells `A` from `a`.
    `forbidden` characters are mapped in columns, `forbidden_in_tables` in tables, whose names become folders.
    `reserved`: columns that every table of the destination has. `custom_names`: names that people give.
    """

    namespace: str
    prefix: str = "_instep_"
    default_schema: str = ""
    max_bytes: int = 255
    case_sensitive: bool = False
    forbidden: str = "."
    forbidden_in_tables: str = "./\\?#%:*"
    reserved: frozenset[str] = frozenset()
    custom_names: NamesOf = field(default=no_custom_names, compare=False, repr=False)

    def __post_init__(self) -> None:
        check_name(self.namespace, "the destination namespace")
        if self.max_bytes < 32:
            raise SchemaError(f"names of {self.max_bytes} bytes are too short", hint="use 32 bytes or more")

    def fold(self, name: str) -> str:
        """Equal for two names that the destination takes for one."""
        return name if self.case_sensitive else fold_case(name)

    @cached_property
    def system(self) -> frozenset[str]:
        """The names of the system columns, folded: our own and those that every table of the destination has."""
        return frozenset(self.fold(name) for name in (*(self.prefix + name for name in SYSTEM), *self.reserved))


def check_name(name: str, what: str) -> None:
    """Raise SchemaError, naming `what`, for a name that no destination can hold."""
    if why := flaw_of(name):
        raise SchemaError(
            f"{what} {why}: {name[:_SHOWN]!r}", hint="rename it in the source, or exclude it in the project file"
        )


def flaw_of(name: str) -> str:
    """Return why no destination can hold a name; "" if one can."""
    if len(name) > LONGEST:
        return f"has a name of {len(name):,} characters ({LONGEST:,} are the most)"
    if name.isascii() and name.isprintable() and name.strip():
        return ""
    if not name:
        return "has an empty name"
    if "\x00" in name:
        return "has a NUL in its name"
    if any("\ud800" <= c <= "\udfff" for c in name):
        return "has half a character (a lone surrogate) in its name"
    if all(unicodedata.category(c) in ("Zs", "Zl", "Zp", "Cc", "Cf") for c in name):
        return "has a name without a visible character"
    return ""


def unusable(catalog: Catalog, accepted: Catalog) -> dict[tuple[str, ...], str]:
    """Return why no destination can hold a name, by (schema, table) or (schema, table, column). Accepted objects
    have a usable one. A column whose name is empty cannot be left out of a read, so its table cannot be held."""
    names: dict[tuple[str, ...], str] = {}
    for table in catalog.tables:
        before = accepted.get(table.ref)
        if before is None and (why := flaw_of(table.name) or (table.schema and flaw_of(table.schema))):
            names[table.ref] = f"it {why}"
        flawed = {c.name: why for c in table.columns if (why := flaw_of(c.name))}
        if flawed.pop("", ""):
            names.setdefault(table.ref, "a column of it has an empty name")
        names |= {(*table.ref, n): f"it {why}" for n, why in flawed.items() if not before or n not in before.by_name}
    return names


@dataclass(frozen=True)
class _NameCandidate:
    """A name to be given: what it is now, what it should be, what that is without a hash, and what the hash is made
    of."""

    alias: str
    natural: str
    plain: str
    original: str
    exact: bool


def assign(catalog: Catalog, naming: Naming) -> Catalog:
    """Return `catalog` with every empty alias filled; existing ones stay. No two tables share an alias, nor two
    columns of a table, the system columns included. Raises SchemaError, naming table and column, for a name that
    cannot be stored and for duplicate aliases."""
    tables = sorted(catalog.tables, key=lambda t: t.ref)
    aliases = _give([_table_candidate(t, naming) for t in tables], naming, frozenset(), naming.namespace)
    return Catalog.of(_with_columns(replace(t, alias=a), naming) for t, a in zip(tables, aliases, strict=True))


def with_custom_names(catalog: Catalog, before: Catalog, origins: Mapping[Ref, Ref], naming: Naming) -> NamedCatalog:
    """Return `catalog` with the aliases that people have given meanwhile: see `follow_custom_names`."""

    def legal(kind: str, name: str, original: str) -> str:
        requested = name if kind == "table" else _unsystematic(name, naming)
        return _legal(requested, original, naming, table=kind == "table")[0]

    return follow_custom_names(catalog, before, origins, naming.custom_names, legal, naming.fold, naming.system)


def destination_ref(table: Table, naming: Naming) -> Ref:
    """Return (namespace, name) of an accepted table at the destination; raises SchemaError before `assign`."""
    if not table.alias:
        raise SchemaError(f"table {table.path} has no name at the destination yet", hint="apply the open plan first")
    return naming.namespace, table.alias


def _with_columns(table: Table, naming: Naming) -> Table:
    if all(c.alias for c in table.columns) and _distinct(table.columns, naming):
        return table
    candidates = [_column_candidate(table, c, naming) for c in table.columns]
    aliases = _give(candidates, naming, _system(table.columns, naming), f"table {table.path}")
    columns = (c if c.alias else replace(c, alias=a) for c, a in zip(table.columns, aliases, strict=True))
    return replace(table, columns=tuple(columns))


def _distinct(columns: tuple[Column, ...], naming: Naming) -> bool:
    folded = {naming.fold(c.alias) for c in columns}
    return len(folded) == len(columns) and not folded & _system(columns, naming)


def _system(columns: Sequence[Column], naming: Naming) -> frozenset[str]:
    """Return the folded names that no column may have; the row id's is free for itself."""
    reserved = {naming.fold(f"{naming.prefix}id")} if any(map(is_row_id, columns)) else set()
    return naming.system - reserved


def _table_candidate(table: Table, naming: Naming) -> _NameCandidate:
    custom = naming.custom_names(table.ref).table
    plain = bool(custom) or table.schema in ("", naming.default_schema)
    if not table.alias:
        check_name(table.name, f"a table of schema {table.schema!r}")
        check_name(table.schema or "-", "a schema")
    full = custom or (table.name if plain else f"{table.schema}__{table.name}")
    original = f"{table.schema}\0{table.name}"
    natural, clean = _legal(full, original, naming, table=True)
    return _NameCandidate(table.alias, natural, clean, original, exact=plain and natural == full)


def _column_candidate(table: Table, column: Column, naming: Naming) -> _NameCandidate:
    if is_row_id(column):
        row_id = f"{naming.prefix}id"
        return _NameCandidate(column.alias, row_id, row_id, column.name, exact=True)
    if not column.alias:
        check_name(column.name, f"a column of table {table.path}")
    name = naming.custom_names(table.ref).columns.get(column.name, column.name)
    natural, clean = _legal(_unsystematic(name, naming), column.name, naming)
    return _NameCandidate(column.alias, natural, clean, column.name, exact=natural == name)


def _unsystematic(name: str, naming: Naming) -> str:
    return f"src_{name}" if naming.fold(name) in naming.system else name


def _legal(name: str, original: str, naming: Naming, *, table: bool = False) -> tuple[str, str]:
    """Return `name` if the destination can hold it, else the nearest legal one with a hash of the original; and the
    legal one without the hash."""
    clean = _CONTROL.sub("_", name) if table else name
    for character in naming.forbidden_in_tables if table else naming.forbidden:
        clean = clean.replace(character, "_")
    short = clean.encode()[: naming.max_bytes].decode(errors="ignore")
    return (name if short == name else _hashed(clean, original, naming)), short


def _hashed(name: str, original: str, naming: Naming, attempt: int = 0) -> str:
    """Return `name`, shortened between characters, with a hash: `_` and 8 hex digits."""
    text = original + (f"\0{attempt}" if attempt else "")
    suffix = "_" + hashlib.sha256(text.encode()).hexdigest()[:HASH]
    return name.encode()[: naming.max_bytes - len(suffix)].decode(errors="ignore") + suffix


def _give(candidates: Sequence[_NameCandidate], naming: Naming, system: frozenset[str], where: str) -> list[str]:
    """Return an alias for each candidate: first those that are there, then names that need no change, then the
    others."""
    used = set(system)
    aliases = [candidate.alias for candidate in candidates]
    for alias in filter(None, aliases):
        if naming.fold(alias) in used:
            raise SchemaError(f"{where}: the name {alias} is used twice", hint="rename one of the two in the source")
        used.add(naming.fold(alias))
    for place in sorted(range(len(candidates)), key=lambda i: not candidates[i].exact):
        if not aliases[place]:
            aliases[place] = _free(candidates[place], naming, used)
            used.add(naming.fold(aliases[place]))
    return aliases


def _free(candidate: _NameCandidate, naming: Naming, used: Set[str]) -> str:
    tries = (_hashed(candidate.natural, candidate.original, naming, attempt) for attempt in count())
    return next(name for name in chain([candidate.natural], tries) if naming.fold(name) not in used)


@dataclass(frozen=True)
class Collision:
    """A table, or a `column` of it, that cannot have its name at the destination: `other` has it, or a `system`
    column does."""

    table: Table
    column: Column | None
    alias: str
    """Name that it gets instead."""
    other: str
    system: bool = False


def collisions(catalog: Catalog, naming: Naming) -> tuple[Collision, ...]:
    """Return what `assign` renames because of another name: tables first, then columns. Existing aliases stay and
    are never listed. Names collide if the destination takes them for one (`A` beside `a`), and if mapping or
    shortening makes them one. Raises SchemaError where `assign` does."""
    tables = sorted(catalog.tables, key=lambda t: t.ref)
    named = assign(catalog, naming)
    aliases = [named.by_ref[t.ref].alias for t in tables]
    met = _name_conflicts([_table_candidate(t, naming) for t in tables], aliases, naming)
    tables_renamed = [Collision(tables[i], None, aliases[i], tables[other].path) for i, other in met]
    return *tables_renamed, *(c for t in tables for c in _column_collisions(t, named.by_ref[t.ref], naming))


def _column_collisions(table: Table, named: Table, naming: Naming) -> Iterator[Collision]:
    columns, aliases = table.columns, [c.alias for c in named.columns]
    if all(c.alias for c in columns):
        return
    met = dict(_name_conflicts([_column_candidate(table, c, naming) for c in columns], aliases, naming))
    for place, column in enumerate(columns):
        if is_row_id(column):
            continue
        if not column.alias and naming.fold(column.name) in naming.system:
            yield Collision(table, column, aliases[place], naming.fold(column.name), system=True)
        elif place in met:
            yield Collision(table, column, aliases[place], columns[met[place]].name)


def _name_conflicts(
    candidates: Sequence[_NameCandidate], aliases: Sequence[str], naming: Naming
) -> Iterator[tuple[int, int]]:
    """Yield (position, position of the one that has the name) of the candidates without an alias that cannot have
    their own name."""
    holders: dict[str, int] = {}
    for place in sorted(range(len(candidates)), key=lambda i: (not candidates[i].alias, not candidates[i].exact)):
        candidate, alias = candidates[place], aliases[place]
        mapped = candidate.natural != candidate.plain
        other = holders.get(naming.fold(candidate.plain))
        if other is not None and not candidate.alias and (mapped or alias != candidate.natural):
            yield place, other
        for name in (alias, candidate.plain) if mapped else (alias,):
            holders.setdefault(naming.fold(name), place)


def quote(name: str, style: Style = "ansi") -> str:
    """Return `name` as an SQL identifier, always quoted (so that reserved words need no list); raises SchemaError
    for NUL and empty names."""
    if not name or "\x00" in name:
        raise SchemaError(f"{name!r} cannot be an SQL identifier", hint="rename it in the source")
    mark = _QUOTES[style]
    return mark + name.replace(mark, mark * 2) + mark
