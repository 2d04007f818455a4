"""Tables that people name: an error that says which one was probably meant, before anything is done."""

from __future__ import annotations

from collections.abc import Collection

from instep.errors import InstepError
from instep.schema.selection.overrides import sides
from instep.schema.selection.selection import is_on
from instep.sources.base import Discovery
from instep.suggest import did_you_mean
from instep.sync.context import SyncContext


def unknown_table(written: str, name: str, known: Collection[str]) -> InstepError:
    """`written`: all of the message but the name."""
    hint = did_you_mean(name, known, "see `instep status` for the tables that are synced")
    return InstepError(f"{written} {name}", hint=hint)


def check_named(context: SyncContext, names: Collection[str], seen: Discovery) -> None:
    """Raise InstepError for paths that are neither accepted nor at the source and switched on; writes nothing."""
    if not names:
        return
    accepted = context.store.accepted.catalog(context.name)
    chosen = sides(
        context.project_selection, context.store.switches.of(context.name), seen.catalog, accepted, seen.identity
    )
    known = {t.path for t in accepted.tables} | {t.path for t in seen.catalog.tables if is_on(chosen.now, t)[0]}
    for name in sorted(set(names) - known):
        raise unknown_table(f"connection {context.name} syncs no table", name, known)
