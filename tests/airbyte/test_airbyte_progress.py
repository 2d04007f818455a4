"""What people see of a read while it goes on: how many records have come, of how many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from airbyte_world import AirbyteWorld, Line, records, state, status, stream, trace
from instep.cli.render.live import Board
from instep.python.progress import Progress, ProgressWatch


class Heard(Board):
    """A board that remembers what it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[str, int, int]] = []

    def received(self, path: str, rows: int, expected: int) -> None:
        self.told.append((path, rows, expected))
        super().received(path, rows, expected)


def estimate(rows: Any, name: str = "", kind: str = "STREAM") -> Line:
    return trace("ESTIMATE", type=kind, row_estimate=rows, **({"name": name} if name else {}))


USERS, ORDERS = estimate(4, "users"), estimate(8, "orders")
CASES = [
    ("no estimate", [], (0, 0, 0)),
    ("of one stream", [USERS], (0, 4, 0)),
    ("of each stream", [USERS, ORDERS], (12, 4, 8)),
    ("of the sync", [estimate(9, kind="SYNC")], (9, 0, 0)),
    ("of both", [USERS, ORDERS, estimate(99, kind="SYNC")], (99, 4, 8)),
    ("a later one", [USERS, estimate(5, "users")], (0, 5, 0)),
    ("of a stream that nobody asked for", [estimate(5, "nobody")], (0, 0, 0)),
    ("below zero", [estimate(-1, "users")], (0, 0, 0)),
    ("bytes alone", [trace("ESTIMATE", type="STREAM", name="users", byte_estimate=5)], (0, 0, 0)),
]


@pytest.mark.parametrize(("estimates", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_records_are_counted_by_stream_and_in_all(
    world: AirbyteWorld, estimates: Sequence[Line], expected: tuple[int, int, int]
) -> None:
    heard, (whole, users, orders) = Heard(), expected
    world.streams = [stream(), stream("orders", incremental=False)]
    done = [state(2, 2), status(), status(name="orders")]
    world.read(*estimates, *records(1, 2), *records(1, 3, "orders"), *done, progress=heard)
    assert heard.told[-3:] == [("", 5, whole), ("users", 2, users), ("orders", 3, orders)]
    received = world.store.runs.latest("shop").detail["received"]  # type: ignore[union-attr]
    assert received == {
        "": {"rows": 5, "expected": whole},
        "users": {"rows": 2, "expected": users},
        "orders": {"rows": 3, "expected": orders},
    }
    assert ("5 of about" in heard.line()) == (whole > 5)
    assert "5" in heard.line()
    assert "rows received" in heard.line()


def test_records_that_wait_for_the_end_of_their_stream_are_seen_as_they_come(world: AirbyteWorld) -> None:
    heard, told = Heard(), list[Progress]()
    world.streams = [stream(incremental=False)]
    lines: list[Line] = [USERS, *records(1, 2), ["sleep", 2.5], *records(3, 4), status()]
    world.read(*lines, progress=heard)
    assert ("users", 2, 4) in heard.told
    assert ("users", 4, 4) in heard.told
    watch = ProgressWatch()
    with watch.reporting_to(told.append), watch() as progress:
        world.read(*lines, progress=progress)
    assert Progress(table="users", rows=2, expected=4) in told
    assert Progress(rows=4, expected=4) in told


@pytest.mark.parametrize("rows", ["many", [], {}])
def test_an_estimate_that_is_no_number_ends_the_read(world: AirbyteWorld, rows: Any) -> None:
    assert "TRACE message that cannot be read" in world.failed(*records(1, 1), state(1, 1), estimate(rows, "users"))
    assert world.ids() == [1]
