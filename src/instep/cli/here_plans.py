"""Plans, undo and mappings at the project of this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from instep.bootstrap import App
    from instep.lineage.model import Model
    from instep.plans.planned import Planned


class PlansHere:
    def __init__(self, app: App) -> None:
        self.app = app

    def plan(
        self, connection: str, *, sample: int | None = None, every: bool = False, current: bool = False
    ) -> Planned:
        from instep.plans.planned import planned
        from instep.sync.changes.answer import refuse_stale
        from instep.sync.changes.evolve import preview

        found = preview(self.app.pipe(connection))
        if current:
            refuse_stale(found.detection)
        return planned(self.app, connection, found, sample=sample, every=every)

    def apply(self, made: Planned, allow: Sequence[str]) -> tuple[int, str]:
        from instep.schema.plan import plan_from_dict
        from instep.sync.changes.evolve import evolve

        plan, id = plan_from_dict(made.document["plan"]), str(made.document.get("id", ""))
        version = evolve(self.app.pipe(made.connection), plan, tuple(allow), id=id)
        return version, self.app.store.plans.history(made.connection, 1)[0].id

    def version(self, connection: str) -> int:
        latest = self.app.store.accepted.latest(connection)
        return latest.version if latest else 0

    def owner(self, what: str, connection: str | None) -> tuple[str, str]:
        if connection:
            return what, self.app.connection(connection)
        store = self.app.store
        if what.startswith("r-"):
            return what, store.runs.get(what).connection
        if what.startswith("p-"):
            return what, store.plans.get(what).connection
        return what, store.reviews.get(what).connection

    def impact(self, connection: str, models: Sequence[Model] | None, dialect: str, change: str) -> Mapping[str, Any]:
        from instep.plans.downstream import configured_models, impact_document
        from instep.sync.changes.evolve import preview
        from instep.sync.impact import report

        models = configured_models(self.app, connection, dialect) if models is None else models
        pipe = self.app.pipe(connection)
        return impact_document(report(pipe, preview(pipe), models, change))
