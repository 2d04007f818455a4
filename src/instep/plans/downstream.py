"""Models that read a connection's tables, and the effect of a plan on each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from instep.errors import InstepError, ProjectError
from instep.operations.spec import DirectWork
from instep.suggest import first_of

if TYPE_CHECKING:
    from instep.bootstrap import App
    from instep.lineage.model import Model
    from instep.lineage.shape import Level
    from instep.model import Job
    from instep.operations.decide.impact import ImpactRequest
    from instep.sync.context import SyncContext
    from instep.sync.operations.impact import ChangeImpact, ImpactReport, ImpactScope
    from instep.sync.schema_changes.evolve import PlanPreview

Line = tuple[str, str]
SHOWN = 5
"""Number of models that a line names."""
WORDS: tuple[tuple[Level, str], ...] = (
    ("breaks", "breaks"),
    ("silent", "silently changes"),
    ("unknown", "cannot be judged"),
    ("safe", "safe"),
)


@dataclass(frozen=True)
class Downstream:
    """The places of the models, and their SQL dialect."""

    manifest: Path | None = None
    sql: tuple[Path, ...] = ()
    dialect: str = ""

    def __bool__(self) -> bool:
        return bool(self.manifest or self.sql)


def configured(app: App, connection: str, dialect: str = "") -> Downstream:
    """Return the connection's `downstream`; paths are relative to the project's folder."""
    settings, root = app.project.connection(connection).downstream, app.project.root
    manifest = root / Path(settings.manifest).expanduser() if settings.manifest else None
    return Downstream(manifest, tuple(root / Path(p).expanduser() for p in settings.sql), dialect or settings.dialect)


def configured_models(app: App, connection: str, dialect: str = "") -> list[Model]:
    """Return the models that `downstream` names; ProjectError if it names none."""
    if where := configured(app, connection, dialect):
        return read_models(where)
    raise ProjectError(
        f"no downstream models are known for connection {connection}",
        hint="pass --manifest FILE or --sql FOLDER, or set `downstream` in instep.yml",
    )


def impact_document(report: ImpactReport) -> dict[str, Any]:
    """Return the impact as JSON has it; a command prints it from this, so that it may come from a server."""
    return {
        "breaks": report.breaks,
        "changes": [
            {"id": o.id, "summary": o.summary, "planned": o.planned, **{k: list(o.models.get(k, ())) for k, _ in WORDS}}
            for o in report.outcomes
        ],
        "models": [
            {
                "name": v.model.name,
                "relation": ".".join(v.model.relation),
                "kind": v.model.kind,
                "file": v.model.file,
                "verdict": v.level,
                "problem": v.model.problem,
                "reads": list(v.reads),
                "findings": [asdict(f) for f in v.findings],
            }
            for v in report.verdicts
        ],
    }


@dataclass(frozen=True)
class ImpactAnswer:
    """Effects of changes on models."""

    verdicts: Mapping[str, Any] | None = None
    """The document of `impact_document`, where the models are those of the project."""
    looked: ImpactScope | None = None
    """Coming changes of the tables, with which a client evaluates its own models."""

    def judge(self, models: Sequence[Model]) -> Mapping[str, Any]:
        """Return the document for these models."""
        from instep.sync.operations.impact import judged

        assert self.looked is not None, "it was asked for"
        return impact_document(judged(self.looked, models))

    @classmethod
    def of_job(cls, job: Job, decode: Callable[[Any, Mapping[str, Any]], Any]) -> ImpactAnswer:
        """Return the job's answer; `decode` makes a record of a document."""
        from instep.sync.operations.impact import ImpactScope

        return cls(job.result) if "models" in job.result else cls(looked=decode(ImpactScope, job.result))


class JudgeImpact(DirectWork):
    """The work of the operation `impact`."""

    def run(self, context: SyncContext, request: ImpactRequest) -> ImpactAnswer:
        """Detect the changes, and assess the project's models if requested."""
        from instep.sync.operations.impact import judged, looked
        from instep.sync.schema_changes.evolve import preview

        models = configured_models(self.app, context.name, request.dialect) if request.configured else None
        scope = looked(context, preview(context), request.change)
        return ImpactAnswer(looked=scope) if models is None else ImpactAnswer(impact_document(judged(scope, models)))

    def document(self, result: ImpactAnswer) -> Mapping[str, Any]:
        """Return the one of the two documents that exists."""
        return asdict(result.looked) if result.looked is not None else result.verdicts or {}


def read_models(where: Downstream) -> list[Model]:
    """Return the models of the manifest and of the folders; SetupError without sqlglot."""
    from instep.lineage.needed import needs_sqlglot

    with needs_sqlglot():
        from instep.lineage.load import read_manifest, read_sql
        from instep.lineage.parse import check_dialect
    dialect = check_dialect(where.dialect) if where.dialect else ""
    from_dbt = read_manifest(where.manifest, dialect) if where.manifest else []
    return [*from_dbt, *read_sql(where.sql, dialect or "spark")]


def downstream_lines(app: App, connection: str, preview: PlanPreview) -> list[Line]:
    """Return one line a change for `plan`; what is wrong with the settings is said and stops nothing."""
    where = configured(app, connection)
    if not where or not preview.detection.decisions:
        return []
    from instep.sync.operations.impact import report

    try:
        outcomes = report(app.sync_context(connection), preview, read_models(where), "").outcomes
    except InstepError as error:
        return [(f"downstream models were not evaluated: {error.message}", "yellow")]
    return list(_outcome_lines(outcomes))


def _outcome_lines(outcomes: tuple[ChangeImpact, ...]) -> Iterator[Line]:
    harmful = [o for o in outcomes if not o.harmless]
    if harmful:
        yield "Downstream", "bold"
    for verdict in harmful:
        style = "red" if verdict.models.get("breaks") else "yellow"
        yield f"  {verdict.id} {verdict.summary}: {counts(verdict.models)}", style


def counts(models: Mapping[Any, Sequence[str]]) -> str:
    """Return the names by level in one sentence: `breaks 3 models: a, b, c; silently changes 1 model: d`."""
    groups = ((word, models.get(level, ())) for level, word in WORDS[:3])
    parts = [f"{word} {models_of(len(names))}: {first_of(names, SHOWN)}" for word, names in groups if names]
    return "; ".join(parts) or "breaks nothing"


def models_of(count: int) -> str:
    return f"{count} model{'s' * (count != 1)}"
