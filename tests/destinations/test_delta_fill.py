"""What the tests of a DuckDB file say of fills, kept values, replays and merges holds for Delta tables."""

from __future__ import annotations

from pathlib import Path

import pytest
import test_duckdb_fill as same
from delta_world import Warehouse
from test_delta_merge import SMALL

from instep.destinations.base import FillSize
from instep.destinations.delta import fill, merge_parts
from instep.errors import StageError
from instep.schema.changes.kinds import ColumnAdded
from lake import REF, stage


@pytest.fixture(params=["here", "by tasks"])
def shop(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Warehouse:
    """Fills are done in this process, or as those of large tables are."""
    if request.param == "by tasks":
        monkeypatch.setattr(fill, "fits_in_process", lambda *_: False)
        for name, value in SMALL.items():
            monkeypatch.setattr(merge_parts, name, value)
    made = Warehouse(tmp_path, same.OLD)
    made.append({"id": 1, "name": "a"}, {"id": 2, "name": "b"}, {"id": 3, "name": "c"})
    made.change(same.NEW, *(ColumnAdded(REF, c, 2 + i) for i, c in enumerate(same.NEW.columns[2:4])))
    return made


@pytest.fixture(autouse=True)
def _delta(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(same, "Warehouse", Warehouse)


test_a_fill = same.test_a_fill
test_a_table_without_rows_has_nothing_to_fill = same.test_a_table_without_rows_has_nothing_to_fill
test_notes_follow = same.test_notes_follow
test_nested_values_are_filled = same.test_nested_values_are_filled
test_kept_values_are_taken_out = same.test_kept_values_are_taken_out
test_rows_that_were_met_are_amended = same.test_rows_that_were_met_are_amended
test_a_late_amendment_is_refused = same.test_a_late_amendment_is_refused
test_a_trial_tells_what_does_not_fit = same.test_a_trial_tells_what_does_not_fit
test_a_merge_that_cannot_tell_rows_apart_is_refused = same.test_a_merge_that_cannot_tell_rows_apart_is_refused
test_a_merge_needs_a_key = same.test_a_merge_needs_a_key
test_columns_may_be_called_as_names_of_ours = same.test_columns_may_be_called_as_names_of_ours


def test_what_it_takes_is_told_by_files(shop: Warehouse) -> None:
    shop.append({"id": 4, "size": 4})
    left = shop.to.write.fill_size(REF, {"size": 1})
    assert (left.files, left.rows, left.of) == (1, 3, 2)
    shop.fill({"id": 1, "size": 10}, number=1)
    assert shop.to.write.fill_size(REF, {"size": 1}) == FillSize(0, 0, 0, 2), "that backfill has been through"
    assert shop.to.write.fill_size(REF, {"nothing": 1}).why_not.startswith("the destination has no column nothing")


def test_a_staged_file_of_another_schema_changes_nothing(shop: Warehouse) -> None:
    file = stage(shop.to, REF, [{"id": 1}], only=["id"])
    with pytest.raises(StageError, match="does not have the column 'name'"):
        shop.to.write.append(REF, [file], shop.commit())
    assert len(shop.rows()) == 3
