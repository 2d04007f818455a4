"""Random changes of a database: rows of every kind, keys, truncates, and DDL between them."""

from __future__ import annotations

import random
import string
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, ClassVar

KEYS = 200
Change = tuple[str, tuple[Any, ...]]
Execute = Callable[[str, tuple[Any, ...]], int]
"""Runs a statement; answers how many rows it changed."""


@dataclass
class Changes(ABC):
    """A writer of changes, the same ones for a seed. `ddl`: how often a transaction is one of DDL. `made` counts the
    rows that were changed."""

    SETUP: ClassVar[tuple[str, ...]]
    PLACES: ClassVar[tuple[str, ...]] = ("",)
    """Where a column may be added."""
    OTHER_DDL: ClassVar[tuple[str, ...]]

    database: Any
    seed: int
    ddl: float = 0.02
    made: int = 0
    extra: list[str] = field(default_factory=list)
    numbers: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    @abstractmethod
    def session(self) -> AbstractContextManager[Execute]: ...

    @abstractmethod
    def kinds(self) -> Sequence[Callable[[], Change]]:
        """What makes a change of one table; one that is there twice makes more."""

    def run(self, rows: int) -> None:
        """Transactions until so many more rows have changed."""
        until = self.made + rows
        with self.session() as execute:
            while self.made < until:
                if self.random.random() < self.ddl:
                    for statement in self.alter():
                        execute(statement, ())
                else:
                    self.made += self.transaction(execute)

    def transaction(self, execute: Execute) -> int:
        """Answers how many rows it changed, whether or not it is undone in the end."""
        execute("BEGIN", ())
        made = sum(max(execute(*change), 0) for change in self.some())
        execute("ROLLBACK" if self.random.random() < 0.05 else "COMMIT", ())
        return made

    def some(self) -> Iterator[Change]:
        for _ in range(self.random.choice((1, 1, 2, 5, 40))):
            yield self.random.choice(self.kinds())()

    def alter(self) -> Iterator[str]:
        r = self.random
        match r.randrange(6):
            case 0 | 1:
                self.numbers += 1
                self.extra.append(f"x{self.numbers}")
                yield f"ALTER TABLE item ADD COLUMN {self.extra[-1]} int{r.choice(self.PLACES)}"
            case 2 if self.extra:
                yield f"ALTER TABLE item DROP COLUMN {self.extra.pop(r.randrange(len(self.extra)))}"
            case 3 if self.extra:
                self.numbers += 1
                place = r.randrange(len(self.extra))
                old, self.extra[place] = self.extra[place], f"y{self.numbers}"
                yield f"ALTER TABLE item RENAME COLUMN {old} TO {self.extra[place]}"
            case _:
                yield r.choice(self.OTHER_DDL)

    def word(self, length: int) -> str:
        return "".join(self.random.choices(string.ascii_letters, k=length))
