"""`instep db`: the store itself: its version, backups and their return."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from instep.cli.context import confirm, emit, fail, open_app, options, say

if TYPE_CHECKING:
    from instep.store.engine.database import Database


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="The store: its version, backups and their return.", no_args_is_help=True)
    group.command(epilog="Example: instep db upgrade")(upgrade)
    group.command(epilog="Examples: instep db backup state.db · instep db backup state.jsonl.gz")(backup)
    group.command(epilog="Example: instep db prune --dry-run")(prune)
    group.command(epilog="Example: instep db restore state.jsonl.gz --replace")(restore)
    app.add_typer(group, name="db")


def upgrade() -> None:
    """Bring the store to this version's tables. A SQLite file is copied first, beside itself."""
    from instep.store.admin.backup import upgrade as run_upgrade

    with _database() as database:
        before, after = run_upgrade(database)
    same = f"the store is at version {after} already"
    emit(
        {"before": before, "after": after},
        lambda out: out.write(
            same if before == after else f"the store is at version {after} now, was {before or 'new'}"
        ),
    )


def backup(
    file: Annotated[Path, typer.Argument(help="NAME.db: a SQLite database; NAME.jsonl or NAME.jsonl.gz: any store.")],
) -> None:
    """Write a backup, while the store is in use. Secrets in it stay sealed: keep the master keys elsewhere."""
    from instep.store.admin.backup import back_up

    with _database() as database:
        back_up(database, file)
    emit({"file": str(file)}, lambda out: out.write(f"wrote {file}"))


def prune(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how many.")] = False,
) -> None:
    """Forget runs, events, deliveries, jobs and rollouts that are older than `retention` in instep.yml says. What undo,
    history and schemas need stays. Workers do this daily."""
    from instep.monitoring.retention import forget
    from instep.store.store import utc_now

    with open_app() as app:
        found = forget(app.store, app.project.model.retention, utc_now(), dry_run=dry_run)
    told = ", ".join(f"{count:,} {what}" for what, count in found.items()) or "nothing"
    word = "would forget" if dry_run else "forgot"
    emit({"dry_run": dry_run, "forgotten": dict(found)}, lambda out: out.write(f"{word} {told}"))


def restore(
    file: Annotated[Path, typer.Argument(help="A backup of this store or of another one.")],
    replace: Annotated[bool, typer.Option("--replace", help="Also when the store is in use: it is lost.")] = False,
) -> None:
    """Make the store what it was when a backup was made; also the way from SQLite to PostgreSQL, and back."""
    from instep.store.admin.backup import bring_back
    from instep.store.store import utc_now

    with _database() as database:
        if replace and not confirm(f"Replace all that the store {database.place} holds?"):
            say("nothing was changed")
            raise fail(1)
        counts = bring_back(database, file, utc_now, replace=replace)
    total = sum(counts.values())
    emit({"rows": dict(counts)}, lambda out: out.write(f"restored {total} rows of {len(counts)} tables from {file}"))


@contextmanager
def _database() -> Iterator[Database]:
    """The store as it is: opening it changes nothing."""
    from instep.project.load import load_beside
    from instep.store.engine.database import Database
    from instep.store.store import utc_now

    project = load_beside(options.project)
    database = Database(project.store_url(), utc_now)
    try:
        yield database
    finally:
        database.close()
