"""Edits carried out on a catalog in memory, as the database would carry them out: what a migration leads to.

Identities are kept: a column that is renamed keeps its id, one that is dropped and added again gets another. Where the
catalog has none, what comes has none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from instep.errors import SchemaError
from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import DataType
from instep.schema.changes import edits as ddl
from instep.schema.changes.diff import WEAK

Ref = tuple[str, str]
_NO_KEY = re.compile(
    r"(_key|_fkey|fk|check|chk|ck|uniq|unique|uq|uk|excl|not_null|nn)(_?\d*)$|^(fk|chk|ck|uq|uk|uniq)_", re.I
)
"""The names of constraints that are no primary key."""
Declared = Callable[[str], tuple[DataType, str, str]]
"""The type, the native text and the note of a type as SQL declares it."""


@dataclass(frozen=True)
class Rules:
    """Rules of a database for names and types."""

    default_schema: str
    types: Declared
    folds: bool = False
    """True if names that differ in case only are one."""
    transactional: bool = True
    """A rollback takes back what was done to schemas."""
    nullable_keys: bool = False
    """A primary key alone does not forbid NULL."""

    @classmethod
    def of(cls, dialect: str, default_schema: str, types: Declared) -> Rules:
        """Return the rules of a dialect of lineage/migration."""
        return cls(default_schema, types, dialect != "postgres", dialect != "mysql", dialect == "sqlite")

    def keeps_null(self, column: Column, key: tuple[str, ...]) -> bool:
        """Return whether a column of a key may hold NULL: in SQLite, but for a lone `integer`."""
        return self.nullable_keys and not (len(key) == 1 and column.native.upper() == "INTEGER")


@dataclass
class StatementEffect:
    """A statement that touched a table, or a column of it. `tables` and `columns` are all names that they had and get
    (shared with later statements); `columns` is None for the table as a whole."""

    statement: int
    tables: set[Ref]
    columns: set[str] | None = None
    key: bool = False


@dataclass
class _RehearsedTable:
    """A table with the names that it and its columns have had."""

    table: Table
    refs: set[Ref]
    columns: dict[str, set[str]]
    key_name: str = ""

    @classmethod
    def of(cls, table: Table) -> _RehearsedTable:
        return cls(table, {table.ref}, {c.name: {c.name} for c in table.columns})

    def copy(self) -> _RehearsedTable:
        return replace(self, columns=dict(self.columns))


@dataclass
class Rehearsal:
    """The state between statements."""

    rules: Rules
    touches: list[StatementEffect] = field(default_factory=list)
    unknown: dict[int, str] = field(default_factory=dict)
    """Tables that statements name and the catalog lacks."""
    _tables: dict[Ref, _RehearsedTable] = field(default_factory=dict)
    _path: tuple[str, ...] = ()
    _saved: tuple[dict[Ref, _RehearsedTable], tuple[str, ...]] | None = None
    _count: int = 0
    _ids: bool = False
    _column_ids: bool = False
    _weak: bool = False
    _now: int = 0
    _own: set[Ref] = field(default_factory=set)

    @classmethod
    def of(cls, catalog: Catalog, rules: Rules) -> Rehearsal:
        rehearsal = cls(rules)
        rehearsal._tables = {t.ref: _RehearsedTable.of(t) for t in catalog.tables}
        rehearsal._ids = any(t.id for t in catalog.tables)
        rehearsal._weak = any((t.id or "").startswith(WEAK) for t in catalog.tables)
        rehearsal._column_ids = any(c.id for t in catalog.tables for c in t.columns)
        rehearsal._path = (rules.default_schema,)
        return rehearsal

    @property
    def catalog(self) -> Catalog:
        return Catalog.of(e.table for e in self._tables.values())

    def run(self, statement: int, edits: Iterable[ddl.Edit]) -> None:
        """Run one statement: all of it or, raising SchemaError, nothing."""
        before, touched = dict(self._tables), len(self.touches)
        self._now = statement
        self._own = set()
        try:
            for edit in edits:
                self._run(edit)
        except SchemaError:
            self._tables = before
            del self.touches[touched:]
            raise

    def _owned(self, ref: Ref) -> _RehearsedTable:
        """Return the table, to be altered by this statement: what was saved before keeps its own."""
        if ref not in self._own:
            self._tables[ref] = self._tables[ref].copy()
            self._own.add(ref)
        return self._tables[ref]

    def _run(self, edit: ddl.Edit) -> None:
        match edit:
            case ddl.SetPath():
                self._path = edit.schemas or (self.rules.default_schema,)
            case ddl.Transaction():
                self._transaction(edit.word)
            case ddl.DropSchema():
                for ref in [ref for ref in self._tables if self._same(ref[0], edit.name)]:
                    self._drop(self._owned(ref))
            case ddl.RenameSchema():
                for ref in [ref for ref in self._tables if self._same(ref[0], edit.name)]:
                    self._move(self._owned(ref), (edit.to, ref[1]))
            case ddl.CreateTable():
                self._create(edit)
            case _:
                if entry := self._find(edit.table):
                    self._edit(entry, edit)

    def _transaction(self, word: str) -> None:
        """Begin, commit or roll back a transaction. A second `begin` is ignored; a rollback restores the search path
        as well."""
        if word == "begin":
            self._saved = self._saved or (dict(self._tables), self._path)
            return
        if word == "rollback" and self._saved is not None and self.rules.transactional:
            self._tables, self._path = self._saved
        self._saved = None

    def _same(self, a: str, b: str) -> bool:
        return a == b or (self.rules.folds and a.casefold() == b.casefold())

    def _find(self, name: ddl.Name) -> _RehearsedTable | None:
        """Return the table by its name, looked up as the search path says."""
        for schema in name[:-1] or self._path:
            if (ref := self._known((schema, name[-1]))) is not None:
                return self._owned(ref)
        self.unknown.setdefault(self._now, ".".join(name))
        return None

    def _known(self, name: Ref) -> Ref | None:
        if name in self._tables or not self.rules.folds:
            return name if name in self._tables else None
        return next((r for r in self._tables if self._same(r[0], name[0]) and self._same(r[1], name[1])), None)

    def _edit(self, entry: _RehearsedTable, edit: ddl.OfTable) -> None:
        match edit:
            case ddl.DropTable():
                self._drop(entry)
            case ddl.RenameTable():
                self._move(entry, (edit.schema or entry.table.schema, edit.name or entry.table.name))
            case ddl.AddKey():
                names = tuple(self._column(entry, n).name for n in edit.columns)
                self._first_key(entry)
                self._key(entry, names, edit.name)
            case ddl.DropKey():
                self._key(entry, ())
            case ddl.DropConstraint():
                self._drop_constraint(entry, edit.name)
            case ddl.SetComment(column=""):
                self._put(
                    entry, replace(entry.table, comment=edit.text or None), StatementEffect(self._now, entry.refs)
                )
            case _:
                self._edit_column(entry, edit)

    def _edit_column(self, entry: _RehearsedTable, edit: ddl.OfTable) -> None:
        match edit:
            case ddl.AddColumn():
                self._add(entry, edit.column, or_not=edit.or_not)
            case ddl.DropColumn():
                self._drop_column(entry, edit)
            case ddl.RenameColumn():
                self._rename(entry, self._column(entry, edit.name).name, edit.to)
            case ddl.RedefineColumn():
                self._redefine(entry, edit)
            case ddl.AlterType():
                self._change(entry, self._column(entry, edit.name), **self._typed(edit.declared))
            case ddl.AlterNullability():
                column = self._column(entry, edit.name)
                if edit.nullable and column.key:
                    raise SchemaError(f"column {entry.table.path}.{column.name} is in the primary key")
                self._change(entry, column, nullable=edit.nullable)
            case ddl.AlterDefault():
                column = self._column(entry, edit.name)
                self._change(entry, column, default=_unchanged_default(column.default, edit.default))
            case ddl.SetComment():
                self._change(entry, self._column(entry, edit.column), comment=edit.text or None)

    def _put(self, entry: _RehearsedTable, table: Table, touch: StatementEffect) -> None:
        entry.table = table
        self.touches.append(touch)

    def _column(self, entry: _RehearsedTable, name: str) -> Column:
        for column in entry.table.columns:
            if self._same(column.name, name):
                return column
        raise SchemaError(f"table {entry.table.path} has no column {name}")

    def _typed(self, declared: str) -> dict[str, object]:
        kind, native, note = self.rules.types(declared)
        return {"type": kind, "native": native, "note": note}

    def _change(self, entry: _RehearsedTable, column: Column, **new: object) -> None:
        columns = tuple(replace(c, **new) if c is column else c for c in entry.table.columns)  # type: ignore[arg-type]
        touch = StatementEffect(self._now, entry.refs, entry.columns[column.name])
        self._put(entry, replace(entry.table, columns=columns), touch)

    def _new_id(self, prefix: str) -> str:
        """Return an id that nothing ever had, retained objects included."""
        self._count += 1
        return f"{prefix}new:{self._count}"

    def _new(self, definition: ddl.ColumnDefinition) -> Column:
        id = self._new_id("") if self._column_ids else None
        kind, native, note = self.rules.types(definition.declared)
        return Column(
            definition.name, kind, definition.nullable, id, 0, definition.default, definition.comment, native, note
        )

    def _add(self, entry: _RehearsedTable, definition: ddl.ColumnDefinition, *, or_not: bool = False) -> None:
        if any(self._same(c.name, definition.name) for c in entry.table.columns):
            if or_not:
                return
            raise SchemaError(f"table {entry.table.path} has a column {definition.name} already")
        column = self._new(definition)
        entry.columns[column.name] = {column.name}
        columns = self._placed(entry, [*entry.table.columns, column], column, definition.after)
        touch = StatementEffect(self._now, entry.refs, entry.columns[column.name])
        self._put(entry, replace(entry.table, columns=columns), touch)
        if definition.primary:
            self._first_key(entry)
            self._key(entry, (column.name,))

    def _placed(
        self, entry: _RehearsedTable, columns: Sequence[Column], moved: Column, after: str | None
    ) -> tuple[Column, ...]:
        if after is None:
            return tuple(columns)
        others = [c for c in columns if c is not moved]
        if after and self._column(entry, after) is moved:
            raise SchemaError(f"column {entry.table.path}.{moved.name} cannot come after itself")
        at = others.index(self._column(entry, after)) + 1 if after else 0
        return (*others[:at], moved, *others[at:])

    def _drop_column(self, entry: _RehearsedTable, edit: ddl.DropColumn) -> None:
        try:
            column = self._column(entry, edit.name)
        except SchemaError:
            if edit.or_not:
                return
            raise
        if column.key and self.rules.nullable_keys:
            raise SchemaError(f"column {entry.table.path}.{column.name} is in the primary key")
        if self.rules.folds and len(entry.table.columns) == 1:
            raise SchemaError(f"{entry.table.path}.{column.name} is the last column of its table")
        touch = StatementEffect(self._now, entry.refs, entry.columns.pop(column.name), key=bool(column.key))
        columns = tuple(c for c in entry.table.columns if c is not column)
        self._put(entry, replace(entry.table, columns=columns), touch)
        if column.key:
            key = tuple(n for n in entry.table.key if n != column.name) if self.rules.folds else ()
            self._key(entry, key)

    def _rename(self, entry: _RehearsedTable, name: str, to: str) -> None:
        if any(self._same(c.name, to) and c.name != name for c in entry.table.columns):
            raise SchemaError(f"table {entry.table.path} has a column {to} already")
        columns = tuple(replace(c, name=to) if c.name == name else c for c in entry.table.columns)
        names = entry.columns.pop(name)
        names.add(to)
        entry.columns[to] = names
        self._put(entry, replace(entry.table, columns=columns), StatementEffect(self._now, entry.refs, names))

    def _redefine(self, entry: _RehearsedTable, edit: ddl.RedefineColumn) -> None:
        column, definition = self._column(entry, edit.name), edit.column
        if definition.name != column.name:
            self._rename(entry, column.name, definition.name)
            column = self._column(entry, definition.name)
        self._change(
            entry,
            column,
            nullable=definition.nullable and not column.key,
            default=_unchanged_default(column.default, definition.default),
            comment=definition.comment,
            **self._typed(definition.declared),
        )
        if definition.after is not None:
            moved = self._column(entry, definition.name)
            entry.table = replace(
                entry.table, columns=self._placed(entry, entry.table.columns, moved, definition.after)
            )
        if definition.primary and entry.table.key != (definition.name,):
            self._first_key(entry)
            self._key(entry, (definition.name,))

    def _first_key(self, entry: _RehearsedTable) -> None:
        if entry.table.key:
            raise SchemaError(f"table {entry.table.path} has a primary key already")

    def _key(self, entry: _RehearsedTable, names: tuple[str, ...], called: str = "") -> None:
        if len(set(names)) < len(names):
            raise SchemaError(f"the key of {entry.table.path} has a column twice: {', '.join(names)}")
        places = {name: place for place, name in enumerate(names, 1)}
        columns = tuple(
            replace(c, key=places.get(c.name, 0), nullable=c.nullable and self._may_be_null(c, names))
            for c in entry.table.columns
        )
        entry.key_name = called
        self._put(entry, replace(entry.table, columns=columns), StatementEffect(self._now, entry.refs, None, key=True))

    def _may_be_null(self, column: Column, key: tuple[str, ...]) -> bool:
        return column.name not in key or self.rules.keeps_null(column, key)

    def _drop_constraint(self, entry: _RehearsedTable, name: str) -> None:
        """Drop a constraint. Catalogs do not record the name of a key: it is `<table>_pkey` unless the script names
        it."""
        usual = {f"{ref[1]}_pkey" for ref in entry.refs} | {"PRIMARY"} | ({entry.key_name} - {""})
        if name in usual and entry.table.key:
            self._key(entry, ())
        elif entry.table.key and not _NO_KEY.search(name):
            raise SchemaError(f"whether {name} is the primary key of {entry.table.path} is not known")

    def _drop(self, entry: _RehearsedTable) -> None:
        del self._tables[entry.table.ref]
        self._own.discard(entry.table.ref)
        self.touches.append(StatementEffect(self._now, entry.refs))

    def _move(self, entry: _RehearsedTable, ref: Ref) -> None:
        if (existing := self._known(ref)) in self._tables and existing != entry.table.ref:
            raise SchemaError(f"there is a table {'.'.join(existing or ref)} already")
        del self._tables[entry.table.ref]
        self._own.discard(entry.table.ref)
        entry.refs.add(ref)
        self._tables[ref] = entry
        self._own.add(ref)
        self._put(entry, replace(entry.table, schema=ref[0], name=ref[1]), StatementEffect(self._now, entry.refs))

    def _create(self, edit: ddl.CreateTable) -> None:
        schema = edit.table[0] if len(edit.table) > 1 else self._path[0]
        existing = self._known((schema, edit.table[-1]))
        if existing is not None:
            if edit.or_not:
                return
            raise SchemaError(f"there is a table {'.'.join(existing)} already")
        like = self._find(edit.like) if edit.like else None
        if edit.like and like is None:
            raise SchemaError(f"the columns of {'.'.join(edit.like)} are not known")
        id = self._new_id(WEAK if self._weak else "") if self._ids else None
        table = Table(schema, edit.table[-1], (), id, edit.kind, comment=edit.comment)
        if like:
            whole = edit.like_whole
            columns = tuple(c if whole else replace(c, key=0, comment=None, default=None) for c in like.table.columns)
            table = replace(table, columns=columns, comment=like.table.comment if whole else None)
        entry = _RehearsedTable.of(table)
        for definition in edit.columns:
            column = self._new(definition)
            if any(self._same(c.name, definition.name) for c in entry.table.columns):
                raise SchemaError(f"table {table.path} has a column {definition.name} already")
            entry.columns[column.name] = {column.name}
            entry.table = replace(entry.table, columns=(*entry.table.columns, column))
        self._tables[table.ref] = entry
        self._own.add(table.ref)
        self.touches.append(StatementEffect(self._now, entry.refs))
        if edit.key:
            self._key(entry, tuple(self._column(entry, n).name for n in edit.key), edit.key_name)


def _unchanged_default(before: str | None, after: str | None) -> str | None:
    """Return the recorded text of a default, if the new one says the same in other words."""
    return before if before is not None and after is not None and _plain(before) == _plain(after) else after


def _plain(text: str) -> str:
    return text.partition("::")[0].strip("'()").casefold()
