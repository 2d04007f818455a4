"""What must be true after a crash, and after the sync that follows it: the promise, clause by clause."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

from crash_shop import data_files, file_of
from crash_world import KEYS, RENAMED, Rows, World, cursor_of


def check_interrupted(world: World) -> None:
    """After the crash: each table wholly old or wholly new, and no cursor ahead of its rows."""
    for name in world.tables:
        check_old_or_new(world, name)
    check_cursor(world)


def check_old_or_new(world: World, name: str) -> None:
    found, old, new = world.read(name), world.before.get(name), world.source(name)
    if found is None:
        assert old is None, f"{name} is gone"
        return
    if old is None:
        old = Rows(new.columns, Counter())
    if found.columns == old.columns and found.columns != new.columns:
        assert found.rows == old.rows, f"{name} has its old columns and other rows"
        return
    assert found.columns == new.columns, f"{name} has columns that it never had: {found.columns}"
    as_old = old.renamed(RENAMED.get(name, {}), new.columns)
    assert found.rows in (as_old.rows, new.rows), f"{name} is neither old nor new"


def check_cursor(world: World) -> None:
    """Each source row up to the recorded cursor stands in the lake; the store's mirror is not ahead of the lake's."""
    table = world.table("orders")
    if table is None:
        return
    with world.app() as app:
        mirrored = [json.loads(c.cursor)["upper"] for c in app.store.cursors.of("crash").values() if c.cursor]
    recorded = cursor_of(table)
    assert all(m <= recorded for m in mirrored), f"the store says {mirrored}, the lake {recorded}"
    if not recorded:
        return
    found, source = world.read("orders"), world.source("orders")
    assert found is not None
    upper = datetime.fromisoformat(recorded)
    upper = upper.replace(tzinfo=upper.tzinfo or UTC)
    due = {row for row in _versions(source) if row[1] <= upper}
    assert due <= _versions(found), "the cursor is ahead of the rows"
    assert upper <= max(at for _, at in _versions(found))


def _versions(orders: Rows) -> set[tuple[int, datetime]]:
    """(key, cursor value) of each row."""
    key, at = orders.columns.index("id"), orders.columns.index("updated_at")
    return {(row[key], row[at]) for row in orders.rows}


def check_converged(world: World) -> None:
    """After the next sync: equal, without duplicates, nothing left over, each change told once."""
    for name in world.tables:
        found, source = world.read(name), world.source(name)
        assert found is not None, f"{name} is missing"
        assert found.columns == source.columns
        assert found.rows == source.rows, _difference(name, found, source)
        check_keys(world, name)
    assert world.verified()
    check_cursor(world)
    check_nothing_left(world)
    check_events(world)
    with world.app() as app:
        assert app.store.runs.running("crash") is None
        assert not app.store.backfills.waiting("crash")
        plans = app.store.plans.history("crash")
        assert [p.id for p in plans if p.status == "running"] == []
        steps = [s for p in plans for s in app.store.steps.of(p.id)]
        assert {s.status for s in steps} <= {"done", "skipped", "failed"}


def _difference(name: str, found: Rows, source: Rows) -> str:
    here, there = Counter(found.rows), Counter(source.rows)
    return f"{name}: only in the lake {list((here - there).items())[:3]}, missing {list((there - here).items())[:3]}"


def check_keys(world: World, name: str) -> None:
    """A key stands once, rows that are marked as deleted included."""
    table = world.table(name)
    if table is None or name not in KEYS:
        return
    counts = Counter(table.scan(selected_fields=(KEYS[name],)).to_arrow().column(0).to_pylist())
    assert not [key for key, count in counts.items() if count > 1], f"{name} holds a key twice"


def check_nothing_left(world: World) -> None:
    """No branch, no staging table, no file that no snapshot knows of."""
    lake = world.lake
    assert ("_instep_staging",) not in lake.list_namespaces() or not lake.list_tables("_instep_staging")
    tables = [lake.load_table(ref) for space in lake.list_namespaces() for ref in lake.list_tables(space)]
    known: set[Path] = set()
    for table in tables:
        branches = [name for name, ref in table.metadata.refs.items() if ref.snapshot_ref_type == "branch"]
        assert branches == ["main"] or not branches, f"{table.name()} has the branches {branches}"
        known |= data_files(table)
    found = {_checked(p) for p in (world.folder / "lake").rglob("*") if p.is_file() and "data" in p.parts[-4:-1]}
    assert not found - known, f"left over: {sorted(str(p) for p in found - known)[:5]}"
    folders = [p for p in (world.folder / "lake").glob("*/*") if p.is_dir()]
    homes = {file_of(table.location()) for table in tables}
    assert not [p for p in folders if p not in homes and any(p.rglob("*.parquet"))]


def _checked(path: Path) -> Path:
    """The file itself, of a checksum file that Hadoop wrote beside it."""
    return path.with_name(path.name.removeprefix(".").removesuffix(".crc")) if path.suffix == ".crc" else path


def check_events(world: World) -> None:
    """Each change is told once: detected, and applied."""
    with world.app() as app:
        events = app.store.events.latest(connection="crash", limit=1000)
    for kind in ("change.detected", "change.applied"):
        told = Counter(e.data["change"] for e in events if e.type == kind)
        assert not [c for c, times in told.items() if times > 1], f"{kind} was told twice"
    assert len({e.data["change"] for e in events if e.type == "change.applied"}) >= len(world.tables)
