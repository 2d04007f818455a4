"""`instep maintain`: compact small files, remove deleted rows, expire old snapshots, delete orphaned files."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from instep.cli.arguments import Connection, DryRun, TablePattern, examples
from instep.cli.backend import open_backend
from instep.cli.context import PARTIAL, emit, fail
from instep.operations.repair.maintain import MaintainRequest

if TYPE_CHECKING:
    from instep.cli.screen import Screen
    from instep.destinations.base import Layout
    from instep.sync.operations.maintain import MaintainedTable, MaintenanceReport


def register(app: typer.Typer) -> None:
    app.command(epilog=examples("instep maintain --dry-run", "instep maintain shop --table 'public.*'"))(maintain)


def maintain(
    connection: Connection = None,
    table: TablePattern = "",
    dry_run: DryRun = False,
) -> None:
    """Compact files, expire old snapshots and delete orphaned files.

    No row changes, and undo stays possible. A load that starts meanwhile takes precedence.
    """
    with open_backend() as backend:
        name = backend.connection(connection)
        done: MaintenanceReport = backend.operations.run(name, MaintainRequest(table=table, preview=dry_run))
    emit(_data(name, done, dry_run), lambda out: _show(out, done, dry_run))
    if any(t.error for t in done.tables):
        raise fail(PARTIAL)


def _data(connection: str, done: MaintenanceReport, dry_run: bool) -> dict[str, Any]:
    tables = [
        {"table": t.table, "seconds": round(t.seconds, 3), "error": t.error, "left": t.left, **asdict(t.done)}
        for t in done.tables
    ]
    return {
        "connection": connection,
        "run": done.run,
        "dry_run": dry_run,
        "tables": tables,
        "note": done.note,
        "forgotten": list(done.forgotten),
        "bytes": list(done.vacuumed) if done.vacuumed else None,
    }


def _show(out: Screen, done: MaintenanceReport, dry_run: bool) -> None:
    from instep.schema.planning.explain import size

    if done.note:
        out.write(done.note)
    for table in done.tables:
        if table.error:
            out.write(f"{table.table}: failed: {table.error}", "red")
        elif table.left:
            out.write(f"{table.table}: skipped: {table.left}", "yellow")
        else:
            _table(out, table, dry_run)
    for name in done.forgotten:
        out.write(f"can no longer be undone: {name}", "dim")
    if done.vacuumed:
        out.write(f"file size: {size(done.vacuumed[0])} before, {size(done.vacuumed[1])} now")


def _table(out: Screen, table: MaintainedTable, dry_run: bool) -> None:
    from instep.schema.planning.explain import size

    done, would = table.done, "would be " if dry_run else ""
    parts = [
        f"{done.rewritten:,} files ({size(done.bytes_rewritten)}) {would}compacted: "
        f"{done.files_before:,} -> {done.files:,} files, {done.deletes_before:,} -> {done.deletes:,} delete files"
        if done.rewritten or done.deletes < done.deletes_before
        else "",
        f"{done.manifests_before:,} -> {done.manifests:,} manifests" if done.manifests < done.manifests_before else "",
        f"{done.snapshots:,} snapshots {would}expired" if done.snapshots else "",
        f"{done.orphans:,} orphaned files ({size(done.orphan_bytes)}) {would}deleted" if done.orphans else "",
    ]
    text = "; ".join(p for p in parts if p) or f"nothing to do: {done.files:,} files, {size(done.bytes)}"
    out.write(f"{table.table}: {text}")
    for note in done.notes:
        out.write(f"  {note}", "yellow")


def layout_line(layout: Layout) -> str:
    """Return a table's files as one line of `table show`."""
    from instep.schema.planning.explain import size

    at = f"maintained at {layout.maintained:%Y-%m-%d %H:%M} UTC" if layout.maintained else "never maintained"
    return (
        f"{layout.files or 0:,} ({size(layout.bytes or 0)}), {layout.deletes or 0:,} delete files, "
        f"{layout.snapshots or 0:,} snapshots; {at}"
    )
