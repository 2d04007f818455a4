"""A late attempt at each of its write points, on each kind of destination: whatever it had prepared while it was the
only one, it is refused once a later run has claimed the table, and nothing of it is seen. Beside
tests/contract/test_destination.py (append, overwrite, changes, claims) and tests/crash/test_crash_matrix.py (syncs)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from contract.destinations import DESTINATIONS
from contract.destinations import postgres as to_postgres
from instep.destinations.base import Commit, Fill, Merge, RowUpdate
from instep.destinations.facets import Destination
from instep.errors import Conflict, Fenced
from instep.schema.changes.describe import TableRemoved
from instep.schema.planning.step import step
from lake import ORDERS, PREFIX, REF, create, rows_of, stage, stage_table

LATE = Commit("late", 4)


@pytest.fixture(params=["delta", "duckdb", "iceberg", pytest.param("postgres", marks=pytest.mark.server)])
def destination(request: pytest.FixtureRequest, tmp_path: Path) -> Destination:
    if request.param == "postgres":
        return to_postgres(tmp_path, request.getfixturevalue("postgres"))
    return DESTINATIONS[request.param](tmp_path)


def merge(to: Destination, **how: Any) -> None:
    to.write.merge(None, REF, [stage(to, REF, [{"id": 1, "name": "late"}, {"id": 9}])], Merge(("id",), **how), LATE)


def fill(to: Any) -> Callable[[], Any]:
    schema = pa.schema([f for f in to.write.target(REF).schema if f.name in ("id", "name", f"{PREFIX}meta")])
    rows = pa.Table.from_pylist([{"id": 1, "name": "late"}], schema)
    wanted = Fill(("id",), {"name": 7}, (stage_table(to, REF, rows),), f"{PREFIX}meta", "x")
    return lambda: to.write.fill(None, REF, wanted, LATE, lambda rows, size: None, lambda: True)


def update_rows(to: Destination) -> Callable[[], Any]:
    met = to.write.lookup_rows(REF, pa.table({"id": pa.array([1], to.write.target(REF).schema.field("id").type)}))
    field = met.rows.schema.field("name")
    changed = met.rows.set_column(met.rows.schema.get_field_index("name"), field, pa.array(["late"], field.type))
    return lambda: to.write.update_rows(REF, met, RowUpdate([0], changed, met.rows.slice(0, 0)), LATE)


def keep(to: Destination) -> Callable[[], Any]:
    clones = to.lifecycle.clones
    assert clones is not None
    return lambda: clones.clone_table(REF, ("shop", "orders__kept"), LATE)


def refused(late: Callable[[], Any]) -> bool:
    try:
        late()
    except Fenced:
        return True
    return False


def test_what_was_prepared_before_a_later_claim_is_refused(destination: Destination) -> None:
    to = destination
    create(to)
    to.write.overwrite(REF, [stage(to, REF, [{"id": 1}, {"id": 2, "name": "b"}])], Commit("run-1", 1, "c"))
    attempts = {
        "fill": fill(to),
        "amend": update_rows(to),
        "keep": keep(to),
        "merge": lambda: merge(to),
        "merge that deletes": lambda: merge(to, complete=True, deletes="hard"),
        "merge that marks": lambda: merge(to, complete=True, deletes="soft"),
    }
    to.write.claim(REF, 5)
    before, state = rows_of(to), to.schema.state(REF)
    assert {name: refused(late) for name, late in attempts.items()} == dict.fromkeys(attempts, True)
    assert rows_of(to) == before
    assert to.schema.state(REF) == state
    assert to.schema.inspect([REF]).get(REF) == ORDERS
    assert to.schema.tables() == [REF]


def test_a_late_run_does_not_drop_what_was_made_anew(destination: Destination) -> None:
    to = destination
    create(to)
    to.schema.execute(REF, [step(REF, TableRemoved(ORDERS))], None, Commit("run-1", 2))
    create(to, commit=Commit("run-2", 6))
    to.write.claim(REF, 6)
    with pytest.raises(Fenced):
        to.schema.execute(REF, [step(REF, TableRemoved(ORDERS))], None, LATE)
    assert to.schema.tables() == [REF]


def test_a_run_that_stands_still_over_a_move_keeps_nobody_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("instep.destinations.delta.warehouse._LOCK_TIMEOUT", 0.05)
    to: Any = DESTINATIONS["delta"](tmp_path)
    create(to)
    with to.warehouse.moving(), pytest.raises(Conflict, match="claiming or moving") as told:
        to.write.claim(REF, 5)
    assert "end its process" in told.value.hint
    to.write.claim(REF, 5)
