"""Tables as a database's records and its catalog describe them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from instep.destinations.base import HERE, Commit, FileWorkers, LoadState, Ref, TableSize
from instep.destinations.shared import is_shared
from instep.destinations.sql.database import SqlFacet
from instep.destinations.sql.ddl import SqlText
from instep.destinations.sql.record_tables import every, find, not_ours, own_part, prepare
from instep.destinations.sql.tables import described_table, execute, undrop
from instep.schema.catalog.catalog import Catalog, Table
from instep.schema.planning.guard import Guards
from instep.schema.planning.step import Step


class SqlSchema(SqlFacet):
    """See `destinations.facets.SchemaFacet`."""

    layouts = None

    def tables(self) -> list[Ref]:
        """Return all tables that instep created."""
        with self.database.reading() as session:
            return sorted(every(session))

    def inspect(self, refs: Iterable[Ref]) -> Catalog:
        """Return the tables that exist; DestinationError for one that is not ours."""
        requested, tables = list(refs), list[Table]()
        with self.database.reading() as session:
            records, relations = every(session), session.relations(requested)
            for ref in requested:
                record = records.get(ref)
                if (record is None or record.copy) and ref in relations:
                    raise not_ours(session, ref)
                if record is not None and record.parts:
                    raise is_shared(ref)
                if record is not None and ref in relations:
                    tables.append(described_table(session, record, relations[ref]))
        return Catalog.of(tables)

    def foreign(self, refs: Iterable[Ref]) -> dict[Ref, str]:
        """Return the tables that exist and are not ours."""
        requested = list(refs)
        with self.database.reading() as session:
            records, relations = every(session), session.relations(requested)
            shared = {ref: str(is_shared(ref)) for ref, record in records.items() if record.parts}
            ours = {ref for ref, record in records.items() if not record.copy and not record.parts}
            odd = [ref for ref in requested if ref not in ours and ref in relations]
            return {ref: shared.get(ref, str(not_ours(session, ref))) for ref in odd}

    def guards(self, refs: Iterable[Ref]) -> Mapping[Ref, Guards]:
        """Return the columns on which something of others stands."""
        return self.database.guards(list(refs))

    def state(self, ref: Ref, *, version: bool = False) -> LoadState | None:
        """Return the record of the last load."""
        with self.database.reading() as session:
            record = find(session, ref)
            state = record.state if record else None
            if record is None or state is None or not version:
                return state
            return replace(state, version=session.version(record))

    def sizes(self, refs: Iterable[Ref]) -> dict[Ref, TableSize]:
        """Return rows as recorded, and the bytes of the table with its indexes where the database tells them; of one
        shard it does not."""
        requested = list(refs)
        with self.database.reading() as session:
            records, bytes_of = every(session), {} if session.part else session.bytes_of(requested)
            own = {ref: own_part(session, records[ref]) for ref in requested if ref in records}
        return {ref: r.size(bytes_of.get(ref)) for ref, r in own.items() if r is not None and not r.copy}

    def render_ddl(self, steps: Sequence[Step]) -> list[str]:
        """Return the steps as the database's own SQL."""
        return SqlText(self.database.dialect.sql_type).statements(steps)

    def execute(
        self, ref: Ref, steps: Sequence[Step], after: Table | None, commit: Commit, workers: FileWorkers = HERE
    ) -> None:
        """Execute all steps of one table in the database; steps that a crashed run has done already are skipped."""
        with self.database.writing() as session:
            prepare(session)
            execute(session, ref, steps, after, commit)

    def undrop_table(self, ref: Ref, table: Table, commit: Commit) -> None:
        """Bring back a dropped table under its name with its rows; do nothing if it is back already."""
        with self.database.writing() as session:
            prepare(session)
            undrop(session, ref, table, commit)
