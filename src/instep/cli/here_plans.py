"""Plans, undo and mappings at the project of this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from instep.remote.desks import Pairing, Undoing

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

    def undoing(self, what: str, connection: str | None) -> Undoing:
        from instep.sync.changes.undo import find, prepare

        pipe = self.app.pipe(self._of(what, connection))
        made = prepare(pipe, find(pipe, what))
        return Undoing(pipe.name, made.document(), made)

    def _of(self, what: str, name: str | None) -> str:
        """A change, a run and a plan know theirs."""
        if name:
            return self.app.connection(name)
        store = self.app.store
        if what.startswith("r-"):
            return store.runs.get(what).connection
        if what.startswith("p-"):
            return store.plans.get(what).connection
        return store.reviews.get(what).connection

    def undo(self, made: Undoing, allow: Sequence[str]) -> int:
        from instep.sync.changes.undo import takeback

        return takeback(self.app.pipe(made.connection), made.made, tuple(allow))

    def pairing(self, connection: str, old: str, new: str) -> Pairing:
        from instep.sync.changes.mapping import prepare

        made = prepare(self.app.pipe(connection), old, new)
        return Pairing(connection, made.document(connection), made.lines, made)

    def pair(self, made: Pairing) -> int:
        from instep.sync.changes.mapping import carry_out

        return carry_out(self.app.pipe(made.connection), made.made)

    def impact(self, connection: str, models: Sequence[Model] | None, dialect: str, change: str) -> Mapping[str, Any]:
        from instep.plans.downstream import configured_models, impact_document
        from instep.sync.changes.evolve import preview
        from instep.sync.impact import report

        models = configured_models(self.app, connection, dialect) if models is None else models
        pipe = self.app.pipe(connection)
        return impact_document(report(pipe, preview(pipe), models, change))
