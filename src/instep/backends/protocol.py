"""The interface of a backend: the project of this machine, or a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

if TYPE_CHECKING:
    from instep.control.rollouts.waves import ConnectionGroup
    from instep.model import Review
    from instep.operations.immediate.decisions import AnswerPreview
    from instep.operations.spec import ImmediateRequest, Preview, Query, Request
    from instep.operations.values import Answer


class OperationBackend(Protocol):
    def prepare(self, connection: str, request: Request) -> Preview:
        """Find out what an operation does that is shown before it is carried out."""
        ...

    def execute(self, preview: Preview, allow: Sequence[str] = ()) -> Mapping[str, Any]:
        """Execute what was previewed; return its result."""
        ...

    def run(self, connection: str, request: Request) -> Any:
        """Run an operation without a preview; return the record that its specification names."""
        ...

    def perform(self, request: ImmediateRequest) -> Any:
        """Run an immediate operation, which needs no job; return the record that its specification names."""
        ...

    def rehearse(self, request: ImmediateRequest) -> Any:
        """Run an immediate operation and roll it back; return the record that its specification names."""
        ...

    def perform_all(self, requests: Sequence[ImmediateRequest]) -> list[Any]:
        """Run all of these immediate operations in one transaction; return their records. Raises the error of the
        first refused one."""
        ...


@dataclass(frozen=True)
class ChangeDetails:
    """Facts about a change that source and destination tell; none where neither is opened."""

    keys: Sequence[str] = ()
    """Lines on the rows that share a new key."""
    invalid_values: Sequence[Mapping[str, Any]] = ()
    """Source values that do not fit the accepted type."""
    lossy: Sequence[Mapping[str, Any]] = ()
    """Values of the destination that do not fit the new type."""


@dataclass(frozen=True)
class Listing:
    """The items of a list, and the record of what it has beside them."""

    items: Sequence[Any] = field(repr=False)
    page_summary: Any = None


class Backend(Protocol):
    """Use it in a `with` block. Errors are InstepErrors, of the same kinds and texts on both sides."""

    @property
    def folder(self) -> Path:
        """The folder of lock files: the project's, or the one that the command runs in."""
        ...

    @property
    def operations(self) -> OperationBackend: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...

    def connection(self, name: str | None) -> str:
        """Return the named connection, or the only one."""
        ...

    def connections(self) -> list[str]:
        """Return the names of all connections; ProjectError for a project that has none."""
        ...

    def has_connection(self, name: str) -> bool: ...

    def change_details(self, review: Review, sample: int) -> ChangeDetails:
        """Return details of a change from source and destination; nothing over a server, which opens neither."""
        ...

    def preview_answer(self, connection: str, reviews: list[Review], answer: Answer | None) -> AnswerPreview:
        """Return the effects of an answer; nothing over a server. `answer` None: the changes stay open."""
        ...

    def query(self, query: Query) -> Any:
        """Return the single result of a query. Raises NotFound for an object that does not exist."""
        ...

    def items(self, query: Query, limit: int | None = None) -> list[Any]:
        """Return the items of the list that a query asks for, at most `limit`."""
        ...

    def listing(self, query: Query, limit: int | None = None) -> Listing:
        """Return at most `limit` items of a list, and the record of what it has beside them."""
        ...

    def detect_group(self, group: ConnectionGroup) -> Mapping[str, str]:
        """Detect changes of all connections of a group; return what went wrong, by connection."""
        ...

    def send_due(self) -> None:
        """Send the notifications that are due; over a server its workers do."""
        ...

    def carry_rollout(self, request: ImmediateRequest) -> None:
        """Advance a rollout by one step until it waits again: by a worker or, where none runs, in this process."""
        ...
