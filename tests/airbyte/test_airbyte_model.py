"""Random histories of a connector against a model: records, states of each kind, statuses, drifted types and names, and
reads that are broken off anywhere and tried again.

The connector resumes where the state says that it is given, so that whatever a state was ahead of is lost, and what it
was behind of comes again. The laws:

- nothing that lies before the saved state is missing at the destination, whenever one looks;
- a full refresh is there as a whole, that of before or the new one;
- behind a sync that ends as done while nothing is open, the destination is what was sent: each record of a stream
  without a key once, or at least once where a shared state covers none of them.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Literal

import pytest
from bridge_in_thread import Output, ScriptedConnector, in_this_process, lines
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import samples
from airbyte_world import (
    INTEGER,
    TEXT,
    AirbyteWorld,
    Message,
    airbyte_world,
    record,
    shared_state,
    state,
    status,
    stream,
)
from instep import crash
from instep.destinations.duckdb.file import DatabaseFile
from instep.errors import InstepError
from instep.project.sections.tables import TableSettings

DELETED = "_ab_cdc_deleted_at"
KEYED, EACH, APPENDED, WHOLE = "keyed", "each", "appended", "whole"
"""Rows by key, with deletes; records without a key; `mode: append` of a stream with a key; a full refresh."""
GROWING = (KEYED, EACH, APPENDED)
NAMES = (*GROWING, WHOLE)
UNFIT = "many"
"""A value that does not fit, the only one that may be NULL at the destination."""
POINTS = (
    "sync.commit.before", "sync.commit.after", "connector.segment.committed", "connector.segment.saved.before",
    "connector.segment.saved.after",
)  # fmt: skip
StateKind = Literal["stream", "shared", "lagging", "legacy"]
"""`lagging`: a shared state that says of `EACH` where its read began."""
Fault = Literal["", "exit", "kill", "torn", "count", "incomplete", "keyless"]
Row = tuple[Any, ...]
Rows = Counter[Row]


class Killed(BaseException):
    """The end of a process at a barrier, which no handler of errors sees."""


@dataclass
class Source:
    """What the connector has to send. `log` are all records of the streams that grow, `rows` what `WHOLE` has now."""

    kind: StateKind = "stream"
    log: dict[str, list[Message]] = field(default_factory=lambda: {name: [] for name in GROWING})
    rows: dict[int, Message] = field(default_factory=dict)
    random: Random = field(default_factory=Random)
    fault: Fault = ""
    says_status: bool = True

    def read(self, given: Any, catalog: Mapping[str, Any]) -> Output:
        """Print what comes behind the given states, with this fault."""
        configured = [one["stream"]["name"] for one in catalog["streams"]]
        places = self.places(given)
        messages = self._messages(places, configured)
        match self.fault:
            case "exit" | "kill":
                cut = self.random.randrange(len(messages) + 1)
                return b"".join(lines(messages[:cut])), 1 if self.fault == "exit" else -9
            case "torn":
                text = b"".join(lines(messages)) or b"{}"
                return text[: self.random.randrange(len(text))] + b'{"type":"RECORD","record":{"stream":', 0
            case "incomplete":
                name = self.random.choice(configured)
                done, failed = status(name=name), status("INCOMPLETE", name)
                return b"".join(lines([failed if one == done else one for one in messages])), 0
            case "keyless":
                at = self.random.randrange(len(messages) + 1)
                messages.insert(at, {"type": "RECORD", "record": {"stream": KEYED, "data": {"n": 1}, "emitted_at": 1}})
            case "count":
                counts = [m["state"]["sourceStats"] for m in messages if m["type"] == "STATE"]
                if counts:
                    self.random.choice(counts)["recordCount"] += 1.0
        return b"".join(lines(messages)), 0

    def places(self, given: Any) -> dict[str, int]:
        """Return from where on the connector reads by its state messages."""
        if given is None:
            return {}
        if isinstance(given, dict):
            return dict(given)
        if given and given[0]["type"] == "GLOBAL":
            states = given[0]["global"]["stream_states"]
        else:
            states = [one["stream"] for one in given]
        return {one["stream_descriptor"]["name"]: one["stream_state"]["at"] for one in states}

    def _messages(self, first: Mapping[str, int], configured: Sequence[str]) -> list[Message]:
        """Return records of all streams in a random order, with states between them."""
        parts: dict[str, list[Any]] = {}
        for name in (one for one in GROWING if one in configured):
            at, part = first.get(name, 0), list[Any]()
            while at < len(self.log[name]):
                last = min(at + self.random.randrange(1, 4), len(self.log[name]))
                part += [record(name, **row) for row in self.log[name][at:last]]
                part.append(last)
                at = last
            parts[name] = part
        if WHOLE in configured:
            parts[WHOLE] = [record(WHOLE, **row) for row in self.rows.values()]
        places, since, found = dict(first), Counter[str](), list[Message]()
        for name in parts if self.says_status else ():
            parts[name].append(status(name=name))
        while todo := [name for name, part in parts.items() if part]:
            one = parts[name := self.random.choice(todo)].pop(0)
            if isinstance(one, int):
                found += self._state(name, places, first, since)
                continue
            if one["type"] == "RECORD":
                since[name] += 1
                places |= {name: places.get(name, 0) + 1} if name != WHOLE else {}
            found.append(one)
        if self.kind != "stream" and places and not first and all(one["type"] != "STATE" for one in found):
            # a connector that never says where it is sends what is new each time, as far as anybody can tell
            found += self._common_state(places, first, since)
        return found

    def _state(
        self, name: str, places: Mapping[str, int], first: Mapping[str, int], since: Counter[str]
    ) -> list[Message]:
        if self.kind == "stream":
            return [state(places[name], since.pop(name), name)]
        return [] if self.random.random() < 0.4 else self._common_state(places, first, since)

    def _common_state(self, places: Mapping[str, int], first: Mapping[str, int], since: Counter[str]) -> list[Message]:
        count, covered = since.total(), dict(places)
        since.clear()
        if self.kind == "legacy":
            stats = {"recordCount": float(count)}
            return [{"type": "STATE", "state": {"type": "LEGACY", "data": covered, "sourceStats": stats}}]
        if self.kind == "lagging":
            covered[EACH] = first.get(EACH, 0)
        return [shared_state(sum(places.values()), {n: {"at": at} for n, at in covered.items()}, count)]


def by_key(log: Sequence[Message]) -> dict[int, Message]:
    found: dict[int, Message] = {}
    for row in log:
        found.pop(row["id"], None)
        if row.get(DELETED) is None:
            found[row["id"]] = row
    return found


class ConnectorHistories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.folder, self.opened = tempfile.TemporaryDirectory(prefix="model-"), ExitStack()
        self.source, self.prompt, self.drifted = Source(), True, False
        self.snapshots: list[Counter[Any]] = [Counter()]

    @initialize(
        kind=st.sampled_from(("stream", "shared", "lagging", "legacy")),
        prompt=st.booleans(),
        seed=st.integers(0, 2**32),
        says_status=st.booleans(),
    )
    def begin(self, kind: StateKind, prompt: bool, seed: int, says_status: bool) -> None:
        self.source = Source(kind=kind, random=Random(seed), says_status=says_status)
        self.prompt = prompt
        number = {"n": INTEGER, DELETED: TEXT}
        self.connector = ScriptedConnector(
            [
                stream(KEYED, **number),
                stream(EACH, key=(), n=INTEGER),
                stream(APPENDED, n=INTEGER),
                stream(WHOLE, incremental=False, n=INTEGER),
            ],
            self.source.read,
        )
        in_this_process(self.patch, self.connector, prompt=lambda: self.prompt)
        self.patch.setattr(crash, "_act", self._kill)
        self.world: AirbyteWorld = airbyte_world(Path(self.folder.name), streams=self.connector.streams)
        self.opened.enter_context(DatabaseFile(Path(self.folder.name, "warehouse.db")).session())
        self.world.tables = {APPENDED: TableSettings(mode="append")}
        self.world.limits = {"ahead": 1 if prompt else 3}

    def _kill(self, name: str, action: str) -> None:
        raise Killed(name)

    @rule(rows=st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 4), st.integers(0, 9)), max_size=9))
    def grow(self, rows: list[tuple[str, int, int]]) -> None:
        """Records come; of a table that is read as a whole rows go, too."""
        for name, key, n in rows:
            row: Message = {"id": key, "n": n}
            if name == WHOLE:
                self.source.rows.pop(key, None)
                if n:
                    self.source.rows[key] = row
            else:
                self.source.log[name].append({**row, DELETED: "2026-01-01"} if name == KEYED and n < 3 else row)

    @precondition(lambda self: not self.drifted)
    @rule(name=st.sampled_from(NAMES), what=st.sampled_from(("type", "name")))
    def drift(self, name: str, what: str) -> None:
        """A value of another type than the catalog says, or a name that it does not have, comes."""
        row: Message = {"id": 3, "n": UNFIT if what == "type" else 3, **({"more": "m"} if what == "name" else {})}
        if name == WHOLE:
            self.source.rows[3] = row
        else:
            self.source.log[name].append(row)
        self.drifted = what == "type"

    @rule()
    def sync(self) -> None:
        """A sync without a fault is done, and the destination is as the model."""
        self.source.fault = ""
        self._note_snapshot()
        report = self.world.read()
        assert report.status == "done", [(t.table, t.status, t.error) for t in report.tables]
        if not self.world.store.reviews.find("shop", ("open",)):
            self._compare()

    @rule(fault=st.sampled_from(("exit", "kill", "torn", "count", "incomplete", "keyless")))
    def broken_sync(self, fault: Fault) -> None:
        self.source.fault = fault
        self._note_snapshot()
        with suppress(InstepError):
            self.world.read()

    @precondition(lambda self: self.source.kind != "lagging" and bool(self.world.state))
    @rule()
    def take_back(self) -> None:
        """The source loses its last record without a key, if no state is behind it."""
        if len(self.source.log[EACH]) > self._saved_places().get(EACH, 0):
            self.source.log[EACH].pop()

    @rule(point=st.sampled_from(POINTS), time=st.integers(1, 4))
    def killed_sync(self, point: str, time: int) -> None:
        """A sync is killed at a barrier. One that does not come by so often is an ordinary one."""
        self.source.fault = ""
        self._note_snapshot()
        crash._passed.clear()
        with pytest.MonkeyPatch.context() as patch, suppress(Killed):
            patch.setenv(crash.VARIABLE, f"{point}@{time}=kill")
            self.world.read()

    @precondition(lambda self: bool(self.world.state))
    @rule(name=st.sampled_from(("", *NAMES)))
    def begin_again(self, name: str) -> None:
        """Everything, or one stream, is read from its first record on."""
        self.source.fault = ""
        self._note_snapshot()
        tables = {"tables": frozenset({name})} if name else {}
        self.world.read(full=True, **tables)

    @rule()
    def approve(self) -> None:
        """Somebody approves what is open: the types that hold all values."""
        self.world.answer("approved")
        self.drifted = False

    @invariant()
    def nothing_before_the_state_is_missing(self) -> None:
        if not hasattr(self, "world") or not self.world.state:
            return
        places = self._saved_places()
        for name in (EACH, APPENDED):
            if (at := places.get(name, 0)) and name in self._tables():
                sent, there = Counter(row["id"] for row in self.source.log[name][:at]), self._ids(name)
                assert not sent - there, f"{name}: the state is at {at}, and records before it are missing"
        if (at := places.get(KEYED, 0)) and KEYED in self._tables():
            log, there = self.source.log[KEYED], self._ids(KEYED)
            untouched = {row["id"] for row in log} - {row["id"] for row in log[at:]}
            assert {i for i in by_key(log[:at]) if i in untouched} == {i for i in there if i in untouched}

    @invariant()
    def a_whole_read_is_there_as_a_whole(self) -> None:
        if hasattr(self, "world") and WHOLE in self._tables():
            assert self._ids(WHOLE) in self.snapshots

    def _note_snapshot(self) -> None:
        self.snapshots.append(Counter(self.source.rows.keys()))

    def _saved_places(self) -> dict[str, int]:
        document = self.world.state
        if document.get("type") == "LEGACY":
            return dict(document["legacy"] or {})
        return {one["name"]: one["state"]["at"] for one in document.get("streams", ())}

    def _tables(self) -> set[str]:
        found = {t.name for t in self.world.store.accepted.catalog("shop").tables}
        there = {name for _, name in self.world.destination.schema.tables()}
        return found & there

    def _ids(self, name: str) -> Counter[Any]:
        return Counter(row["id"] for row in self.world.records(name, "id"))

    def _there(self, name: str) -> Rows:
        if name not in self._tables():
            return Counter()
        rows = self.world.records(name)
        return Counter((row["id"], str(row.get("n", UNFIT)), row.get("more")) for row in rows)

    def _compare(self) -> None:
        """Compare all rows with the model, values as texts; one that is in quarantine is NULL in its row."""
        wholly = by_key(self.source.log[KEYED])
        models = {KEYED: list(wholly.values()), WHOLE: list(self.source.rows.values())}
        models |= {name: self.source.log[name] for name in (EACH, APPENDED)}
        for name, rows in models.items():
            model, there = Counter((row["id"], str(row["n"]), row.get("more")) for row in rows), self._there(name)
            if name == EACH and self.source.kind == "lagging":
                assert not model - there, name
                assert there.keys() == model.keys(), name
            else:
                assert there == model, name

    def teardown(self) -> None:
        self.opened.close()
        if hasattr(self, "world"):
            self.world.close()
        self.patch.undo()
        self.folder.cleanup()


TestHistories = ConnectorHistories.TestCase
TestHistories.settings = settings(
    max_examples=60 if samples.FULL else 5, stateful_step_count=12, deadline=None, print_blob=True
)
