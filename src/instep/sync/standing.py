"""How one table is synced and what stands in its way: from the store and the project file, without source or lake."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

from instep.errors import InstepError, ProjectError
from instep.model import Pause, Review
from instep.schema.names import destination_ref
from instep.schema.old_names import OldName
from instep.schema.read import pair_tables
from instep.schema.table import Table
from instep.store.copies import Copy
from instep.sync.choose import Choice, choose
from instep.sync.pipe import Pipe, Ref


@dataclass(frozen=True)
class Standing:
    """`key_from` and `cursor_from` say who named them. `pauses` are those of the table and of its whole connection,
    `waiting` the changes of the table that are open; `trouble` why its settings do not fit."""

    table: Table
    place: Ref
    choice: Choice | None
    trouble: str
    key_from: str
    cursor_from: str
    pauses: tuple[Pause, ...]
    waiting: tuple[Review, ...]
    copies: tuple[Copy, ...]
    old_names: tuple[OldName, ...] = ()


def standing(pipe: Pipe, path: str) -> Standing:
    """The accepted table of this path; InstepError if there is none."""
    store, accepted = pipe.store, pipe.store.accepted.catalog(pipe.name)
    known = {t.path: t for t in accepted.tables}
    if path not in known:
        near = get_close_matches(path, known, 1)
        hint = f"did you mean {near[0]}?" if near else "write schema.table, as `instep status` shows it"
        raise InstepError(f"connection {pipe.name} has no table {path}", hint=hint)
    table = known[path]
    choice, trouble = _choice(pipe, table)
    return Standing(
        table, destination_ref(table, pipe.naming), choice, trouble, _key_from(pipe, table), _cursor_from(pipe, table),
        tuple(p for p in store.pauses.active(pipe.name) if p.table in (None, table.ref)),
        tuple(r for r in store.reviews.find(pipe.name, ("open",)) if r.table == table.ref and r.action != "apply"),
        tuple(c for c in store.copies.standing(pipe.name) if c.table == table.ref),
        tuple(n for n in store.old_names.of(pipe.name) if n.table == destination_ref(table, pipe.naming)),
    )  # fmt: skip


def _choice(pipe: Pipe, table: Table) -> tuple[Choice | None, str]:
    found: Choice | None = None
    trouble = "it is kept after its removal and not read any more" if table.retained else ""
    if not table.retained:
        try:
            found = choose(table, pipe.settings(table))
        except ProjectError as error:
            trouble = str(error)
    return found, trouble


def _key_from(pipe: Pipe, table: Table) -> str:
    settings, chosen = pipe.settings(table), pipe.store.choices.of(pipe.name).get((table.ref, "key"))
    own: tuple[str, ...] = ()
    if (seen := pipe.store.discoveries.get(pipe.name)) is not None:
        source = pair_tables(pipe.store.accepted.catalog(pipe.name).tables, seen.catalog).get(table.ref)
        own = source.key if source else ()
    if not table.key:
        return "the source has none" if not own else f"not let in: the source has ({', '.join(own)})"
    if chosen is not None and not settings.key:
        return f"set by {chosen.who} on {chosen.at:%Y-%m-%d}"
    if own:
        return "the source" if set(own) == set(table.key) else f"the source, which has ({', '.join(own)}) by now"
    return "instep.yml" if settings.key else "the source, which has none by now"


def _cursor_from(pipe: Pipe, table: Table) -> str:
    settings, chosen = pipe.settings(table), pipe.store.choices.of(pipe.name).get((table.ref, "cursor"))
    if settings.cursor is not None:
        return "instep.yml"
    if chosen is None:
        return "nobody has set one" if table.cursor is None else "set before"
    start = f", first read from {chosen.start}" if chosen.start else ""
    return f"set by {chosen.who} on {chosen.at:%Y-%m-%d}{start}"


__all__ = ["Standing", "standing"]
