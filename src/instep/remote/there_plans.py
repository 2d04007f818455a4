"""Plans, undo and mappings at a server: a worker makes them, and carries them out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from instep.errors import InstepError
from instep.model import Review
from instep.plans.planned import Planned, of_result
from instep.remote.client import part
from instep.remote.records import record
from instep.remote.work import Works

if TYPE_CHECKING:
    from instep.lineage.model import Model


@dataclass(frozen=True)
class PlansThere:
    """`change` finds a change by its id, or how that begins."""

    works: Works
    change: Callable[[str], Review]

    def plan(
        self, connection: str, *, sample: int | None = None, every: bool = False, current: bool = False
    ) -> Planned:
        job = self.works.done(connection, "plans", {"sample": sample, "all": every, "current": current})
        return of_result({**job.result, "connection": connection}, job.id)

    def apply(self, made: Planned, allow: Sequence[str]) -> tuple[int, str]:
        """By the job that has made it: a server takes no plan from outside."""
        if not made.job:
            raise InstepError(
                "this plan was not made by the server", hint="write it with `instep plan -o FILE` over --server"
            )
        result = self.works.done(made.connection, "apply", {"plan": made.job, "allow": list(allow)}).result
        return int(result["version"]), str(result["id"])

    def version(self, connection: str) -> int:
        found = self.works.client.get(f"/connections/{part(connection)}/history", limit=1)["items"]
        return int(found[0]["version"]) if found else 0

    def owner(self, what: str, connection: str | None) -> tuple[str, str]:
        if what.startswith(("r-", "p-")):
            kind = "runs" if what.startswith("r-") else "plans"
            found: Any = self.works.client.get(f"/{kind}/{part(what)}")
            return str(found["id"]), connection or str(found["connection"])
        review = self.change(what)
        return review.id, connection or review.connection

    def impact(self, connection: str, models: Sequence[Model] | None, dialect: str, change: str) -> Mapping[str, Any]:
        """Models of this machine are judged here: the server tells what is going to happen to the tables."""
        from instep.plans.downstream import impact_document
        from instep.sync.impact import Looked, judged

        asked = {"change": change, "configured": models is None, "dialect": dialect if models is None else ""}
        found = self.works.done(connection, "impact", asked).result
        return found if models is None else impact_document(judged(record(Looked, found), models))
