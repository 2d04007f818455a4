"""Settings of single tables that have no effect: most often a name that was mistyped.

Only tables named exactly are looked at: of the tables that a pattern matches, some may well lack a column.

What cannot be read or named: never taken as removed, and never accepted before that has changed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from instep.errors import one_line
from instep.project.sections.tables import TableSettings
from instep.schema.catalog.catalog import Catalog, Table
from instep.schema.changes.diff import pair_columns
from instep.schema.changes.kinds import Ref
from instep.schema.planning.projection import pair_tables
from instep.schema.policy.safeguards import unknown_names
from instep.schema.selection.selection import Pattern, Selection, column_is_on, is_on
from instep.sources.base import Discovery
from instep.suggest import closest, did_you_mean
from instep.sync.context import SyncContext


def ineffective_settings(
    context: SyncContext, source: Catalog, configured: Catalog, closed: Iterable[tuple[str, ...]]
) -> tuple[str, ...]:
    """Return a sentence each. `configured`: the selected tables of the source with the keys and cursors of the
    settings; `closed`: what may not be read."""
    tables, hidden = {t.path: t for t in source.tables}, {".".join(filter(None, path)) for path in closed}
    texts = dict[str, None]()
    for path, columns in sorted(context.tables_named.items()):
        if (table := tables.get(path)) is not None:
            texts |= dict.fromkeys(_of_table(table, configured, context.settings(table), columns))
        elif path not in hidden:
            texts[
                f"the project file sets up a table {path}, which the source does not have{_suggestion(path, tables)}"
            ] = None
    return tuple(texts)


def _of_table(table: Table, configured: Catalog, settings: TableSettings, columns: Sequence[str]) -> Iterator[str]:
    own = table.by_name
    for name in columns:
        if name not in own:
            yield f"{table.path}: `columns` names {name}, which the table does not have{_suggestion(name, own)}"
    for name in unknown_names(table, settings.types):
        yield f"{table.path}: `types` names {name}, which is neither a column nor a type of it{_suggestion(name, own)}"
    now: Mapping[Ref, Table] = configured.by_ref
    if (read := now.get(table.ref)) is None:
        return
    if settings.cursor and settings.cursor not in own and read.cursor is None:
        yield f"{table.path}: `cursor: {settings.cursor}` is not a column of it{_suggestion(settings.cursor, own)}"
    if settings.key and table.key and sorted(settings.key) != sorted(table.key):
        yield f"{table.path}: `key` is not used, the source has a primary key: {', '.join(table.key)}"
    elif settings.key and not read.key:
        lost = next((k for k in settings.key if k not in own), settings.key[0])
        yield f"{table.path}: `key` names {lost}, which is not a column of it{_suggestion(lost, own)}"


def _suggestion(name: str, names: Iterable[str]) -> str:
    return did_you_mean(name, names, form=" (did you mean {}?)")


_NEAR = 3
"""Names that a message offers."""


def missing_includes(
    context: SyncContext, discovery: Discovery, accepted: Catalog, *, recalled: bool
) -> Mapping[str, str]:
    """Return the patterns of `include` that no table fits, each with an error that offers the nearest names.

    A table counts if the source has it, if it was accepted, or if a change about it was ever found: one that left the
    source is a removal, not a slip. A table that is excluded as well does not count: both patterns are named.
    `recalled`: the source is not opened to tell which names it has.
    """
    seen = {t.path: t for t in discovery.catalog.tables}
    seen |= {path: Table(*ref, ()) for ref in _tables(discovery.denied) if (path := ".".join(filter(None, ref)))}
    tables = {**{t.path: t for t in accepted.tables}, **seen}
    columns = {f"{t.path}.{c.name}" for t in tables.values() for c in t.columns}
    requested = [*(p.text for p in context.project_selection.include), *sorted(context.project_selection.on - columns)]
    lost = [text for text in requested if not any(map(Pattern(text).matches, tables))]
    theirs = [text for text in context.scope.include if not _fits(text, tables.values())]
    every: Mapping[str, Table] = {}
    if (lost or theirs) and (before := {r.table for r in context.store.reviews.find(context.name) if any(r.table)}):
        lost = [text for text in lost if not any(Pattern(text).matches(".".join(filter(None, r))) for r in before)]
        theirs = [text for text in theirs if not _fits(text, (Table(*ref, ()) for ref in before))]
    if theirs and not recalled:
        every = {t.path: t for t in context.scope.unfiltered().discover().catalog.tables}
        theirs = [text for text in theirs if not _fits(text, every.values())]
        seen |= every
    patterns = dict.fromkeys(theirs, f"`include` of source {context.scope.source}")
    patterns |= dict.fromkeys(lost, f"`include` of connection {context.name}")
    include = {*(p.text for p in context.project_selection.include), *context.scope.include}
    reported = {
        text: f"'{one_line(text)}' in {where} matches no table of the source: "
        f"{_include_suggestion(text, seen, include)}"
        for text, where in patterns.items()
    }
    return reported | dict(_excluded(context, discovery, {**tables, **every}))


def _excluded(context: SyncContext, discovery: Discovery, tables: Mapping[str, Table]) -> Iterator[tuple[str, str]]:
    """Yield the patterns of `include` whose tables are all excluded by the project file, each with an error: exact
    names, and others where nothing is left to read."""
    nothing_left = not any(is_on(context.selection, t)[0] for t in discovery.catalog.tables)
    of_source = [(text, f"source {context.scope.source}", _lenient_matcher(text)) for text in context.scope.exclude]
    ours = [(p.text, f"connection {context.name}", p.matches) for p in context.project_selection.exclude_tables]
    both = [*of_source, *ours]
    theirs = [
        (text, f"source {context.scope.source}", _lenient_matcher(text), both if nothing_left else of_source)
        for text in context.scope.include
    ]
    connection_patterns = [
        (p.text, f"connection {context.name}", p.matches, both) for p in context.project_selection.include
    ]
    for text, where, fits, exclusions in [*theirs, *connection_patterns]:
        if not (nothing_left or Pattern(text).is_exact):
            continue
        excluded = [path for path in tables if fits(path)] or [text] * Pattern(text).is_exact
        by = [_first_of(exclusions, path) for path in excluded if path not in context.selection.on]
        if len(by) == len(excluded) and by and (first := by[0]) and all(by):
            yield (
                text,
                (
                    f"nothing is read by '{one_line(text)}' in `include` of {where}: {first[1]} excludes it by "
                    f"'{one_line(first[0])}': take one of the two out"
                ),
            )


def _first_of(exclusions: Iterable[tuple[str, str, Callable[[str], bool]]], path: str) -> tuple[str, str] | None:
    return next(((text, where) for text, where, fits in exclusions if fits(path)), None)


def missing_columns(context: SyncContext, discovery: Discovery) -> Mapping[str, str]:
    """Return the exact names of `hash` and `exclude.columns` that no column ever had, each with an error.

    A pattern may be there for columns that are to come, and a column that left the source is no slip.
    """
    if not context.scope.columns:
        return {}
    shown = _columns(discovery.catalog)
    hidden = {".".join(filter(None, path)) for path in discovery.denied}
    outside, present = _outside(context), shown | hidden
    lost = {
        text: key
        for text, key in context.scope.columns.items()
        if Pattern(text).is_exact and text not in present and not _is_column_of(text, hidden) and not outside(text)
    }
    for version in context.store.schemas.history(context.name, "source") if lost else ():
        past = _columns(context.store.schemas.catalog(context.name, "source", version.version))
        lost = {text: key for text, key in lost.items() if text not in past}
        if not lost:
            return {}
    names = sorted(shown)
    return {
        text: f"'{one_line(text)}' in `{key}` of connection {context.name} matches no column of the source: "
        + _of_columns(text, names)
        for text, key in lost.items()
    }


def _columns(catalog: Catalog) -> set[str]:
    return {f"{t.path}.{c.name}" for t in catalog.tables for c in t.columns}


def _is_column_of(column: str, tables: Collection[str]) -> bool:
    return any(column.startswith(f"{path}.") for path in tables)


def _outside(context: SyncContext) -> Callable[[str], bool]:
    """Return a test whether the source's section excludes the table of a column."""
    included, left_out = map(_lenient_matcher, context.scope.include), map(_lenient_matcher, context.scope.exclude)
    let_in, excluded = tuple(included), tuple(left_out)

    def outside(column: str) -> bool:
        table = column.rpartition(".")[0]
        return (bool(let_in) and not any(f(table) for f in let_in)) or any(f(table) for f in excluded)

    return outside


def _of_columns(text: str, names: Sequence[str]) -> str:
    lowered = {path.lower(): path for path in names}
    near = closest(text.lower(), lowered, _NEAR)
    return f"did you mean {' or '.join(lowered[name] for name in near)}?" if near else "no name is like it"


def _lenient_matcher(text: str) -> Callable[[str], bool]:
    """Return how a source's pattern, which may leave the schema out, matches the path of a table."""
    pattern = Pattern(text)
    return lambda path: pattern.matches(path) or pattern.matches(path.partition(".")[2])


def _fits(text: str, tables: Iterable[Table]) -> bool:
    """True if a source's pattern, which may leave the schema out, fits some table."""
    pattern = Pattern(text)
    return any(pattern.matches(path) for t in tables for path in (t.path, t.name))


def _tables(denied: Iterable[tuple[str, ...]]) -> set[Ref]:
    return {(path[0], path[1]) for path in denied if len(path) > 1}


def _include_suggestion(text: str, tables: Mapping[str, Table], patterns: Collection[str] = ()) -> str:
    if not tables:
        return "the source shows this user no table"
    near = nearest(text, tables, patterns)
    if near:
        return f"did you mean {' or '.join(near)}?"
    shown = sorted(tables)[:_NEAR]
    more = len(tables) - len(shown)
    return f"there is {', '.join(shown)}{f' and {more:,} more' if more else ''}"


def nearest(text: str, tables: Mapping[str, Table], patterns: Collection[str] = ()) -> Sequence[str]:
    """Return up to three names, or for a glob patterns of whole schemas, that are close to `text`; case does not
    count. Patterns that are there already (`patterns`) are no help."""
    pattern = Pattern(text)
    names = {path.lower(): path for path in tables}
    if not pattern.is_regex:
        names |= {t.name.lower(): t.path for t in tables.values()} if "." not in text else {}
        globs = {f"{t.schema}.*" for t in tables.values() if t.schema} if "*" in text else set[str]()
        names |= {glob.lower(): glob for glob in globs.difference(patterns)}
    sought = text.removeprefix("re:").replace("\\", "") if pattern.is_regex else text
    return list(dict.fromkeys(names[name] for name in closest(sought.lower(), names, _NEAR)))


@dataclass(frozen=True)
class Access:
    """Objects of the source that may be read."""

    source: Catalog
    """Catalog of what may be read of the source."""
    lost: Mapping[Ref, tuple[str | None, str]] = field(default_factory=dict)
    """The accepted tables that may no longer be read, each with the accepted column it is about (None: the whole
    table) and why; they are left out of both sides of a diff."""
    hidden: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    """Objects that were never accepted and may not be read: (schema, table) or (schema, table, column) to why."""


def restrict(source: Catalog, accepted: Catalog, denied: Mapping[tuple[str, ...], str], selection: Selection) -> Access:
    """Split what is denied (tables, and columns as triples) by whether it was accepted.

    A table with an accepted column that may not be read is lost as a whole: without that column its rows would be
    NULL where the source has values.
    """
    if not denied:
        return Access(source)
    owner = {now.ref: ref for ref, now in pair_tables(accepted.tables, source).items()}
    paired = set(owner.values())
    lost: dict[Ref, tuple[str | None, str]] = {}
    hidden: dict[tuple[str, ...], str] = {}
    tables = {t.ref: t for t in source.tables}
    for ref, columns in _by_table(denied).items():
        mine = owner.get(ref) or (ref if ref in accepted.by_ref and ref not in paired else None)
        before = accepted.get(mine) if mine else None
        if before is not None and before.retained:
            before = None
        if "" in columns or ref not in tables:
            tables.pop(ref, None)
            why = columns.get("") or next(iter(columns.values()))
            if before is not None:
                lost[before.ref] = None, why
            else:
                hidden[ref] = why
            continue
        needed = _needed(before, tables[ref], columns, selection)
        if before is not None and needed:
            lost[before.ref] = needed[0]
            tables.pop(ref)
            continue
        closed = _unknown(before, tables[ref], columns)
        hidden |= {(*ref, name): columns[name] for name in closed}
        tables[ref] = without(tables[ref], closed)
    return Access(Catalog.of(tables.values()), lost, hidden)


def _by_table(denied: Mapping[tuple[str, ...], str]) -> dict[Ref, dict[str, str]]:
    settings_by_column: dict[Ref, dict[str, str]] = defaultdict(dict)
    for path, why in denied.items():
        settings_by_column[path[0], path[1]][path[2] if len(path) > 2 else ""] = why
    return settings_by_column


def _needed(
    before: Table | None, now: Table, closed: Mapping[str, str], selection: Selection
) -> list[tuple[str | None, str]]:
    """Return the accepted columns that are read and closed, with why."""
    same = pair_columns(before, now).same if before else ()
    return [(a.name, closed[b.name]) for a, b in same if b.name in closed and column_is_on(selection, now, b)[0]]


def _unknown(before: Table | None, now: Table, closed: Mapping[str, str]) -> list[str]:
    accepted = {b.name for _, b in pair_columns(before, now).same} if before else set()
    return [c.name for c in now.columns if c.name in closed and c.name not in accepted]


def without(table: Table, names: list[str]) -> Table:
    """Return the table without these columns; a key that needs one of them is no key."""
    if not names:
        return table
    broken = any(c.key for c in table.columns if c.name in names)
    columns = (replace(c, key=0) if broken and c.key else c for c in table.columns if c.name not in names)
    return replace(table, columns=tuple(columns), cursor=None if table.cursor in names else table.cursor)
