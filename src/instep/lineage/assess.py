"""All models against all edits: which break, change in silence, cannot be judged or are safe.

One query against what is about to change: what it does to the query, and to the columns that come out of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import Scope, traverse_scope

from instep.lineage.model import Model
from instep.lineage.parse import parts
from instep.lineage.scopes import Case, Lookup, ResolvedColumn, Sources
from instep.lineage.shape import (
    LEVELS,
    UNKNOWN,
    Level,
    ModelEdit,
    ModelField,
    ModelFinding,
    ModelRelation,
    RelationShape,
    worst,
)


@dataclass(frozen=True)
class ModelVerdict:
    """Verdict on one model under all changes."""

    model: Model
    findings: tuple[ModelFinding, ...]
    reads: tuple[str, ...] = ()
    """The models by name, and the tables as `namespace.table`, that it reads."""

    @property
    def level(self) -> Level:
        return worst(f.level for f in self.findings)

    def of(self, change: str) -> Level:
        """Return the effect of one change on it; a fault of the model itself makes it unknown for all of them."""
        return worst(f.level for f in self.findings if f.change in ("", change))


def assess(models: Sequence[Model], relations: Iterable[ModelRelation]) -> tuple[ModelVerdict, ...]:
    """Return one verdict a model, the worst first. `relations` are the tables of the destination with the edits on
    them."""
    judge = _Judge(models, relations)
    verdicts = [ModelVerdict(model, judge.judge(place)[0], judge.reads(place)) for place, model in enumerate(models)]
    return tuple(sorted(verdicts, key=lambda v: (LEVELS.index(v.level), v.model.name)))


class _Judge:
    """Models are read after those that they read."""

    def __init__(self, models: Sequence[Model], relations: Iterable[ModelRelation]) -> None:
        self._models = models
        self._tables = tuple(relations)
        self._done: dict[int, tuple[tuple[ModelFinding, ...], RelationShape]] = {}
        self._found: dict[int, set[str]] = {}

    def judge(self, place: int) -> tuple[tuple[ModelFinding, ...], RelationShape]:
        if place not in self._done:
            self._done[place] = (), UNKNOWN
            findings, shape = self._read(place)
            self._done[place] = findings, _seen_by_readers(self._models[place], findings, shape)
        return self._done[place]

    def reads(self, place: int) -> tuple[str, ...]:
        """Return the relations that an assessed model reads."""
        return tuple(sorted(self._found.get(place, ())))

    def _read(self, place: int) -> tuple[tuple[ModelFinding, ...], RelationShape]:
        model = self._models[place]
        if model.query is None:
            return self._by_dependencies(place)
        try:
            return read(model.query, model.dialect, lambda table: self._shape(parts(table), place))
        except (SqlglotError, RecursionError) as error:
            why = f"it cannot be followed: {str(error).splitlines()[0]}"
            self._models = [replace(m, problem=why) if i == place else m for i, m in enumerate(self._models)]
            return self._by_dependencies(place)

    def _by_dependencies(self, place: int) -> tuple[tuple[ModelFinding, ...], RelationShape]:
        """Assess a model without its SQL: a removed table breaks it, any other change may."""
        model = self._models[place]
        findings: dict[ModelFinding, None] = {}
        for name in model.depends:
            shape = self._shape(name, place)
            for edit in shape.all_edits():
                whole = edit in shape.edits and edit.level == "breaks"
                why = edit.text if whole else f"{model.problem}; {edit.text}"
                findings[ModelFinding(edit.change, "breaks" if whole else "unknown", why)] = None
        if not model.depends:
            findings[ModelFinding("", "unknown", model.problem)] = None
        return tuple(findings), UNKNOWN

    def _shape(self, name: tuple[str, ...], reader: int) -> RelationShape:
        """Return the relation that a name means: the one that agrees with it in most parts, models before tables."""
        best, shape, model, known_as = 0, UNKNOWN, -1, ""
        for table in self._tables:
            if (score := _agreement(name, table.name)) > best:
                best, shape, known_as = score, table.shape, ".".join(table.name)
        for place, other in enumerate(self._models):
            score = _agreement(name, other.relation) if place != reader else 0
            if score and score >= best and (score > best or model < 0):
                best, model, known_as = score, place, other.name
        if known_as:
            self._found.setdefault(reader, set()).add(known_as)
        return self.judge(model)[1] if model >= 0 else shape


def _agreement(a: tuple[str, ...], b: tuple[str, ...]) -> int:
    """Return in how many parts two names agree, counted from the last, if one ends as the other does; else 0."""
    count = min(len(a), len(b))
    same = all(x.lower() == y.lower() for x, y in zip(a[-count:], b[-count:], strict=True))
    return count if count and same else 0


def _seen_by_readers(model: Model, findings: tuple[ModelFinding, ...], shape: RelationShape) -> RelationShape:
    """Return the shape as readers see it: what breaks a model breaks its readers, and what is unknown about it is
    unknown to them."""
    edits = [e for e in shape.edits if e.kind == "shifted"]
    for finding in findings:
        if finding.level == "breaks":
            edits.append(ModelEdit(finding.change, "broken", f"it reads {model.name}, which breaks"))
        elif finding.level == "unknown":
            edits.append(ModelEdit(finding.change, "unclear", f"it reads {model.name}, which is only partly known"))
    broken = {e.change for e in edits if e.kind == "broken"}
    fields = tuple(replace(f, edits=tuple(e for e in f.edits if e.change not in broken)) for f in shape.fields)
    return replace(shape, fields=fields, edits=tuple(dict.fromkeys(edits)))


Result = tuple[tuple[ModelFinding, ...], RelationShape]


def read(query: exp.Expr, dialect: str, lookup: Lookup) -> Result:
    """Return the findings of a query (or of CREATE ... AS and INSERT ... of one) and the shape of what it yields."""
    scopes = [s for s in traverse_scope(query) if not s.is_udtf]
    reading = _Reading(Sources(Case.of(dialect), lookup))
    for scope in scopes:
        reading.scope(scope)
    root = scopes[-1] if scopes else None
    return reading.result(root, query) if root is not None else ((), UNKNOWN)


class _Reading:
    """The scopes of one query, from the innermost outwards."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._case = sources.case
        self._findings: dict[tuple[str, Level, str], ModelFinding] = {}
        self._stale: dict[int, tuple[ModelEdit, ...]] = {}
        self._shifted: dict[str, ModelEdit] = {}

    def result(self, root: Scope, query: exp.Expr) -> Result:
        shape = self._landed(query, self._sources.got(root))
        named = {f.change for f in self._findings.values()}
        for field in shape.fields:
            for edit in field.edits:
                if edit.change not in named:
                    self._add(edit, "silent", f"`*` passes it on: {edit.text}", root.expression, field.name)
        findings = tuple(self._findings.values())
        return findings, replace(shape, edits=(*shape.edits, *self._shifted.values()))

    def _add(self, edit: ModelEdit, level: Level, why: str, node: exp.Expr, output: str = "") -> None:
        finding = ModelFinding(edit.change, level, why, _line(node), output)
        self._findings.setdefault((edit.change, level, why), finding)

    def _shift(self, edit: ModelEdit, why: str, node: exp.Expr) -> None:
        """Report that the model returns other rows, in silence."""
        self._add(edit, "silent", why, node)
        self._shifted.setdefault(edit.change, ModelEdit(edit.change, "shifted", edit.text))

    def scope(self, scope: Scope) -> None:
        for table, shape in self._sources.tables(scope):
            for edit in shape.edits:
                if edit.kind in ("stale", "shifted"):
                    self._shift(edit, edit.text, table)
                else:
                    self._add(edit, edit.level, edit.text, table)
        for column in scope.find_all(exp.Column):
            if not isinstance(column.this, exp.Star):
                self._column(scope, column)
        for join in scope.expression.args.get("joins") or ():
            self._join(scope, join)
        for star in scope.find_all(exp.Star):
            self._star(scope, star)
        self._sources.put(scope, self._output(scope))

    def _column(self, scope: Scope, column: exp.Column) -> None:
        resolved = self._sources.resolve(scope, column)
        if resolved.missing:
            why = f"no table that it reads has a column {column.sql()}"
            self._add(ModelEdit("", "unclear", why), "unknown", why, column)
        output = _output_of(scope, column)
        excepted = column.find_ancestor(exp.Star) is not None
        stale: list[ModelEdit] = []
        for edit in resolved.field.edits if resolved.field else ():
            if edit.level == "silent":
                self._quiet(edit, column, output, excepted)
                stale.append(edit)
            elif not (excepted and edit.kind == "retyped"):
                self._add(edit, edit.level, f"it names {column.sql()}: {edit.text}", column, output)
        self._stale[id(column)] = tuple(stale)
        self._report_ambiguity(scope, column, resolved)

    def _quiet(self, edit: ModelEdit, column: exp.Column, output: str, excepted: bool) -> None:
        why = f"it reads {column.sql()}: {edit.text}"
        if output:
            self._add(edit, "silent", why, column, output)
        elif not excepted:
            self._shift(edit, why, column)

    def _report_ambiguity(self, scope: Scope, column: exp.Column, resolved: ResolvedColumn) -> None:
        """Report that a natural join makes one column of two."""
        natural = any(j.method.upper() == "NATURAL" for j in scope.expression.args.get("joins") or ())
        for rival in resolved.rivals:
            for edit in rival.edits:
                if resolved.captured or natural:
                    self._shift(edit, f"{column.sql()} means another column then: {edit.text}", column)
                else:
                    self._add(edit, "breaks", f"{column.sql()} becomes ambiguous: {edit.text}", column)

    def _join(self, scope: Scope, join: exp.Join) -> None:
        shapes = list(self._sources.of(scope).values())
        for name in join.args.get("using") or ():
            for shape in shapes:
                field = self._case.find(shape, name)
                for edit in field.edits if field else ():
                    if edit.level == "silent":
                        self._shift(edit, f"it joins using {name.name}: {edit.text}", name)
                    else:
                        self._add(edit, edit.level, f"it joins using {name.name}: {edit.text}", name)
        if join.method.upper() == "NATURAL":
            self._natural(join, shapes)

    def _natural(self, join: exp.Join, shapes: list[RelationShape]) -> None:
        """Judge a NATURAL JOIN: a column of both sides that comes, goes or changes is a change of the condition."""
        for at, shape in enumerate(shapes):
            others = {f.name.lower() for i, other in enumerate(shapes) if i != at for f in other.fields}
            for field in shape.fields:
                if field.name.lower() in others:
                    for edit in field.edits:
                        self._shift(edit, f"its natural join is by other columns: {edit.text}", join.this)

    def _star(self, scope: Scope, star: exp.Star) -> None:
        """Report a `*` inside a function other than count(), which makes a value of all columns."""
        node = star.parent if isinstance(star.parent, exp.Column) else star
        if isinstance(node.parent, exp.Count | exp.Select):
            return
        for field in self._expanded(scope, node).fields:
            for edit in field.edits:
                self._add(edit, "silent", f"`*` inside {_function(node)} takes it in: {edit.text}", star)

    def _output(self, scope: Scope) -> RelationShape:
        if scope.set_operation_scopes:
            shape = self._combined(scope)
        elif isinstance(scope.expression, exp.Select):
            shape = self._selected(scope, scope.expression)
        else:
            return UNKNOWN
        if scope.is_subquery and not isinstance(scope.expression.find_ancestor(exp.Exists, exp.Select), exp.Exists):
            self._count(shape, scope.expression, "a subquery yields another number of columns")
        return self._renamed(scope, shape) if scope.outer_columns and not scope.is_set_operation else shape

    def _renamed(self, scope: Scope, shape: RelationShape) -> RelationShape:
        """Rename the fields after the column list of `x(a, b)`, and check their count."""
        self._count(shape, scope.expression, "a list of column names no longer fits")
        existing = [f for f in shape.fields if not f.coming]
        return RelationShape(
            tuple(ModelField(n, f.edits if f else ()) for n, f in zip_longest(scope.outer_columns, existing) if n),
            shape.open,
        )

    def _landed(self, query: exp.Expr, shape: RelationShape) -> RelationShape:
        """Return the shape that a CREATE or INSERT makes of its query: a list of columns has to fit."""
        listed = query.this.expressions if isinstance(query.this, exp.Schema) else []
        if listed or isinstance(query, exp.Insert):
            self._count(shape, query, "the selected columns no longer fit its column list")
        existing = [f for f in shape.fields if not f.coming]
        fields = (ModelField(name.name, f.edits if f else ()) for name, f in zip_longest(listed, existing) if name)
        return replace(shape, fields=tuple(fields)) if listed else shape

    def _count(self, shape: RelationShape, node: exp.Expr, why: str) -> None:
        for edit in _counted(shape):
            self._add(edit, "breaks", f"{why}: {edit.text}", node)

    def _selected(self, scope: Scope, select: exp.Select) -> RelationShape:
        fields: list[ModelField] = []
        open = False
        for projection in select.expressions:
            if _is_star(projection):
                part = self._expanded(scope, projection)
                fields, open = [*fields, *part.fields], open or part.open
            else:
                fields.append(ModelField(projection.output_name, self._passed(projection)))
        shape = RelationShape(tuple(fields), open)
        if select.args.get("distinct"):
            self._compare_all(shape, "distinct", select)
        return shape

    def _passed(self, projection: exp.Expr) -> tuple[ModelEdit, ...]:
        """Return the edits that an expression inherits from its columns."""
        return tuple({e: None for c in projection.find_all(exp.Column) for e in self._stale.get(id(c), ())})

    def _compare_all(self, shape: RelationShape, by: str, node: exp.Expr) -> None:
        for field in shape.fields:
            for edit in field.edits:
                self._shift(edit, f"{by} compares all columns: {edit.text}", node)

    def _expanded(self, scope: Scope, star: exp.Expr) -> RelationShape:
        """Return the columns of a `*` or `t.*`, without those that its EXCEPT names."""
        of = self._sources.of(scope)
        qualifier = star.args.get("table") if isinstance(star, exp.Column) else None
        shapes = [s for n, s in of.items() if qualifier is None or n.lower() == qualifier.name.lower()]
        inner = star.this if isinstance(star, exp.Column) else star
        left_out = {n.name.lower() for n in inner.args.get("except_") or ()}
        fields = tuple(f for s in shapes for f in s.fields if f.name.lower() not in left_out)
        return RelationShape(fields, not shapes or any(s.open for s in shapes))

    def _combined(self, scope: Scope) -> RelationShape:
        left, right = map(self._sources.got, scope.set_operation_scopes)
        node = scope.expression
        if not node.args.get("by_name"):
            for edit in _unpaired(left, right):
                self._add(edit, "breaks", f"one side of a {node.key} gets another number of columns: {edit.text}", node)
        pairs = zip_longest(left.fields, right.fields)
        fields = tuple(replace(a or b, edits=_merged(a, b)) for a, b in pairs if a or b)
        shape = RelationShape(fields, left.open or right.open)
        if node.args.get("distinct"):
            self._compare_all(shape, node.key, node)
        return shape


def _merged(a: ModelField | None, b: ModelField | None) -> tuple[ModelEdit, ...]:
    return tuple(dict.fromkeys([*(a.edits if a else ()), *(b.edits if b else ())]))


def _counted(shape: RelationShape) -> Iterator[ModelEdit]:
    """Return the edits that change the number of columns."""
    return (edit for field in shape.fields for edit in field.edits if edit.kind in ("added", "gone"))


def _unpaired(left: RelationShape, right: RelationShape) -> Iterable[ModelEdit]:
    """Return the edits that do so on one side only. The same change on both sides keeps them equal."""
    sides = [{(e.change, e.kind): e for e in _counted(shape)} for shape in (left, right)]
    return [side[key] for side, other in (sides, sides[::-1]) for key in side if key not in other]


def _is_star(projection: exp.Expr) -> bool:
    return isinstance(projection, exp.Star) or (
        isinstance(projection, exp.Column) and isinstance(projection.this, exp.Star)
    )


def _function(node: exp.Expr) -> str:
    return f"{node.parent.sql_name().lower()}()" if isinstance(node.parent, exp.Func) else "an expression"


def _output_of(scope: Scope, column: exp.Column) -> str:
    """Return the output column that it is part of; empty in conditions, and for subqueries."""
    node: exp.Expr = column
    while node.parent is not None and node.parent is not scope.expression:
        node = node.parent
    if node.arg_key != "expressions" or _is_star(node):
        return ""
    return node.output_name or node.sql()


def _line(node: exp.Expr) -> int:
    for part in node.find_all(exp.Identifier, exp.Star):
        if line := part.meta.get("line"):
            return int(line)
    return 0
