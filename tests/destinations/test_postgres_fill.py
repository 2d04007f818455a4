# ruff: noqa: F401, F811 - the tests of another file, run over the fixture of this one
"""What is tested over a DuckDB file, over PostgreSQL: fills, promotions, amendments, merges that are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from postgres_world import Warehouse, database, shared
from test_duckdb_fill import (
    COLUMNS,
    NEW,
    OLD,
    keys,
    test_a_column_that_is_not_there_is_named,
    test_a_fill,
    test_a_late_amendment_is_refused,
    test_a_merge_needs_a_key,
    test_a_merge_that_cannot_tell_rows_apart_is_refused,
    test_a_staged_file_of_another_schema_changes_nothing,
    test_a_trial_tells_what_does_not_fit,
    test_nested_values_are_filled,
    test_notes_follow,
    test_rows_are_met_by_a_key_of_any_name_and_type,
    test_rows_that_were_met_are_amended,
    test_two_attempts_of_one_commit_at_once_add_their_rows_once,
    test_what_it_takes,
)

from instep.destinations.base import RowUpdate
from instep.destinations.overflow import OverflowColumn, Promoted
from instep.schema.catalog.catalog import Column
from instep.schema.catalog.types import parse
from instep.schema.changes.kinds import ColumnAdded
from instep.stage.conform import compact_json
from lake import ID, PREFIX, REF, column, table
from postgres_server import Database


@pytest.fixture
def shop(database: Database, tmp_path: Path) -> Warehouse:
    made = Warehouse(database, tmp_path, OLD)
    made.append({"id": 1, "name": "a"}, {"id": 2, "name": "b"}, {"id": 3, "name": "c"})
    made.change(NEW, *(ColumnAdded(REF, c, 2 + i) for i, c in enumerate(NEW.columns[2:4])))
    return made


PROMOTED = [
    ("a number", "7", "int64", 7, 1, 0),
    ("does not fit", "many", "int64", None, 0, 1),
    ("a NUL", "a\0b", "string", None, 0, 1),
    ("an array", "[1, 2]", "array(int32)", [1, 2], 1, 0),
    ("a document", '{"a":1}', "json", '{"a":1}', 1, 0),
    ("bytes", "\\x00ff", "binary", b"\x00\xff", 1, 0),
]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("kept", "kind", "value", "rows", "invalid_values"), [c[1:] for c in PROMOTED], ids=[c[0] for c in PROMOTED]
)
def test_kept_values_are_taken_out(
    database: Database, tmp_path: Path, kept: str, kind: str, value: object, rows: int, invalid_values: int
) -> None:
    extra = Column(f"{PREFIX}extra", parse("json"))
    shop = Warehouse(database, tmp_path, table(ID, column("v", kind), extra))
    shop.append({"id": 1, extra.name: compact_json({"old": kept, "b": 1})}, {"id": 2})
    columns = {"v": OverflowColumn("old", parse(kind))}
    assert shop.to.write.promote(REF, columns, extra.name, shop.commit()) == Promoted(rows, invalid_values)
    [(_, now, left), other] = shop.rows("id", "v", extra.name)
    assert now == value
    assert left == ('{"b":1}' if rows else compact_json({"old": kept, "b": 1}))
    assert other == (2, None, None)
    assert shop.to.write.promote(REF, columns, extra.name, shop.commit()).rows == 0


def test_columns_may_be_called_as_names_of_ours(database: Database, tmp_path: Path) -> None:
    ours = [*(n for n in COLUMNS if n != "_instep_n"), "100%", "v", "_instep_note"]
    wanted = table(ID, *(column(name, "string") for name in ours), Column("k0", parse("int32")))
    shop = Warehouse(database, tmp_path, wanted)
    shop.append({"id": 1, "filename": "f", "t": "t", "s": "s", "k0": 7, "100%": "%s"})
    assert shop.merge({"id": 1, "t": "new", "s": "s"}, {"id": 2, "n": "n"}).inserted == 1
    met = shop.to.write.lookup_rows(REF, keys(1))
    shop.to.write.update_rows(REF, met, RowUpdate([0], met.rows, met.rows.slice(0, 0)), shop.commit())
    assert shop.rows("id", "t", "s", "n") == [(1, "new", "s", None), (2, None, None, "n")]
