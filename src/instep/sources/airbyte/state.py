"""How far a connector got, as one document: the states of its streams, or the one that they share.

    {"airbyte": 1, "type": "STREAM", "streams": [{"namespace": "", "name": "users", "state": {...}}],
     "generations": [["", "users", 3]], "records": [["", "events", 1767225600000000000, false]]}

`records` are the numbers of the next records of streams without a key: no other record of the stream has had one of
them. Records that a state brings again have the same numbers again. Behind the number stands whether the records to
come replace those before. `ends` are the numbers behind the last record of a stream that was complete; `reserved` are
those up to which a run may have given numbers, saved before it does: what it has sent without a state behind it, and
the next one does not send again, is found by them.

`GLOBAL` has `shared` beside `streams`, `LEGACY` has `legacy` instead. `configuration` is what the connector wanted to
be configured with from then on, and `configuration_of` tells which configuration of the project that replaces.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Literal

from instep.errors import ReadError
from instep.store.catalogs.airbyte_states import state_problem

Ref = tuple[str, str]
StateType = Literal["", "STREAM", "GLOBAL", "LEGACY"]
FIRST_BLOCK = 10_000
"""Numbers of records that are reserved as a run begins; each later block is as large as all before it."""


class ConnectorProgress:
    """State of a run of a connector, which grows by its messages."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        """Read a saved state. Raises ReadError for one that is none."""
        if problem := state_problem(document):
            raise ReadError(
                f"the connector's saved state cannot be read: {problem}",
                hint="set another one (PATCH /v1/connections/NAME/state), or read all again: `instep sync --full`",
            )
        self.type: StateType = document.get("type", "")
        self.streams: dict[Ref, Any] = {
            (one.get("namespace") or "", one["name"]): one["state"] for one in document.get("streams", ())
        }
        self.shared, self.legacy = document.get("shared"), document.get("legacy")
        self.generations: dict[Ref, int] = {(s, n): number for s, n, number in document.get("generations", ())}
        self.records: dict[Ref, int] = {(s, n): number for s, n, number, _ in document.get("records", ())}
        self.replaced: set[Ref] = {(s, n) for s, n, _, replaces in document.get("records", ()) if replaces}
        self.ends: dict[Ref, int] = {(s, n): number for s, n, number in document.get("ends", ())}
        self.reserved: dict[Ref, int] = {(s, n): number for s, n, number in document.get("reserved", ())}

    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = {"airbyte": 1, "type": self.type}
        found["streams"] = [{"namespace": s, "name": n, "state": state} for (s, n), state in self.streams.items()]
        found["generations"] = [[*ref, number] for ref, number in sorted(self.generations.items())]
        if self.records:
            numbers = sorted((ref, at) for ref, at in self.records.items() if at)
            found["records"] = [[*ref, at, ref in self.replaced] for ref, at in numbers]
        if self.ends:
            found["ends"] = numbers_of(self.ends)
        if self.type == "GLOBAL":
            found["shared"] = self.shared
        if self.type == "LEGACY":
            found["legacy"] = self.legacy
        return found

    def messages(self, refs: Iterable[Ref]) -> Any:
        """Return the connector's state messages for these streams; None for no state."""
        if self.type == "LEGACY":
            return self.legacy
        some = [(ref, self.streams[ref]) for ref in refs if ref in self.streams]
        states = [{"stream_descriptor": _descriptor(ref), "stream_state": state} for ref, state in some]
        if self.type == "GLOBAL":
            return [{"type": "GLOBAL", "global": {"shared_state": self.shared, "stream_states": states}}]
        return [{"type": "STREAM", "stream": state} for state in states] or None

    @property
    def is_undivided(self) -> bool:
        """Return whether all that it says of the streams is in what they share, so that none begins again by itself."""
        return self.type == "LEGACY" or (self.type == "GLOBAL" and self.shared is not None and not self.streams)

    def starts(self, ref: Ref) -> bool:
        """Return whether a stream begins with its first record."""
        if self.is_undivided:
            return self.legacy is None and self.shared is None
        return ref not in self.streams

    def forget(self, refs: Iterable[Ref]) -> None:
        """Reset streams; what they share with others stays."""
        for ref in list(refs):
            self.streams.pop(ref, None)

    def replace(self, refs: Collection[Ref]) -> None:
        """Reset streams of which each read replaces all rows: no state is given to it, and no row keeps a number."""
        self.forget(refs)
        for ref in refs:
            self.records.pop(ref, None)
            self.replaced.discard(ref)

    def was_replaced(self, ref: Ref) -> bool:
        """Return whether the rows that are there are those of a read that replaced all, before the first one that goes
        on from a state."""
        return ref in self.generations and ref not in self.records and self.starts(ref)

    def number_records(self, refs: Iterable[Ref], again: Callable[[Ref], bool], start: int) -> bool:
        """Assign numbers from `start` on to the records of streams that have none, or are sent `again` from their
        first one; return whether there are any."""
        new = False
        for ref in refs:
            if again(ref) or ref in self.replaced:
                self.replaced.add(ref)
            elif ref in self.records:
                continue
            self.records[ref], new = max(start, self.records.get(ref, 0)), True
        return new

    def begin(self, refs: Iterable[Ref]) -> dict[Ref, int]:
        """Reserve the first numbers of these streams; return up to where the runs before may have given some."""
        sent = {ref: self.ends.pop(ref, self.reserved.get(ref, 0)) for ref in refs}
        self.reserved |= {ref: max(at, self.records[ref] + FIRST_BLOCK) for ref, at in sent.items()}
        return sent

    def take_stream(self, ref: Ref, state: Any) -> None:
        """Take the state of one stream. What others share beside it stays: the connector may go on from there."""
        if self.type != "GLOBAL":
            self.type, self.legacy = "STREAM", None
        if state is None:
            self.streams.pop(ref, None)
        else:
            self.streams[ref] = state

    def take_global(self, shared: Any, states: Mapping[Ref, Any], read: Collection[Ref]) -> None:
        """Take a state of all streams that were `read`. Where what they share moves on, it does so without the rows of
        the others: these begin again with their first record."""
        if (self.type, self.shared) != ("GLOBAL", shared):
            missed = self.streams.keys() - set(read)
            self.replaced |= missed & self.records.keys()
            self.forget(missed)
        self.type, self.shared, self.legacy = "GLOBAL", shared, None
        self.streams |= {ref: state for ref, state in states.items() if ref in read}
        self.forget(ref for ref, state in states.items() if state is None)

    def take_legacy(self, data: Any) -> None:
        self.type, self.legacy, self.shared = "LEGACY", data, None
        self.streams.clear()

    def next_generation(self, ref: Ref) -> int:
        self.generations[ref] = self.generations.get(ref, 0) + 1
        return self.generations[ref]


def numbers_of(numbers: Mapping[Ref, int]) -> list[list[Any]]:
    """Return numbers of streams as a document has them."""
    return [[*ref, number] for ref, number in sorted(numbers.items())]


def _descriptor(ref: Ref) -> dict[str, str]:
    return {"name": ref[1], "namespace": ref[0]} if ref[0] else {"name": ref[1]}
