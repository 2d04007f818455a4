"""One change, by its kind and names, approved or rejected over many connections."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from instep.control.reviews import answer
from instep.control.rollouts.patch import CompatibilityLine
from instep.errors import ChangeNotFound, InstepError
from instep.model import Review
from instep.operations.values import EXISTING
from instep.schema.changes.kinds import KINDS
from instep.store.store import Store
from instep.suggest import did_you_mean

Verdict = Literal["approved", "rejected"]
_NEAR = 3


@dataclass(frozen=True)
class ChangePatch:
    """The change of this kind about this object; `summary` is its sentence: a connection in which it says another one
    (another type, another name) has another change. "" before it is known."""

    store: Store
    verdict: Verdict
    kind: str
    path: str
    summary: str = ""

    @property
    def text(self) -> str:
        return f"{self.summary or f'{self.kind} {self.path}'}: {self.verdict}"

    def to_dict(self) -> dict[str, Any]:
        document = {"verdict": self.verdict, "kind": self.kind, "object": self.path, "summary": self.summary}
        return {"change": document}

    def line(self, connection: str) -> CompatibilityLine:
        existing = [r for r in self._found(connection, *EXISTING) if r.summary == self.summary]
        if existing:
            return self._waiting(existing[0])
        if other := self._found(connection, *EXISTING):
            return CompatibilityLine("conflict", f"its change is another one: {other[0].summary}")
        done = self._found(connection, "applied")
        if self._exists(connection, done):
            return CompatibilityLine("already", "applied before" if done else "part of its first schema")
        return CompatibilityLine("conflict", "its source has no such change as of the last detection")

    def _waiting(self, review: Review) -> CompatibilityLine:
        if review.status == "rejected" and self.verdict == "rejected":
            return CompatibilityLine("already", f"rejected by {review.decided_by or 'policy'}")
        if review.status != "open" and review.status != self.verdict:
            return CompatibilityLine(
                "undecided", f"{review.id} was {review.status} by {review.decided_by}: settle it there first"
            )
        if self.store.reviews.is_asleep(review):
            return CompatibilityLine(
                "undecided", f"{review.id} is snoozed until {review.snoozed_until:%Y-%m-%d %H:%M} UTC"
            )
        pause = self.store.pauses.connection(review.connection)
        if pause and pause.change != review.id:
            return CompatibilityLine("undecided", f"the connection is paused: {pause.reason}")
        return CompatibilityLine("applies", f"{review.id}: {review.summary}")

    def _found(self, connection: str, *statuses: Any) -> list[Review]:
        reviews = self.store.reviews.find(connection, statuses)
        return [r for r in reviews if r.kind == self.kind and path_of(r) == self.path]

    def _exists(self, connection: str, applied: Sequence[Review]) -> bool:
        """Return whether the change has been applied: by the accepted schema for additions and removals, by the last
        applied answer for all else."""
        what = self.kind.partition(".")[2]
        if self.verdict == "rejected":
            return False
        if what not in ("added", "removed") or self.kind.startswith(("key", "cursor")):
            return bool(applied) and applied[0].summary == self.summary
        if not self.store.accepted.latest(connection):
            return False
        here = self.path in set(_paths(self.store, connection))
        return here == (what == "added") and (what == "added" or bool(applied))

    def apply(self, connection: str, who: str) -> Mapping[str, Any]:
        review = next(r for r in self._found(connection, *EXISTING) if r.summary == self.summary)
        if review.status == "open":
            answer(self.store, [review], self.verdict, who)
        return {"review": review.id, "was": review.status}

    def undone_by(self, connection: str, before: Mapping[str, Any]) -> str:
        return str(before["review"]) if self.store.reviews.get(before["review"]).status == "applied" else ""

    def take_back(self, connection: str, before: Mapping[str, Any], who: str) -> None:
        """Withdraw an answer that was not carried out yet."""
        if before["was"] == "open":
            again = self.store.reviews.reopen if self.verdict == "approved" else self.store.reviews.reopen_rejected
            again([before["review"]])


def path_of(review: Review) -> str:
    """Return schema, schema.table or schema.table.column."""
    if review.kind.startswith("schema."):
        return str(review.change.get("name", ""))
    return ".".join(filter(None, (*review.table, review.column)))


def _paths(store: Store, connection: str) -> Iterator[str]:
    for table in store.accepted.catalog(connection).tables:
        if not table.retained:
            yield from (table.schema, table.path)
            yield from (f"{table.path}.{c.name}" for c in table.live)


def change_patch(
    store: Store, verdict: Verdict, text: str, connections: Sequence[str], sees: Callable[[str], bool] | None = None
) -> ChangePatch:
    """Return the patch of a change, given its id (`c-7f3a2b`) or its kind and object
    (`column.added:public.order.note`): then it is the one that most of the connections have. ChangeNotFound if none of
    them has it. With `sees` the id must be whole, and a change of a connection that is not seen is as unknown as one
    that does not exist."""
    if ":" not in text:
        review = store.reviews.get(text) if sees is None else _seen(store, text, sees)
        return ChangePatch(store, verdict, review.kind, path_of(review), review.summary)
    kind, _, path = text.partition(":")
    if kind not in KINDS:
        raise InstepError(f"{kind!r} is not a kind of change", hint=f"one of: {', '.join(KINDS)}")
    requested = ChangePatch(store, verdict, kind, path)
    summaries = Counter(r.summary for name in connections for r in requested._found(name, *EXISTING, "applied"))
    if not summaries:
        raise ChangeNotFound(
            f"none of {len(connections)} connections has a change {kind} of {path}",
            hint=_suggestion(store, text, connections),
        )
    return replace(requested, summary=max(sorted(summaries), key=summaries.__getitem__))


def _suggestion(store: Store, text: str, connections: Sequence[str]) -> str:
    """Return the open changes whose kind and object are most like `text`, or say that there is none."""
    known = {f"{r.kind}:{path_of(r)}" for name in connections for r in store.reviews.find(name, ("open",))}
    if not known:
        return "none of them has an open change: `instep changes list`"
    shown = did_you_mean(text, known, form="did you mean {}? ", most=_NEAR)
    return f"{shown}`instep changes list` shows the open changes"


def _seen(store: Store, id: str, sees: Callable[[str], bool]) -> Review:
    stored = next((review for review in store.reviews.of_ids([id]) if sees(review.connection)), None)
    if stored is None:
        raise InstepError(f"no change {id!r} is known", hint="list the changes, or check the id")
    return stored
