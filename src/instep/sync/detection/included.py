"""Patterns of `include` that no table fits: most often a slip, and the tables that were meant are not read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

from instep.schema.kinds import Ref
from instep.schema.selection import Pattern
from instep.schema.table import Catalog, Table
from instep.sources.base import Discovery
from instep.store.reviews import Reviews
from instep.sync.pipe import Pipe

_NEAR = 3
"""Names that a message offers."""


def missing_includes(pipe: Pipe, discovery: Discovery, accepted: Catalog, *, recalled: bool) -> Mapping[str, str]:
    """Return the patterns of `include` that no table fits, each with an error that offers the nearest names.

    A table counts if the source has it, if it was accepted, or if a change about it was ever found: one that left the
    source is a removal, not a slip. `recalled`: the source is not opened to tell which names it has.
    """
    seen = {t.path: t for t in discovery.catalog.tables}
    seen |= {path: Table(*ref, ()) for ref in _tables(discovery.denied) if (path := ".".join(filter(None, ref)))}
    known = {**{t.path: t for t in accepted.tables}, **seen}
    columns = {f"{t.path}.{c.name}" for t in known.values() for c in t.columns}
    wanted = [*(p.text for p in pipe.said.include), *sorted(pipe.said.on - columns)]
    lost = [text for text in wanted if not any(map(Pattern(text).matches, known))]
    theirs = [text for text in pipe.scope.include if not _fits(text, known.values())]
    if (lost or theirs) and (before := _ever(pipe.store.reviews, pipe.name)):
        lost = [text for text in lost if not any(Pattern(text).matches(".".join(filter(None, r))) for r in before)]
        theirs = [text for text in theirs if not _fits(text, (Table(*ref, ()) for ref in before))]
    if theirs and not recalled:
        every = {t.path: t for t in pipe.scope.unfiltered().discover().catalog.tables}
        theirs = [text for text in theirs if not _fits(text, every.values())]
        seen |= every
    found = dict.fromkeys(theirs, f"`include` of source {pipe.scope.source}")
    found |= dict.fromkeys(lost, f"`include` of connection {pipe.name}")
    said = "no table of the source fits {!r} in {}: {}"
    return {text: said.format(text, where, _meant(text, seen)) for text, where in found.items()}


def _fits(text: str, tables: Iterable[Table]) -> bool:
    """True if a source's pattern, which may leave the schema out, fits some table."""
    pattern = Pattern(text)
    return any(pattern.matches(path) for t in tables for path in (t.path, t.name))


def _tables(denied: Iterable[tuple[str, ...]]) -> set[Ref]:
    return {(path[0], path[1]) for path in denied if len(path) > 1}


def _ever(reviews: Reviews, connection: str) -> set[Ref]:
    return {r.table for r in reviews.find(connection) if any(r.table)}


def _meant(text: str, tables: Mapping[str, Table]) -> str:
    if not tables:
        return "the source shows this user no table"
    near = nearest(text, tables)
    if near:
        return f"did you mean {' or '.join(near)}?"
    shown = sorted(tables)[:_NEAR]
    more = len(tables) - len(shown)
    return f"there is {', '.join(shown)}{f' and {more:,} more' if more else ''}"


def nearest(text: str, tables: Mapping[str, Table]) -> Sequence[str]:
    """Return up to three names, or patterns of whole schemas, that are close to `text`; case does not count."""
    names = {path.lower(): path for path in tables}
    names |= {t.name.lower(): t.path for t in tables.values()} if "." not in text else {}
    names |= {f"{t.schema}.*".lower(): f"{t.schema}.*" for t in tables.values() if t.schema} if "*" in text else {}
    return list(dict.fromkeys(names[one] for one in get_close_matches(text.lower(), names, _NEAR)))
