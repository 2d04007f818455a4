"""The parts of a desk: plans, rows, tables' settings, selections, rollouts, policies, detectors, notices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from datetime import datetime

    from instep.control.backfills import Cancelled
    from instep.control.detector import Standing
    from instep.control.listing import Listed
    from instep.control.rollouts.waves import Group
    from instep.control.selections import Verb
    from instep.destinations.savepoints import Savepoint
    from instep.lineage.model import Model
    from instep.model import Member, Rollout
    from instep.operations.spec import Preview, Request
    from instep.operations.sync import SyncRequest
    from instep.plans.planned import Planned
    from instep.project.policies import PolicySection
    from instep.project.policy_files import SampleCase
    from instep.store.outbox import Attempt, Delivery
    from instep.store.rollouts import Draft
    from instep.sync.changes.fill_plan import Estimate
    from instep.sync.maintain import Order
    from instep.sync.progress import Report
    from instep.sync.verify import Verdict


class PlanDesk(Protocol):
    def plan(
        self, connection: str, *, sample: int | None = None, every: bool = False, current: bool = False
    ) -> Planned:
        """`sample`, `every`: as `plans.planned.planned` takes them; `current`: StalePlan if an approval does not count
        any more."""
        ...

    def apply(self, made: Planned, allow: Sequence[str]) -> tuple[int, str]:
        """(accepted version, the plan's id)."""
        ...

    def version(self, connection: str) -> int:
        """The accepted version, 0 if there is none."""
        ...

    def owner(self, what: str, connection: str | None) -> tuple[str, str]:
        """Return the id of a change, a run or a plan as an undo takes it, and its connection or the one named."""
        ...

    def impact(self, connection: str, models: Sequence[Model] | None, dialect: str, change: str) -> Mapping[str, Any]:
        """The document of `plans.downstream.impact_document`. No `models`: those that the project names, whose SQL is
        of this `dialect` ("": as it says there). `change`: the first characters of an id; "" for all of today."""
        ...


class RowDesk(Protocol):
    def sync(self, connection: str, request: SyncRequest) -> Report: ...

    def estimate(self, connection: str, table: str, columns: Sequence[str]) -> tuple[Estimate, str]:
        """(what a backfill takes, what holds it up)."""
        ...

    def fill(self, connection: str, table: str, columns: Sequence[str]) -> Report: ...

    def leave(self, connection: str, table: str, columns: Sequence[str]) -> Cancelled:
        """Backfills of a table that wait or run are cancelled; of these columns, or all."""
        ...

    def replay(self, connection: str, table: str | None, column: str, *, dry_run: bool) -> list[dict[str, Any]]:
        """Documents of `sync.held.replay.Replayed`."""
        ...

    def discard(self, connection: str, ids: Sequence[str]) -> list[str]:
        """The ids of what went, by whole ids."""
        ...

    def erase(self, connection: str, table: str, key: Mapping[str, str | None]) -> int:
        """How many entries of the rows with this key (texts by column) went without a trace."""
        ...

    def verify(self, connection: str, tables: Sequence[str]) -> list[Verdict]:
        """Of these tables, or all. At the project alone rows that differ are named by their keys."""
        ...

    def maintain(self, connection: str, pattern: str, *, dry_run: bool) -> Order: ...

    def savepoints(self, connection: str, table: str) -> Sequence[Savepoint]:
        """What the table with this path can be put back to, newest first."""
        ...


class OperationDesk(Protocol):
    def prepare(self, connection: str, request: Request) -> Preview:
        """Find out what an operation does that is shown before it is carried out."""
        ...

    def execute(self, preview: Preview, allow: Sequence[str] = ()) -> Mapping[str, Any]:
        """Carry it out; answers its result."""
        ...


@dataclass(frozen=True)
class Turned:
    """What becomes of one object that is switched. `changed` is false where it stands so already; `lines` say for
    people what follows."""

    object: str
    changed: bool
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Switching:
    """Switches that are about to be turned. `made` is for the desk that has prepared it."""

    connection: str
    verb: Verb
    objects: Sequence[Turned]
    made: Any = field(default=None, repr=False)


class SelectionDesk(Protocol):
    def listed(self, connection: str, *, every: bool) -> tuple[Mapping[str, Any], list[Listed]]:
        """(the tree as a schema config has it, the objects; `every`: all columns, not only touched ones)."""
        ...

    def switching(self, connection: str, verb: Verb, objects: Sequence[str], matching: Sequence[str]) -> Switching:
        """By paths, and by patterns of tables and columns."""
        ...

    def switch(self, made: Switching) -> None:
        """All of them or none."""
        ...


@dataclass(frozen=True)
class Wanted:
    """A rollout that is wanted: one of `turns`, `change` (verdict and change) and `preset`. `gates` as a person writes
    them."""

    group: Group
    turns: Sequence[tuple[Verb, str]] = ()
    change: tuple[str, str] | None = None
    preset: str = ""
    sizes: tuple[str, ...] = ()
    gates: Sequence[str] = ()
    canary: tuple[str, ...] = ()


class RolloutDesk(Protocol):
    """Rollouts are named by their ids, or how these begin."""

    def find(self) -> list[Rollout]:
        """Newest first."""
        ...

    def get(self, id: str) -> Rollout: ...

    def text(self, made: Rollout) -> str:
        """What is rolled out, for people."""
        ...

    def members(self, id: str) -> list[Member]: ...

    def detect(self, wanted: Wanted) -> Mapping[str, str]:
        """Looks at all sources; what went wrong, by connection."""
        ...

    def draft(self, wanted: Wanted) -> tuple[Draft, str]:
        """The compatibility table, and what is rolled out; touches nothing."""
        ...

    def create(self, wanted: Wanted) -> Rollout: ...

    def advance(self, id: str, *, every: bool) -> Rollout: ...

    def resume(self, id: str, *, every: bool, accept: str) -> Rollout: ...

    def roll_back(self, id: str, *, wave: int, connections: Sequence[str]) -> Rollout: ...

    def stop(self, id: str, reason: str) -> Rollout: ...

    def skip(self, id: str, connections: Sequence[str], reason: str) -> Rollout: ...


class PolicyDesk(Protocol):
    """All answers are documents of `control.policy_documents`."""

    def shown(self, connection: str) -> dict[str, Any]: ...

    def explained(self, connection: str, path: str, kind: str, before: str, after: str) -> dict[str, Any]: ...

    def tested(self, connection: str, cases: Sequence[SampleCase]) -> list[dict[str, Any]]:
        """Parallel to the cases."""
        ...

    def simulated(
        self, connection: str, name: str, section: PolicySection, since: datetime | None
    ) -> dict[str, Any]: ...

    def connections(self) -> list[str]:
        """All of them, by name."""
        ...


class DetectorDesk(Protocol):
    def standing(self, connection: str) -> Standing: ...

    def enable(self, connection: str) -> bool:
        """False if it had not switched itself off."""
        ...

    def set(self, connection: str, options: Mapping[str, Any], table: str) -> None:
        """Options by their long names, of a table's pattern or ("") of the source as a whole; None takes one away."""
        ...


class NoticeDesk(Protocol):
    def test(self, channel: str) -> int:
        """Sends a test message at once; the receiver's answer, 0 where the channel has none."""
        ...

    def log(self, channel: str | None, limit: int) -> Sequence[Delivery]:
        """Newest first; InstepError for a channel that there is not and of which nothing is on record."""
        ...

    def attempts(self, delivery: int) -> Sequence[Attempt]: ...
