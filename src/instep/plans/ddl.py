"""A plan's steps in the destination's SQL, for reviewers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from instep.bootstrap import App
    from instep.sync.changes.evolve import Preview

Line = tuple[str, str]


def ddl_of(app: App, connection: str, found: Preview) -> list[str]:
    """The statements of a plan; none for a destination without SQL."""
    from instep.destinations.base import Speaks

    destination = app.destination(app.project.destination_of(connection))
    return list(destination.ddl(found.plan.steps)) if isinstance(destination, Speaks) else []


def ddl_lines(statements: Sequence[str]) -> Iterator[Line]:
    """The statements as they can be pasted."""
    if statements:
        yield "In SQL: to read, the steps above are what is done", "bold"
    for statement in statements:
        for line in statement.splitlines():
            yield f"  {line}", "dim" if line.startswith("--") else ""
