"""Answers about the server's health, and about the references of its sources, destinations and channels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from typing import Any

from instep import __version__
from instep.control.queries.context import QueryContext
from instep.control.resources.resources import Managed
from instep.errors import InstepError
from instep.monitoring.doctor import stored
from instep.operations.queries.health import (
    CheckHealth,
    HealthFinding,
    HealthReport,
    ListReferences,
    ReferenceCheck,
)
from instep.operations.spec import QueryWork
from instep.operations.values import ObjectKind
from instep.project.documents import MASK, texts
from instep.project.text.references import is_reference

_KINDS: tuple[ObjectKind, ...] = ("source", "destination", "channel")


class HealthCheck(QueryWork):
    """The health of the server."""

    def find(self, context: QueryContext, query: CheckHealth) -> HealthReport:
        """Return the findings; a store that cannot be read is one."""
        try:
            findings = tuple(HealthFinding(**asdict(f)) for f in stored(context.store))
        except InstepError as error:
            findings = (HealthFinding("store", "bad", error.message, error.hint),)
        return HealthReport(__version__, all(f.state != "bad" for f in findings), findings)


class ReferenceList(QueryWork):
    """Sources, destinations and channels, each by name."""

    place_types = (int, str)

    def items(
        self, context: QueryContext, query: ListReferences, after: Sequence[Any] | None, limit: int
    ) -> Sequence[ReferenceCheck]:
        """Return the checks in this order."""
        kind, name = (after[0], after[1]) if after else (0, "")
        references = (r for at in range(kind, len(_KINDS)) for r in _named(context, at, name if at == kind else ""))
        return [_checked(context, r) for r in islice(references, limit)]

    def place(self, item: ReferenceCheck) -> Sequence[Any]:
        """Return the number of the kind, and the object's name."""
        return (_KINDS.index(item.kind), item.name)


def _named(context: QueryContext, kind: int, after: str) -> Iterator[Managed]:
    while page := context.resources.page(_KINDS[kind], after=after, limit=100):
        yield from page
        after = page[-1].name


def _checked(context: QueryContext, managed: Managed) -> ReferenceCheck:
    opened: Mapping[ObjectKind, Callable[[str], object]] = {
        "source": context.project.source,
        "destination": context.project.destination,
        "channel": context.project.channel,
    }
    shown = tuple(dict.fromkeys(text for _, text in texts(managed.spec) if is_reference(text) or text == MASK))
    try:
        opened[managed.kind](managed.name)
    except InstepError as error:
        return ReferenceCheck(managed.kind, managed.name, shown, "bad", error.message, error.hint)
    return ReferenceCheck(managed.kind, managed.name, shown, "ok", "every reference has a value", "")
