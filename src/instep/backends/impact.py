"""The impact of changes on the models that read the tables, at either backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from instep.operations.decide.impact import ImpactRequest

if TYPE_CHECKING:
    from instep.backends.protocol import Backend
    from instep.lineage.model import Model


def impact_of(
    backend: Backend, connection: str, models: Sequence[Model] | None, dialect: str, change: str
) -> Mapping[str, Any]:
    """Return the document of `plans.downstream.impact_document`.

    Models of this machine are judged here; None: those that the project names, whose SQL is of this `dialect` ("": as
    it says there). `change`: the first characters of an id; "" for all of today.
    """
    configured = models is None
    request = ImpactRequest(change=change, configured=configured, dialect=dialect if configured else "")
    answer = backend.operations.run(connection, request)
    verdicts: Mapping[str, Any] = answer.verdicts or {} if models is None else answer.judge(models)
    return verdicts
