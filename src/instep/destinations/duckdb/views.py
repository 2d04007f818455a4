# ruff: noqa: S608 - names are quoted or ours, values are parameters
"""Views of ours in a DuckDB file: the text that the file tells of each is on record, so another's is known for one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from instep.destinations.base import Ref
from instep.destinations.sql.database import SqlFacet
from instep.destinations.sql.merge import q
from instep.destinations.sql.record_tables import find, named
from instep.destinations.sql.session import SCHEMA
from instep.errors import Conflict
from instep.schema.planning.aliases import View, carried
from instep.schema.planning.step import Step

if TYPE_CHECKING:
    from instep.destinations.duckdb.session import DuckDbSession

_COLUMNS = "namespace text, name text, record text"
_TEXTS = "SELECT schema_name, view_name, sql FROM duckdb_views() WHERE database_name = $1 AND NOT internal"


@dataclass(frozen=True)
class _RecordedView:
    """A view on record: the types of its columns when it was made, and what the file told of it then."""

    view: View
    types: tuple[str, ...]
    text: str


def _table(session: DuckDbSession) -> str:
    return session.name(SCHEMA, "views")


def recorded_views(session: DuckDbSession) -> dict[Ref, _RecordedView]:
    """Return the views on record that stand as they were made."""
    if not session.has_records("views"):
        return {}
    rows = session.run(f"SELECT namespace, name, record FROM {_table(session)}")
    if not rows:
        return {}
    texts = {(schema, name): text for schema, name, text in session.run(_TEXTS, [session.catalog])}
    by_ref = {}
    for schema, name, record in rows:
        document = json.loads(record)
        columns = tuple((a, b) for a, b in document["columns"])
        view = View((schema, name), (document["table"][0], document["table"][1]), columns, document["owner"])
        if texts.get(view.ref) == document["text"]:
            by_ref[view.ref] = _RecordedView(view, tuple(document["types"]), document["text"])
    return by_ref


def views(session: DuckDbSession) -> dict[Ref, View]:
    """Return all views that instep created."""
    return {ref: recorded.view for ref, recorded in recorded_views(session).items()}


def _drop(session: DuckDbSession, refs: Iterable[Ref]) -> None:
    for ref in refs:
        session.run(f"DROP VIEW {session.name(*ref)}")
        session.run(f"DELETE FROM {_table(session)} WHERE namespace = $1 AND name = $2", ref)


def _write(session: DuckDbSession, view: View, before: _RecordedView | None) -> None:
    """Create or replace a view over the table's current columns; skip one that is already so."""
    relation = session.relations([view.table]).get(view.table)
    types_now = {p.name: p.type for p in relation.columns} if relation else {}
    columns = tuple((name, column) for name, column in view.columns if column in types_now)
    new_view = View(view.ref, view.table, columns, view.owner)
    types = tuple(types_now[column] for _, column in columns)
    if not columns or (before is not None and (before.view, before.types) == (new_view, types)):
        return
    if before is not None:
        _drop(session, [view.ref])
    shown = ", ".join(q(c) if n == c else f"{q(c)} AS {q(n)}" for n, c in columns)
    # DuckDB looks for the table beside the view; with its schema it would be ambiguous in a file of the schema's name
    session.run(f"CREATE VIEW {session.name(*view.ref)} AS SELECT {shown} FROM {q(view.table[1])}")
    [text] = [t for s, n, t in session.run(_TEXTS, [session.catalog]) if (s, n) == view.ref]
    document = {"table": view.table, "columns": columns, "owner": view.owner, "types": types, "text": text}
    session.run(f"INSERT INTO {_table(session)} VALUES ($1, $2, $3)", [*view.ref, json.dumps(document)])


def detach(session: DuckDbSession, table: Ref) -> Callable[[Sequence[Step]], None]:
    """Take the views of a table away while it is altered in this transaction; what it answers puts those back, in
    the same transaction, that something is left of once the table has been through the steps."""
    table_views = [view for view in views(session).values() if view.table == table]
    _drop(session, [view.ref for view in table_views])

    def put_back(steps: Sequence[Step]) -> None:
        for moved in (carried(view, steps) for view in table_views):
            if moved is not None:
                _write(session, moved, None)

    return put_back


class DuckDbViews(SqlFacet):
    """Views of ours."""

    why_none = ""

    def all(self) -> dict[Ref, View]:
        """Return all views that instep created."""
        with self.database.reading() as session:
            return views(cast("DuckDbSession", session))

    def put(self, view: View, fence: int) -> None:
        """Make or change a view by its table's columns as they are now; Fenced if a later run has claimed the table."""
        with self.database.writing() as opened:
            session = cast("DuckDbSession", opened)
            record = find(session, view.table)
            if record is None:
                return
            record.check(fence)
            recorded = recorded_views(session)
            if view.ref not in recorded and session.is_taken(view.ref):
                raise Conflict(
                    f"{named(view.ref)} exists and is not ours", hint="rename it, or do without the old name"
                )
            session.run(f"CREATE TABLE IF NOT EXISTS {_table(session)} ({_COLUMNS})")
            _write(session, view, recorded.get(view.ref))

    def drop(self, ref: Ref) -> None:
        """Drop our view of this name; do nothing if there is none."""
        with self.database.writing() as opened:
            session = cast("DuckDbSession", opened)
            _drop(session, [ref] if ref in recorded_views(session) else [])
