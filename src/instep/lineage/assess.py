"""All models against all edits: which break, change in silence, cannot be judged or are safe."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from sqlglot.errors import SqlglotError

from instep.lineage.model import Model
from instep.lineage.parse import parts
from instep.lineage.read import read
from instep.lineage.shape import LEVELS, UNKNOWN, Level, ModelEdit, ModelFinding, ModelRelation, RelationShape, worst


@dataclass(frozen=True)
class ModelVerdict:
    """Verdict on one model under all changes."""

    model: Model
    findings: tuple[ModelFinding, ...]

    @property
    def level(self) -> Level:
        return worst(f.level for f in self.findings)

    def of(self, change: str) -> Level:
        """Return what one change does to it; what is wrong with the model itself makes it unknown for all of them."""
        return worst(f.level for f in self.findings if f.change in ("", change))


def assess(models: Sequence[Model], relations: Iterable[ModelRelation]) -> tuple[ModelVerdict, ...]:
    """Return one verdict a model, the worst first. `relations` are the tables of the destination with the edits on
    them."""
    judge = _Judge(models, relations)
    found = [ModelVerdict(model, judge.judge(place)[0]) for place, model in enumerate(models)]
    return tuple(sorted(found, key=lambda v: (LEVELS.index(v.level), v.model.name)))


class _Judge:
    """Models are read after those that they read."""

    def __init__(self, models: Sequence[Model], relations: Iterable[ModelRelation]) -> None:
        self._models = models
        self._tables = tuple(relations)
        self._done: dict[int, tuple[tuple[ModelFinding, ...], RelationShape]] = {}

    def judge(self, place: int) -> tuple[tuple[ModelFinding, ...], RelationShape]:
        if place not in self._done:
            self._done[place] = (), UNKNOWN
            findings, shape = self._read(place)
            self._done[place] = findings, _seen_by_readers(self._models[place], findings, shape)
        return self._done[place]

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
        """Without SQL: a table that goes breaks it, anything else may."""
        model = self._models[place]
        found: dict[ModelFinding, None] = {}
        for name in model.depends:
            shape = self._shape(name, place)
            for edit in shape.all_edits():
                whole = edit in shape.edits and edit.level == "breaks"
                why = edit.text if whole else f"{model.problem}; {edit.text}"
                found[ModelFinding(edit.change, "breaks" if whole else "unknown", why)] = None
        if not model.depends:
            found[ModelFinding("", "unknown", model.problem)] = None
        return tuple(found), UNKNOWN

    def _shape(self, name: tuple[str, ...], reader: int) -> RelationShape:
        """Return the relation that a name means: the one that agrees with it in most parts, models before tables."""
        best, shape, model = 0, UNKNOWN, -1
        for table in self._tables:
            if (score := _agreement(name, table.name)) > best:
                best, shape = score, table.shape
        for place, known in enumerate(self._models):
            score = _agreement(name, known.relation) if place != reader else 0
            if score and score >= best and (score > best or model < 0):
                best, model = score, place
        return self.judge(model)[1] if model >= 0 else shape


def _agreement(a: tuple[str, ...], b: tuple[str, ...]) -> int:
    """In how many parts two names agree, counted from the last, if one ends as the other does; else 0."""
    count = min(len(a), len(b))
    same = all(x.lower() == y.lower() for x, y in zip(a[-count:], b[-count:], strict=True))
    return count if count and same else 0


def _seen_by_readers(model: Model, findings: tuple[ModelFinding, ...], shape: RelationShape) -> RelationShape:
    """Return what breaks a model breaks its readers; what is unknown about it is unknown to them."""
    edits = [e for e in shape.edits if e.kind == "shifted"]
    for finding in findings:
        if finding.level == "breaks":
            edits.append(ModelEdit(finding.change, "broken", f"it reads {model.name}, which breaks"))
        elif finding.level == "unknown":
            edits.append(ModelEdit(finding.change, "unclear", f"it reads {model.name}, of which not all is known"))
    broken = {e.change for e in edits if e.kind == "broken"}
    fields = tuple(replace(f, edits=tuple(e for e in f.edits if e.change not in broken)) for f in shape.fields)
    return replace(shape, fields=fields, edits=tuple(dict.fromkeys(edits)))
