"""`instep db`: upgrade, back up, restore and prune the store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from instep.cli.arguments import DryRun, examples
from instep.cli.context import confirm, emit, fail, open_app, options, say

if TYPE_CHECKING:
    from instep.store.engine.database import Database


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        help="Manage the state store: upgrade, back up, restore.",
        epilog=examples("instep db backup state.db"),
        no_args_is_help=True,
    )
    group.command(epilog=examples("instep db upgrade"))(upgrade)
    group.command(epilog=examples("instep db backup state.db", "instep db backup state.jsonl.gz"))(backup)
    group.command(epilog=examples("instep db prune --dry-run"))(prune)
    group.command(epilog=examples("instep db restore state.jsonl.gz --replace"))(restore)
    app.add_typer(group, name="db")


def upgrade() -> None:
    """Upgrade the store's tables to this version of instep.

    A SQLite file is copied first, beside itself.
    """
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
    file: Annotated[
        Path, typer.Argument(help="NAME.db for a SQLite database; NAME.jsonl or NAME.jsonl.gz for any store.")
    ],
) -> None:
    """Back up the store while it is in use.

    Secrets in the backup stay encrypted: keep the master keys elsewhere.
    """
    from instep.store.admin.backup import back_up

    with _database() as database:
        back_up(database, file)
    emit({"file": str(file)}, lambda out: out.write(f"wrote {file}"))


def prune(
    dry_run: DryRun = False,
) -> None:
    """Delete runs, events, deliveries, jobs and rollouts that are too old.

    `retention` in instep.yml sets the age. What undo, history and schemas need stays. Workers prune daily.
    """
    from instep.monitoring.retention import forget
    from instep.store.store import utc_now

    with open_app() as app:
        purged = forget(app.store, app.project.model.retention, utc_now(), dry_run=dry_run)
    counts = ", ".join(f"{count:,} {what}" for what, count in purged.items()) or "nothing"
    word = "would delete" if dry_run else "deleted"
    emit({"dry_run": dry_run, "forgotten": dict(purged)}, lambda out: out.write(f"{word} {counts}"))


def restore(
    file: Annotated[Path, typer.Argument(help="A backup of this store or of another one.")],
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace a store that is in use; its state is lost.")
    ] = False,
) -> None:
    """Restore the store from a backup.

    This is also the way from SQLite to PostgreSQL, and back.
    """
    from instep.store.admin.backup import bring_back
    from instep.store.store import utc_now

    with _database() as database:
        if replace and not confirm(f"Replace everything in the store {database.place}?"):
            say("nothing was changed")
            raise fail(1)
        counts = bring_back(database, file, utc_now, replace=replace)
    total = sum(counts.values())
    emit({"rows": dict(counts)}, lambda out: out.write(f"restored {total} rows in {len(counts)} tables from {file}"))


@contextmanager
def _database() -> Iterator[Database]:
    """Open the store as it is, without changing anything."""
    from instep.project.load import load_beside
    from instep.store.engine.database import Database
    from instep.store.store import utc_now

    project = load_beside(options.project)
    database = Database(project.store_url(), utc_now)
    try:
        yield database
    finally:
        database.close()
