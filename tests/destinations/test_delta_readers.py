# ruff: noqa: S608 - names are ours
"""What others read of our tables equals what we say, and what Spark writes into them is read."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from delta_spark import Rows, ask, plain
from delta_world import Warehouse
from deltalake import DeltaTable, QueryBuilder

from instep.destinations.base import Commit
from instep.schema.catalog.catalog import Column, Table
from instep.schema.catalog.types import parse
from instep.schema.changes.kinds import ColumnAdded, ColumnRemoved, ColumnRenamed, ColumnWidened, TableRenamed
from instep.schema.planning.step import RewriteColumn, UndropColumn, step
from lake import ID, REF, column, table

WANTED = table(
    ID, column("name", "string"), column("amount", "decimal(10,2)"), column("n", "int32"), column("at", "timestamp"),
    column("tz", "timestamptz"), column("tags", "array(int32)"), column("pair", 'struct("a" int32, "b c" string)'),
    column("day", "date"), column("key", "uuid"), column("small", "int8"), column("ratio", "float32"),
    column("raw", "binary"), column("dotted. name", "string"), column("doc", "json"),
)  # fmt: skip
WIDER = {"n": "int64", "amount": "decimal(14,4)", "small": "int32", "ratio": "float64"}


def row(number: int, **more: Any) -> dict[str, Any]:
    at = dt.datetime(2026, 1, number, 1, 2, 3, 456789)
    return {
        "id": number, "name": f"n{number}", "amount": Decimal(number) / 4, "n": number, "at": at,
        "tz": at.replace(tzinfo=dt.UTC), "tags": [number, None], "pair": {"a": number, "b c": "x"}, "day": at.date(),
        "key": f"00000000-0000-0000-0000-00000000000{number}", "small": number, "ratio": number / 2,
        "raw": b"x%d" % number, "dotted. name": "dot", "doc": '{"a": 1}', **more,
    }  # fmt: skip


def with_columns(wanted: Table, **columns: Column) -> Table:
    return replace(wanted, columns=tuple(columns.get(c.name, c) for c in wanted.columns))


def widened(shop: Warehouse) -> Table:
    after = with_columns(WANTED, **{n: replace(WANTED.by_name[n], type=parse(k)) for n, k in WIDER.items()})
    shop.change(after, *(ColumnWidened(REF, WANTED.by_name[n], after.by_name[n]) for n in WIDER))
    return after


def loaded(folder: Path) -> Warehouse:
    shop = Warehouse(folder, WANTED)
    shop.overwrite(row(1), row(2), row(3))
    shop.append(row(4))
    shop.merge(row(2, name="changed"), row(5))
    return shop


def told(shop: Warehouse, ref: tuple[str, str] = REF) -> Rows:
    return plain(shop.to.write.read(ref).read_all().to_pylist())


def swapped(shop: Warehouse) -> Table:
    """Two columns change names in one commit, and rows come after it."""
    name, number = WANTED.by_name["name"], WANTED.by_name["n"]
    other = (replace(name, name="n", alias="n"), replace(number, name="name", alias="name"))
    after = with_columns(WANTED, name=other[0], n=other[1])
    shop.change(after, ColumnRenamed(REF, name, other[0]), ColumnRenamed(REF, number, other[1]))
    shop.append(row(6, n="six", name=66))
    return after


def test_delta_rs_reads_the_same(tmp_path: Path) -> None:
    shop = loaded(tmp_path)
    swapped(shop)
    for number in range(12):
        shop.append(row(7, id=100 + number, n="bulk", name=number))
    there = DeltaTable(str(shop.held.folder))
    assert there.version() == shop.held.snapshot.version
    assert by_delta_rs(there) == told(shop)
    shop.held.log.clean(shop.held.snapshot.version)
    assert shop.held.log.versions()[0] > 0
    assert by_delta_rs(DeltaTable(str(shop.held.folder))) == told(shop), "from a checkpoint"


def by_delta_rs(there: DeltaTable) -> Rows:
    rows = pa.table(QueryBuilder().register("t", there).execute("select * from t").read_all())
    return plain(rows.to_pylist())


def states(shop: Warehouse) -> list[tuple[int, Rows]]:
    """Takes the table through every kind of change; its version and rows after each."""
    seen = list[tuple[int, Rows]]()

    def look() -> None:
        seen.append((shop.held.snapshot.version, told(shop)))

    look()
    swapped(shop)
    look()
    now = shop.to.schema.inspect([REF]).tables[0]
    after = with_columns(now, amount=replace(now.by_name["amount"], type=parse("decimal(14,4)")),
                         name=replace(now.by_name["name"], type=parse("int64")),
                         small=replace(now.by_name["small"], type=parse("int32")),
                         ratio=replace(now.by_name["ratio"], type=parse("float64")))  # fmt: skip
    shop.change(
        after, *(ColumnWidened(REF, now.by_name[n], after.by_name[n]) for n in ("amount", "name", "small", "ratio"))
    )
    shop.append(row(7, n="seven", name=2**40, amount=Decimal("1.2345"), ratio=0.1))
    look()
    key = after.by_name["key"]
    without = replace(after, columns=tuple(c for c in after.columns if c.name != "key"))
    shop.change(without, ColumnRemoved(REF, key, 9))
    changed = {k: v for k, v in row(1, n="one", name=1).items() if k != "key"}
    shop.merge(changed)
    look()
    shop.change(after, UndropColumn(REF, key, key))
    look()
    more = column("more", "int64")
    shop.change(replace(after, columns=(*after.columns, more)), ColumnAdded(REF, more, 20))
    text = replace(more, type=parse("string"))
    shop.append(row(8, n="eight", name=8, more=88))
    shop.change(replace(after, columns=(*after.columns, text)), RewriteColumn(REF, more, text))
    look()
    first = shop.to.lifecycle.savepoints.savepoints(REF)
    shop.to.lifecycle.savepoints.restore(REF, first[-1].id, first[0].id, first[-1].rows, shop.commit())
    look()
    return seen


SEEKS = [
    ("amount > 1.2 AND amount < 1.3", [5, 7]), ("name = 1099511627776", [7]), ("small = 3", [3]),
    ("tz >= timestamp'2026-01-05 01:02:03.456789'", [5, 6, 7]), ("at = timestamp_ntz'2026-01-04 01:02:03.456789'", [4]),
    ("day = date'2026-01-05'", [5]), ("n = 'changed'", [2]), ("`dotted. name` = 'dot' and id = 1", [1]),
]  # fmt: skip


@pytest.mark.drawn(5)
@pytest.mark.slow
def test_spark_reads_the_same_after_every_change(tmp_path: Path) -> None:
    shop = loaded(tmp_path)
    seen = states(shop)
    now = shop.to.schema.inspect([REF]).tables[0]
    moved = replace(now, schema="other", name="sales 2026")
    shop.to.schema.execute(REF, [step(REF, TableRenamed(now, moved))], moved, Commit("r", 99))
    at = f"delta.`{shop.to.warehouse.folder(moved.ref)}`"
    asked = [f"SELECT * FROM {at} VERSION AS OF {version}" for version, _ in seen]
    asked += [f"SELECT * FROM {at}"]
    asked += [f"SELECT id FROM {at} VERSION AS OF {seen[2][0]} WHERE {where}" for where, _ in SEEKS]
    asked += [
        f"INSERT INTO {at} (id, n) VALUES (999, 'by Spark')",
        f"UPDATE {at} SET n = 'updated' WHERE id = 3",
        f"OPTIMIZE {at}",
        f"SELECT * FROM {at}",
    ]
    said = ask(tmp_path, asked)
    for (_, ours), theirs in zip(seen, said, strict=False):
        assert theirs == ours
    assert said[len(seen)] == seen[-1][1]
    found = [[int(r["id"]) for r in rows] for rows in said[len(seen) + 1 :][: len(SEEKS)]]
    assert found == [ids for _, ids in SEEKS]
    assert said[-1] == told(shop, moved.ref)
    assert [r["n"] for r in said[-1] if r["id"] in ("3", "999")] == ["updated", "by Spark"]
    state = shop.to.schema.state(moved.ref)
    assert state is not None
    assert (state.files, shop.to.schema.inspect([moved.ref]).tables) == (1, (moved,))
