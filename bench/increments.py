"""Whether merges stay as fast as they were: many syncs of 1 % of a table, with maintenance after syncs and without.

    python bench/increments.py [--syncs 200] [--rows 100000]

One process, a SQLite file as source, an Iceberg lake, no JVM: what grows is the table's own files. Printed are the
medians of the first and the last tenth of the syncs, and what is left on disk.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sqlite3
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from instep.bootstrap import App, open_project
from instep.sync.loading.engine import LocalEngine
from instep.sync.run import sync
from places import OUT

PROJECT = """\
version: 1
sources: {db: {type: sqlite, path: shop.db}}
destinations: {lake: {type: iceberg, warehouse: lake}}
connections:
  shop:
    source: db
    destination: lake
    tables: {main.orders: {cursor: updated_at, deletes: ignore}}
    maintain: MAINTAIN
"""
MODES = {
    "with": "{min_files: 10, max_snapshot_age: 0, keep_snapshots: 20}",
    "without": "{after_sync: false}",
}
TABLE = "CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INT, note TEXT, amount REAL, updated_at INT NOT NULL)"
Record = dict[str, Any]


def fill(database: sqlite3.Connection, rows: int) -> None:
    database.execute(TABLE)
    values = ((i, i % 977, f"note {i} {i * 7919 % rows}", i / 4, 0) for i in range(rows))
    database.executemany("INSERT INTO orders VALUES (?, ?, ?, ?, ?)", values)
    database.execute("CREATE INDEX orders_updated_at ON orders (updated_at)")


def change(database: sqlite3.Connection, rows: int, number: int) -> None:
    """Updates nine tenths of a percent, all over the table, and adds a tenth."""
    many = rows // 100
    new = max(many // 10, 1)
    places = [((i * 104_729 + number * 31) % rows,) for i in range(many - new)]
    database.executemany(f"UPDATE orders SET amount = amount + 1, updated_at = {number} WHERE id = ?", places)
    start = rows + number * new
    added = ((start + i, i, f"new {i}", 1.0, number) for i in range(new))
    database.executemany("INSERT INTO orders VALUES (?, ?, ?, ?, ?)", added)


def run(mode: str, rows: int, syncs: int) -> Record:
    """Seconds of each sync after the first load, and what the table's folder holds at the end."""
    folder = OUT / f"increments-{mode}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "instep.yml").write_text(PROJECT.replace("MAINTAIN", MODES[mode]))
    seconds: list[float] = []
    with closing(sqlite3.connect(folder / "shop.db")) as database, open_project(folder) as app:
        with database:
            fill(database, rows)
        once(app)
        for number in range(1, syncs + 1):
            with database:
                change(database, rows, number)
            seconds.append(once(app))
        [(expected,)] = database.execute("SELECT count(*) FROM orders")
        layout, state = looked_at(app)
    if state.rows != expected:
        raise SystemExit(f"bench: {state.rows:,} rows arrived of {expected:,}")
    disk = [file.stat().st_size for file in (folder / "lake").rglob("*") if file.is_file()]
    shutil.rmtree(folder)
    tenth = max(syncs // 10, 1)
    return {
        "mode": mode, "rows": rows, "syncs": syncs, "first": statistics.median(seconds[:tenth]),
        "last": statistics.median(seconds[-tenth:]), "longest": max(seconds), "all": sum(seconds),
        "files": layout.files, "deletes": layout.deletes, "snapshots": layout.snapshots,
        "disk_files": len(disk), "disk_mb": round(sum(disk) / 2**20, 1),
    }  # fmt: skip


def once(app: App) -> float:
    begun = time.perf_counter()
    report = sync(app.sync_context("shop"), engine=LocalEngine())
    if report.status != "done":
        raise SystemExit(f"bench: a sync ended as {report.status}: {report.tables}")
    return time.perf_counter() - begun


def looked_at(app: App) -> tuple[Any, Any]:
    destination, ref = app.destination("lake"), ("shop", "orders")
    return destination.maintenance.layout(ref), destination.schema.state(ref)  # type: ignore[union-attr]


def table(records: Sequence[Record]) -> str:
    lines = ["| maintenance | first tenth, s | last tenth, s | longest, s | all, s | data files | on disk |"]
    lines += ["| --- | --- | --- | --- | --- | --- | --- |"]
    for r in records:
        times = f"{r['first']:.3f} | {r['last']:.3f} | {r['longest']:.3f} | {r['all']:.1f}"
        lines.append(f"| {r['mode']} | {times} | {r['files']} | {r['disk_files']:,} files, {r['disk_mb']} MB |")
    return "\n".join(lines)


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description="Many syncs of 1 % of a table.")
    parser.add_argument("--syncs", type=int, default=200)
    parser.add_argument("--rows", type=int, default=100_000)
    options = parser.parse_args(argv)
    records = [run(mode, options.rows, options.syncs) for mode in MODES]
    Path(OUT / "increments.json").write_text(json.dumps(records, indent=1))
    print(table(records))


if __name__ == "__main__":
    main(sys.argv[1:])
