"""Switches by command (on, off, hashed): the objects that match, the reasons against it, and its effect."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from instep.control.reviews import answer
from instep.errors import Blocked, InstepError, argument
from instep.events import SelectionChanged
from instep.model import Review
from instep.operations.values import Answer, Verb
from instep.project.documents import value_at
from instep.project.project import Project
from instep.project.sections.tables import TableSettings
from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import Unknown
from instep.schema.planning.projection import LoadedRules, clear_retained_columns, is_read_again
from instep.schema.policy.policy import Policy
from instep.schema.selection.overrides import Switch, bind, with_switches
from instep.schema.selection.pii import by_name
from instep.schema.selection.selection import Pattern, Selection, column_is_on, hashed
from instep.store.catalogs.discoveries import CachedDiscovery
from instep.store.store import Store
from instep.suggest import stays_in_clear, unknown_table

WORDS: Mapping[Verb, str] = {"on": "on", "off": "off", "hash": "hashed", "unhash": "clear"}


@dataclass(frozen=True)
class SwitchTarget:
    """A schema (`table` is None), a table (`column` is None) or a column."""

    schema: str
    table: Table | None = None
    column: Column | None = None

    @property
    def path(self) -> str:
        if self.table is None:
            return self.schema
        return f"{self.table.path}.{self.column.name}" if self.column else self.table.path


@dataclass(frozen=True)
class SwitchedConnection:
    """The one connection that is switched: what its file says (`file`), and with the switches (`now`), what the last
    detection has seen and what is accepted."""

    connection: str
    store: Store
    file: Selection
    now: Selection
    source: Catalog
    accepted: Catalog
    identity: str
    policy: Policy
    tags: tuple[str, ...]
    settings: Callable[[Table], TableSettings]
    line: Callable[[str, str], str]
    """Answers where the file says something: a section and an entry to `instep.yml:12: ...`."""
    salted: bool
    """There is a salt to hash with."""
    denied: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    """Objects that the source does not let us read, and why."""

    @cached_property
    def known(self) -> Catalog:
        """Everything that can be switched: what the source had at the last detection, and what is accepted."""
        tables = {t.ref: t for t in self.accepted.tables if not t.retained}
        return Catalog.of({**tables, **{t.ref: t for t in self.source.tables}}.values())


@dataclass(frozen=True)
class SwitchStep:
    """One switch to be turned."""

    target: SwitchTarget
    verb: Verb
    switch: Switch
    lines: tuple[str, ...] = ()
    """Say what follows."""
    backfill: tuple[tuple[str, str], str] | None = None
    """Asks for the column, or ("" as column) for the table to be read again."""
    same: bool = False
    """True if the switch is already so."""


def place_of(project: Project, store: Store, connection: str) -> SwitchedConnection:
    """Return the switches and catalogs of one connection, from the project file and the store alone."""
    seen = store.discoveries.get(connection) or CachedDiscovery(Catalog(), "")
    return place_in(project, store, connection, seen, store.accepted.catalog(connection))


def place_in(
    project: Project, store: Store, connection: str, seen: CachedDiscovery, accepted: Catalog
) -> SwitchedConnection:
    """Return the same for the tables of a connection that are in these catalogs."""
    file = project.selection(connection)
    return SwitchedConnection(
        connection,
        store,
        file,
        now=with_switches(file, store.switches.of(connection), seen.catalog, seen.identity),
        source=seen.catalog,
        accepted=accepted,
        identity=seen.identity,
        policy=project.policy(connection),
        tags=tuple(project.connection(connection).tags),
        settings=lambda t: project.table(connection, t.ref),
        line=lambda section, entry: _line(project, connection, section, entry),
        salted=bool(project.connection(connection).salt),
        denied=seen.denied,
    )


def _line(project: Project, connection: str, section: str, entry: str) -> str:
    """Return where an entry stands: in the file, or in what a server keeps."""
    place: tuple[str | int, ...] = ("connections", connection, *section.split("."))
    data = value_at(project.tree.data, place)
    if isinstance(data, list):
        return project.location_of((*place, data.index(entry)))
    return project.location_of((*place, entry, "enabled") if isinstance(data, dict) else place)


def targets(
    place: SwitchedConnection, objects: Sequence[str], matching: Sequence[str], *, retained: bool = False
) -> list[SwitchTarget]:
    """Return the schemas, tables and columns that these paths name, or that a pattern matches (tables and columns);
    `retained` columns, too.

    Raises InstepError, naming what was probably meant, for what there is not, and before the first detection.
    """
    every = {t.path: t for t in _targets(place.known)}
    if not every:
        raise InstepError(
            f"nothing of connection {place.connection} is listed yet", hint="run `instep detect` first, then switch"
        )
    chosen = (s for s in place.store.switches.of(place.connection) if s.is_chosen)
    every |= {s.path: _missing_target(s) for s in chosen if s.path not in every}
    if retained:
        every = {t.path: t for t in _retained_targets(place)} | every
    by_path = {path: every[path] if path in every else _missing(place, path, every) for path in objects}
    for text in matching:
        fits = {path: t for path, t in every.items() if t.table is not None and Pattern(text).matches(path)}
        if not fits:
            raise InstepError(f"the pattern {text!r} matches nothing of {place.connection}", hint=_LISTED)
        by_path |= fits
    if not by_path:
        raise InstepError("nothing to switch was named", hint="name a schema, a table or a column, or --match PATTERN")
    return list(by_path.values())


_LISTED = "see `instep selection show --all-columns`"


def _targets(catalog: Catalog) -> Iterator[SwitchTarget]:
    """Yield the objects that can be switched. Tables and columns come last: a path that could be a schema or a table
    means the table."""
    yield from (SwitchTarget(schema) for schema in sorted(catalog.schemas) if schema)
    for table in catalog.tables:
        yield from (SwitchTarget(table.schema, table, c) for c in table.live)
    yield from (SwitchTarget(t.schema, t) for t in catalog.tables)


def _retained_targets(place: SwitchedConnection) -> Iterator[SwitchTarget]:
    """Yield the columns that the source no longer has and the destination retains."""
    for table in place.accepted.tables:
        yield from (SwitchTarget(table.schema, table, c) for c in table.columns if table.retained or c.retained)


def _missing_target(switch: Switch) -> SwitchTarget:
    """Return the target of a switch whose object is not at the source any more."""
    if not switch.table:
        return SwitchTarget(switch.schema)
    column = Column(switch.column, Unknown()) if switch.column else None
    return SwitchTarget(switch.schema, Table(switch.schema, switch.table, (column,) if column else ()), column)


def _missing(place: SwitchedConnection, path: str, every: Collection[str]) -> SwitchTarget:
    message = f"connection {place.connection} has no schema, table or column {path}"
    raise unknown_table(message, path, every, _LISTED)


def steps(place: SwitchedConnection, verb: Verb, chosen: Sequence[SwitchTarget]) -> list[SwitchStep]:
    """Return the effects of these switches. Raises Blocked, having changed nothing, where instep.yml contradicts,
    for keys and cursors, and where there is no salt to hash with."""
    switches = existing_switches(place)
    return [switch_step(place, verb, t, switches.get(t.path)) for t in chosen]


def switch_steps(
    place: SwitchedConnection, verb: Verb, objects: Sequence[str], matching: Sequence[str]
) -> list[SwitchStep]:
    """Return the steps for these paths and patterns. A pattern such as `*.email*` may match tables as well, which
    cannot be hashed."""
    chosen = targets(place, objects, matching, retained=verb == "hash")
    if matching and verb in ("hash", "unhash"):
        chosen = [t for t in chosen if t.column is not None] or chosen
    return steps(place, verb, chosen)


def check(place: SwitchedConnection, verb: Verb, target: SwitchTarget) -> None:
    """Raise Blocked for what may not be switched so, and InstepError where it makes no sense."""
    if verb in ("hash", "unhash") and target.column is None:
        raise InstepError(f"only columns are hashed, {target.path} is none", hint=f"name one: {target.path}.COLUMN")
    # the file is the truth about what it names itself
    conflict = _conflict(place.file, verb, target)
    if conflict:
        section, entry, change = conflict
        raise Blocked(f"{place.line(section, entry)} says so of {target.path}", hint=f"change it there: {change}")
    if verb == "off":
        path = target.table.path if target.table else target.path
        hint = f"switch its table off: `instep selection off {argument(path)}`"
        if target.table and place.accepted.get(target.table.ref) is None:
            hint += ", or hash the column in instep.yml"
        _check_role(place, target, "switched off", hint)
    if verb == "hash":
        _check_hash(place, target)


def switch_step(place: SwitchedConnection, verb: Verb, target: SwitchTarget, existing: Switch | None) -> SwitchStep:
    """Return the effect of one switch; `existing` is the recorded switch of the object."""
    check(place, verb, target)
    base = existing or bind(_switch(target), place.known, place.identity)
    on_off, plain = verb in ("on", "off"), verb in ("on", "hash")
    switch = replace(base, enabled=plain) if on_off else replace(base, hashed=plain)
    lines, backfill = _follows(place, verb, target)
    return SwitchStep(target, verb, switch, lines, backfill, same=existing == switch)


def _switch(target: SwitchTarget) -> Switch:
    table, column = target.table, target.column
    return Switch(target.schema, table.name if table else "", column.name if column else "")


def _conflict(file: Selection, verb: Verb, target: SwitchTarget) -> tuple[str, str, str] | None:
    """Return (section, entry, what to write instead) of the part of the file that contradicts, None if none does."""
    path = target.path
    if verb == "unhash":
        by = next((p for p in file.hashed if p.matches(path)), None)
        return ("hash", by.text, f"take {by.text!r} out of `hash`") if by else None
    if target.table is None or verb == "hash":
        return None
    if verb == "on" and any(p.text == path for p in file.exclude_tables):
        return "exclude.tables", path, f"take {path!r} out of `exclude: tables`"
    if verb == "on" and any(p.text == path for p in file.exclude_columns):
        return "exclude.columns", path, f"take {path!r} out of `exclude: columns`"
    against = file.off if verb == "on" else file.on
    return ("tables", path, f'"{path}": {{enabled: {str(verb == "on").lower()}}}') if path in against else None


def _check_role(place: SwitchedConnection, target: SwitchTarget, what: str, hint: str) -> None:
    """Refuse to deselect or hash key and cursor columns: rows are identified and found again by them."""
    table, column = target.table, target.column
    if table is None or column is None:
        return
    settings, accepted = place.settings(table), place.accepted.get(table.ref)
    key = table.key or settings.key or (accepted.key if accepted else ())
    role = "key" if column.name in key else "cursor" if column.name in (settings.cursor, table.cursor) else ""
    if role:
        raise Blocked(f"{target.path} is in the {role} of its table and cannot be {what}", hint=hint)


def check_salt(place: SwitchedConnection, path: str) -> None:
    """Raise Blocked where there is no salt to hash the column of this path with."""
    if not place.salted:
        raise Blocked(
            f"connection {place.connection} has no salt to hash {path} with",
            hint="write `salt: ${env:INSTEP_SALT}` under the connection in instep.yml and set it in .env",
        )


def _check_hash(place: SwitchedConnection, target: SwitchTarget) -> None:
    check_salt(place, target.path)
    table = target.table
    if table and (accepted := place.accepted.get(table.ref)) and not accepted.retained:
        hint = "old and new rows would have different keys: hash keys and cursors before the first load, in instep.yml"
        _check_role(place, target, "hashed once it is loaded", hint)


def _follows(
    place: SwitchedConnection, verb: Verb, target: SwitchTarget
) -> tuple[tuple[str, ...], tuple[tuple[str, str], str] | None]:
    table = target.table
    accepted = place.accepted.get(table.ref) if table else None
    accepted = None if accepted is None or accepted.retained else accepted
    if table is None:
        return (_SCHEMA[verb],), None
    if target.column is None:
        return _of_table(place, verb, table, accepted), None
    column = accepted.by_name.get(target.column.name) if accepted else None
    if accepted is None or column is None or column.retained:
        return (_NEW_COLUMN[verb], *_in_clear(place, verb, target)), None
    return _of_column(place, verb, accepted, column)


def _in_clear(place: SwitchedConnection, verb: Verb, target: SwitchTarget) -> Iterator[str]:
    """Yield a warning for a column to hash that the source no longer has, and whose loaded values are in clear."""
    if verb != "hash" or target.table is None or target.column is None:
        return
    if (table := place.accepted.get(target.table.ref)) is None:
        return
    known = place.store.loaded.with_rules(place.connection, [table.ref])
    before, rules = known.get(table.ref, ((), LoadedRules()))
    name = target.column.name
    if any(c.column.name == name for c in clear_retained_columns(table, before, rules, lambda c: c.name == name)):
        yield stays_in_clear(place.connection, target.path)


_SCHEMA: Mapping[Verb, str] = {
    "on": "each of its tables is read as it is switched itself",
    "off": "none of its tables is read; what is loaded stays",
}
_NEW_COLUMN: Mapping[Verb, str] = {
    "on": "it comes in at the next sync",
    "off": "it is not read",
    "hash": "if it comes in, it does so as salted SHA-256",
    "unhash": "if it comes in, it does so in clear",
}


def _of_table(place: SwitchedConnection, verb: Verb, table: Table, accepted: Table | None) -> tuple[str, ...]:
    if verb == "off":
        return ("it is no longer read; its rows stay" if accepted else "it is not read",)
    closed = place.now.schemas_off & {table.schema}
    first = "it is read again from the next sync on" if accepted else "it gets its first load at the next sync"
    return (f"its schema {table.schema} is off: it is not read until that is on",) if closed else (first,)


def _of_column(
    place: SwitchedConnection, verb: Verb, table: Table, column: Column
) -> tuple[tuple[str, ...], tuple[tuple[str, str], str] | None]:
    """Return the effect on a column that is loaded already."""
    if verb == "off":
        return ("it is no longer read; its values stay, new rows have NULL",), None
    if verb == "on":
        if column_is_on(place.now, table, column)[0]:
            return ("it is read already",), None
        if not is_read_again(table.ref, column, "on", place.policy, place.tags):
            return ("it is read again; rows that are not read again keep what they have in it",), None
        return ("it is read again, with all rows: some kept old values while it was off",), (table.ref, "")
    if hashed(place.now, table.ref, column.name) == (verb == "hash"):
        return (f"it is {WORDS[verb]} already",), None
    state = "in clear" if verb == "hash" else "hashed"
    lines = [f"rows that are loaded are {state} until the table is read again: a backfill of it is recorded"]
    if verb == "hash":
        lines.append("rows that the source has deleted and older snapshots of the destination keep it in clear")
    return tuple(lines), (table.ref, "")


def switch(place: SwitchedConnection, turned: Sequence[SwitchStep], who: str) -> list[SwitchStep]:
    """Turn them in one transaction, with events; answers those that stood otherwise. A rejection of the object's
    own addition does not count any more once it is switched on."""
    new = [s for s in turned if not s.same]
    store, name = place.store, place.connection
    with store.transaction():
        store.switches.set(name, [s.switch for s in new], who)
        store.events.add(*(SelectionChanged(name, step.target.path, WORDS[step.verb], who) for step in new))
        for step in new:
            if step.backfill:
                ref, column = step.backfill
                store.backfills.request(name, ref, column=column, why=f"{step.target.path} is {WORDS[step.verb]}")
        store.reviews.reopen_rejected(_additions(place, [s for s in new if s.verb == "on"]))
    return new


def hashing(place: SwitchedConnection, reviews: Sequence[Review]) -> list[SwitchStep]:
    """Return the steps that accept the columns of these changes as hashes. Raises InstepError for changes that
    accept no column, and Blocked as `steps` does."""
    out = []
    for review in reviews:
        columns = _columns_of(place, review)
        if not columns:
            raise InstepError(
                f"change {review.id} lets no column in that could be hashed: {review.summary}",
                hint="approve it without --hash, or hash columns with `instep selection hash`",
            )
        for target in columns:
            step = switch_step(place, "hash", target, existing_switches(place).get(target.path))
            out.append(replace(step, switch=replace(step.switch, enabled=True), same=False))
    return out


def answer_hashed(project: Project, store: Store, reviews: Sequence[Review], status: Answer, who: str) -> list[Review]:
    """Answer the changes, and what they accept is hashed; all or nothing. Errors are those of `hashing`."""
    of = {name: place_of(project, store, name) for name in dict.fromkeys(r.connection for r in reviews)}
    turned = [(place, hashing(place, [r for r in reviews if r.connection == name])) for name, place in of.items()]
    with store.transaction():
        done = answer(store, reviews, status, who)
        for place, steps in turned:
            switch(place, steps, who)
    return done


def _columns_of(place: SwitchedConnection, review: Review) -> list[SwitchTarget]:
    """Return the column that is added or renamed; for a table that is blocked because of its key, the key columns."""
    table = place.source.get(review.table)
    if table is None:
        return []
    if review.kind in ("column.added", "column.renamed"):
        return [SwitchTarget(table.schema, table, c) for c in table.columns if c.name == review.column]
    keys = [c for c in table.columns if c.key] if review.kind == "table.added" else []
    return [SwitchTarget(table.schema, table, c) for c in keys if by_name(c.name)] or [
        SwitchTarget(table.schema, table, c) for c in keys
    ]


def existing_switches(place: SwitchedConnection) -> dict[str, Switch]:
    """Return people's switches, by path."""
    return {s.path: s for s in place.store.switches.of(place.connection)}


def _additions(place: SwitchedConnection, turned: Sequence[SwitchStep]) -> Iterator[str]:
    """Yield the ids of the rejected additions of these objects."""
    kinds = {"schema": "schema.added", "table": "table.added", "column": "column.added"}
    about = {(kinds[_level(s.target)], s.target.path) for s in turned}
    for review in place.store.reviews.find(place.connection, ("rejected",)) if about else ():
        path = ".".join(filter(None, (*review.table, review.column))) or str(review.change.get("name", ""))
        if (review.kind, path) in about:
            yield review.id


def _level(target: SwitchTarget) -> str:
    return "schema" if target.table is None else "column" if target.column else "table"
