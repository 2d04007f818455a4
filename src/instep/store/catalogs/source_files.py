"""Which files a source has shown, in the order in which they were first seen, and what is in each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import func, insert, select, update

from instep.store.engine.database import Database
from instep.store.tables.catalogs import source_files


@dataclass(frozen=True)
class SeenFile:
    """One version of a file, whose `path` is below its source's folder. `number` grows with each version that is seen
    (microseconds since 1970 UTC at that time, or more). `shape` is what was found in it, under the options with the
    digest `options`."""

    path: str
    size: int
    version: str
    number: int
    options: str = ""
    shape: Mapping[str, Any] = field(default_factory=dict)


class SourceFiles:
    def __init__(self, database: Database) -> None:
        self._db = database

    def of(self, source: str) -> list[SeenFile]:
        """Return every version of every file, in order of their numbers."""
        c = source_files.c
        query = select(source_files).where(c.source == source).order_by(c.number)
        with self._db.read() as transaction:
            return [
                SeenFile(row.path, row.size, row.version, row.number, row.options, row.shape)
                for row in transaction.execute(query)
            ]

    def add(self, source: str, found: Sequence[SeenFile]) -> dict[str, SeenFile]:
        """Add versions of files; return the recorded versions with their numbers by path. One that is the newest of its
        file already keeps its number."""
        with self._db.write() as transaction:
            newest = {seen.path: seen for seen in self.of(source)}
            last = transaction.execute(
                select(func.max(source_files.c.number)).where(source_files.c.source == source)
            ).scalar()
            number = max(int(self._db.now().timestamp() * 1_000_000), last or 0)
            rows, done = [], {}
            for one in found:
                known = newest.get(one.path)
                if known is not None and (known.size, known.version) == (one.size, one.version):
                    done[one.path] = self._again(transaction, source, known, one)
                    continue
                number += 1
                done[one.path] = SeenFile(one.path, one.size, one.version, number, one.options, one.shape)
                rows.append({"source": source, **vars(done[one.path]), "at": self._db.now()})
            if rows:
                transaction.execute(insert(source_files), rows)
        return done

    def _again(self, transaction: Any, source: str, known: SeenFile, now: SeenFile) -> SeenFile:
        """Return the same version, looked at under other options."""
        c = source_files.c
        where = (c.source == source, c.number == known.number)
        transaction.execute(update(source_files).where(*where).values(options=now.options, shape=now.shape))
        return SeenFile(known.path, known.size, known.version, known.number, now.options, now.shape)
