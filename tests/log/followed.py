"""A world whose tables follow the log of its source, whichever it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from contract.sources import Case, MakeSource
from instep.model import LogNames
from instep.project.sections.tables import TableSettings
from instep.sources.base import Source
from instep.sync.context import SyncContext
from instep.sync.progress import SyncReport
from memory.destination import MemoryDestination
from sync_world import World

NAMES = LogNames("instep_shop", "instep_shop")
LOG = TableSettings(mode="cdc")
TABLES = (
    "CREATE TABLE t (id int PRIMARY KEY, v int)",
    "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3), (4, 4), (5, 5)",
    "CREATE TABLE u (id int PRIMARY KEY, v int)",
    "INSERT INTO u SELECT * FROM t",
)
Limits = Mapping[str, Any]
FollowCase = tuple[str, tuple[str, ...], tuple[str, ...], int]
"""(name, statements before the first load, changes, how many rows of `doc` are read then)."""


@dataclass
class Followed(World, ABC):
    """`settings` are those of tables by name; all others follow the log. `log` are limits of the reader of the log."""

    database: Any = None
    log: dict[str, Any] = field(default_factory=dict)
    follows: bool = True

    @classmethod
    def over(
        cls,
        database: Any,
        folder: Path,
        destination: Any,
        source: Callable[[Any, Limits], Source],
        case: Callable[[MakeSource], Case],
    ) -> Self:
        """Into tables of this process, unless there is another destination. `source` is made of a login and limits."""
        limits: dict[str, Any] = {}

        def make(*, include: tuple[str, ...] = (), exclude: tuple[str, ...] = (), restricted: bool = False) -> Source:
            config = database.reader if restricted else database.config
            return source(config.model_copy(update={"include": include, "exclude": exclude}), limits)

        world = cls(case(make), folder, engine="local", database=database, log=limits)
        made: Any = destination or MemoryDestination(folder)
        world.destination = made
        return world

    @property
    def context(self) -> SyncContext:
        return replace(
            super().context, settings=lambda t: self.settings.get(t.name, LOG), log=NAMES if self.follows else None
        )

    @abstractmethod
    def transaction(self) -> AbstractContextManager[Callable[[str], Any]]:
        """What runs statements in one transaction, which is committed at the end."""

    def together(self, *statements: str) -> None:
        """Over one connection, if that makes a difference."""
        self.run(*statements)

    def sql(self, statement: str) -> Any:
        """The only value of a query's only row."""
        return self.database.execute(statement)[0][0]

    def loaded(self) -> Self:
        """With TABLES, which have been read once."""
        self.run(*TABLES)
        self.sync()
        return self


def notes(report: SyncReport) -> str:
    return " ".join(report.notes)


def failing_for_t(merge: Any) -> Any:
    """A destination's `merge` that cannot write the table t."""

    def failing(spark: Any, ref: Any, *rest: Any) -> Any:
        if ref == ("shop", "t"):
            raise RuntimeError("the disk is full")
        return merge(spark, ref, *rest)

    return failing


def same_cases(before: tuple[str, ...]) -> list[FollowCase]:
    """Changes of rows that any log tells alike, of a table doc (id, body, n) with the ids 1 to 5."""
    return [
        ("all keys are changed", before, ("UPDATE doc SET id = id + 100",), 5),
        ("a truncate", before, ("TRUNCATE doc", "INSERT INTO doc VALUES (2, 'again', 1), (7, 'new', 1)"), 2),
        ("a truncate of all", before, ("TRUNCATE TABLE doc",), 0),
        ("deleted and inserted again", before, ("DELETE FROM doc WHERE id = 3", "INSERT INTO doc VALUES (3, 'x', 1)"),
         1),
        ("inserted and deleted", before, ("INSERT INTO doc (id) VALUES (30)", "DELETE FROM doc WHERE id = 30"), 0),
        ("a column comes between two changes", before, ("UPDATE doc SET n = 1 WHERE id = 1",
         "ALTER TABLE doc ADD COLUMN more int", "UPDATE doc SET more = 5 WHERE id = 2"), 2),
    ]  # fmt: skip


def check_cases(world: Followed, cases: Sequence[FollowCase]) -> None:
    """All cases in one database, each with tables of its own: equal in the end, and no row more was read."""
    for before in _numbered(c[1] for c in cases):
        world.run(*before)
    world.sync()
    for changes in _numbered(c[2] for c in cases):
        world.together(*changes)
    report = world.sync()
    assert world.differing() == {}, report
    by_name = sorted(report.tables, key=lambda t: len(t.table[1]), reverse=True)
    found = {int(t.table[1][3:].partition("_")[0]): t.read for t in by_name}
    assert {cases[n][0]: read for n, read in found.items()} == {name: read for name, *_, read in cases}, report
    assert {t.read for t in world.sync().tables} == {0}


def _numbered(statements: Iterator[tuple[str, ...]]) -> Iterator[list[str]]:
    """For tables of its own: what is called doc is called doc0_, doc1_, ..."""
    for number, some in enumerate(statements):
        yield [s.replace("doc", f"doc{number}_") for s in some]
