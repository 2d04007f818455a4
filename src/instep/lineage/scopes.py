"""Names in a query: which table or subquery a column belongs to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from sqlglot import Dialect, exp
from sqlglot.dialects.dialect import NormalizationStrategy
from sqlglot.optimizer.scope import Scope

from instep.lineage.shape import UNKNOWN, ModelField, RelationShape

Lookup = Callable[[exp.Table], RelationShape]
METADATA = frozenset(
    {"_file", "_pos", "_partition", "_spec_id", "_deleted", "_row_id", "_last_updated_sequence_number"}
)
"""Columns that every Iceberg table has."""


@dataclass(frozen=True)
class Case:
    """Rule for equal names in a dialect."""

    strict: bool
    quoted: bool

    @classmethod
    def of(cls, dialect: str) -> Case:
        """Return the dialect's case rules. MySQL's columns ignore case although its tables may not."""
        rule = Dialect.get_or_raise(dialect).normalization_strategy
        strict = rule is NormalizationStrategy.CASE_SENSITIVE and dialect not in ("mysql", "tsql", "fabric", "doris")
        folding = (NormalizationStrategy.LOWERCASE, NormalizationStrategy.UPPERCASE)
        return cls(strict, strict or rule in folding)

    def exact(self, name: exp.Expr) -> bool:
        """Return whether it means one spelling only."""
        return self.quoted if name.args.get("quoted") else self.strict

    def find(self, shape: RelationShape, name: exp.Expr, *, coming: bool = False) -> ModelField | None:
        return shape.find(name.name, exact=self.exact(name), coming=coming)


@dataclass(frozen=True)
class ResolvedColumn:
    """Resolution of a column."""

    field: ModelField | None = None
    rivals: tuple[ModelField, ...] = ()
    """Columns on their way that would make its name ambiguous or take its place."""
    captured: bool = False
    missing: bool = False
    """True if no table that it can come from has it."""


class Sources:
    """Sources that the scopes of one query read, as far as resolved."""

    def __init__(self, case: Case, lookup: Lookup) -> None:
        self.case, self._lookup = case, lookup
        self._done: dict[int, RelationShape] = {}

    def put(self, scope: Scope, shape: RelationShape) -> None:
        self._done[id(scope)] = shape

    def got(self, scope: Scope) -> RelationShape:
        return self._done.get(id(scope), UNKNOWN)

    def of(self, scope: Scope) -> Mapping[str, RelationShape]:
        """Return the relations that a scope reads, by the names that they have there. A pivot adds unknown columns."""
        return {name: self._shape(node, source) for name, (node, source) in scope.selected_sources.items()}

    def _shape(self, node: exp.Expr, source: exp.Table | Scope) -> RelationShape:
        shape = self._lookup(source) if isinstance(source, exp.Table) else self.got(source)
        return replace(shape, open=True) if node.args.get("pivots") else shape

    def tables(self, scope: Scope) -> Iterator[tuple[exp.Table, RelationShape]]:
        """Yield the tables and models that the scope reads itself."""
        for _, source in scope.selected_sources.values():
            if isinstance(source, exp.Table):
                yield source, self._lookup(source)

    def resolve(self, scope: Scope, column: exp.Column) -> ResolvedColumn:
        """Resolve a column by its qualifier, else by the innermost scope whose tables have it."""
        parts = column.parts
        for place, part in enumerate(parts[:-1]):
            if (shape := self._named(scope, part)) is not None:
                name = parts[place + 1]
                field = self.case.find(shape, name)
                return ResolvedColumn(field, missing=not (field or shape.open or _hidden(name)))
        return self._bare(scope, parts[0])

    def _named(self, scope: Scope | None, name: exp.Expr) -> RelationShape | None:
        while scope is not None:
            for alias, shape in self.of(scope).items():
                if alias == name.name or (not self.case.exact(name) and alias.lower() == name.name.lower()):
                    return shape
            scope = _outer(scope)
        return None

    def _bare(self, scope: Scope, name: exp.Expr) -> ResolvedColumn:
        """Resolve a name from the inside out: an inner scope hides what an outer one has."""
        rivals: list[ModelField] = []
        at: Scope | None = scope
        open = False
        while at is not None:
            shapes = self.of(at).values()
            coming = [r for s in shapes if (r := self.case.find(s, name, coming=True))]
            fields = [f for s in shapes if (f := self.case.find(s, name))]
            if fields:
                return ResolvedColumn(fields[0], tuple(rivals or coming), captured=bool(rivals))
            rivals += coming
            if at is scope and _is_alias(at, name):
                return ResolvedColumn(None, tuple(rivals), captured=True)
            open = open or any(s.open for s in shapes) or not shapes
            at = _outer(at)
        return ResolvedColumn(None, tuple(rivals), captured=True, missing=not (open or _hidden(name)))


def _hidden(name: exp.Expr) -> bool:
    return name.name.lower() in METADATA


def _is_alias(scope: Scope, name: exp.Expr) -> bool:
    select = scope.expression
    aliases = (p.alias for p in select.selects if isinstance(p, exp.Alias)) if isinstance(select, exp.Query) else ()
    return name.name.lower() in map(str.lower, aliases)


def _outer(scope: Scope) -> Scope | None:
    """Return where a column that a scope does not have may come from: a CTE and a derived table see nothing around
    them."""
    while scope.is_set_operation and scope.parent is not None:
        scope = scope.parent
    return scope.parent if scope.is_subquery or scope.is_udtf else None
