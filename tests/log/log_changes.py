"""Random changes of a database: rows of every kind, keys, truncates, and DDL between them."""

from __future__ import annotations

import random
import string
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import psycopg

from instep.sources.postgres.connect import conninfo
from postgres_server import Database

SETUP = (
    "CREATE TABLE item (id int PRIMARY KEY, name text, n int, price numeric(10,2))",
    "CREATE TABLE pair (a int, b varchar(20), body text, at timestamptz, PRIMARY KEY (b, a))",
    "ALTER TABLE pair ALTER COLUMN body SET STORAGE EXTERNAL",
    "CREATE TABLE part (id bigint PRIMARY KEY, v text) PARTITION BY RANGE (id)",
    "CREATE TABLE part_low PARTITION OF part FOR VALUES FROM (MINVALUE) TO (100)",
    "CREATE TABLE part_high PARTITION OF part FOR VALUES FROM (100) TO (MAXVALUE)",
)
KEYS = 200


@dataclass
class Changes:
    """A writer of changes, the same ones for a seed. `ddl`: how often a transaction is one of DDL. `made` counts the
    rows that were changed."""

    database: Database
    seed: int
    ddl: float = 0.02
    made: int = 0
    extra: list[str] = field(default_factory=list)
    numbers: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def run(self, rows: int) -> None:
        """Transactions until so many more rows have changed."""
        until = self.made + rows
        with psycopg.connect(conninfo(self.database.config), autocommit=True) as connection:
            while self.made < until:
                if self.random.random() < self.ddl:
                    self._alter(connection)
                    continue
                try:
                    with connection.transaction():
                        for statement, values in self._some():
                            self.made += max(connection.execute(statement.encode(), values).rowcount, 0)
                        if self.random.random() < 0.05:
                            raise _Undone
                except _Undone:
                    pass

    def _some(self) -> Iterator[tuple[str, tuple[Any, ...]]]:
        for _ in range(self.random.choice((1, 1, 2, 5, 40))):
            yield self.random.choice((self._item, self._item, self._pair, self._part))()

    def _item(self) -> tuple[str, tuple[Any, ...]]:
        r = self.random
        key = r.randrange(KEYS)
        match r.randrange(12):
            case 0 | 1:
                return "DELETE FROM item WHERE id = %s", (key,)
            case 2:
                clash = "NOT EXISTS (SELECT FROM item WHERE id = %s)"
                other = r.randrange(KEYS)
                return f"UPDATE item SET id = %s WHERE id = %s AND {clash}", (other, key, other)  # noqa: S608
            case 3 if r.random() < 0.02:
                return "TRUNCATE item", ()
            case 4 if r.random() < 0.1:
                return "UPDATE item SET n = coalesce(n, 0) + 1", ()
            case 5 if self.extra:
                return f"UPDATE item SET {r.choice(self.extra)} = %s WHERE id = %s", (r.randrange(99), key)  # noqa: S608
            case _:
                row = (key, _word(r, 8), r.randrange(-9, 9999), r.randrange(10**6) / 100)
                return (
                    "INSERT INTO item (id, name, n, price) VALUES (%s, %s, %s, %s) "
                    "ON CONFLICT (id) DO UPDATE SET name = excluded.name, n = excluded.n, price = excluded.price"
                ), row

    def _pair(self) -> tuple[str, tuple[Any, ...]]:
        r = self.random
        a, b = r.randrange(20), r.choice(("it's", "b\\c", "ü", "plain", ""))
        match r.randrange(6):
            case 0:
                return "DELETE FROM pair WHERE a = %s AND b = %s", (a, b)
            case 1:
                return "UPDATE pair SET at = clock_timestamp() WHERE a = %s", (a,)
            case 2:
                other = f"{b}{r.randrange(99)}"
                clash = "NOT EXISTS (SELECT FROM pair WHERE a = %s AND b = %s)"
                return f"UPDATE pair SET b = %s WHERE a = %s AND b = %s AND {clash}", (other, a, b, a, other)  # noqa: S608
            case _:
                body = _word(r, 3000) if r.random() < 0.2 else None
                return (
                    "INSERT INTO pair (a, b, body) VALUES (%s, %s, %s) "
                    "ON CONFLICT (a, b) DO UPDATE SET body = coalesce(excluded.body, pair.body)"
                ), (a, b, body)

    def _part(self) -> tuple[str, tuple[Any, ...]]:
        r = self.random
        key, other = r.randrange(KEYS), r.randrange(KEYS)
        match r.randrange(5):
            case 0:
                return "DELETE FROM part WHERE id = %s", (key,)
            case 4:
                many = "SELECT i, i::text FROM generate_series(%s::int, %s::int, 3) i"
                return f"INSERT INTO part {many} ON CONFLICT (id) DO UPDATE SET v = excluded.v || %s", (
                    key, key + 90, _word(r, 2),
                )  # fmt: skip
            case 1:
                clash = "NOT EXISTS (SELECT FROM part WHERE id = %s)"
                return f"UPDATE part SET id = %s WHERE id = %s AND {clash}", (other, key, other)  # noqa: S608
            case _:
                return "INSERT INTO part VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET v = excluded.v", (
                    key, _word(r, 5),
                )  # fmt: skip

    def _alter(self, connection: psycopg.Connection[Any]) -> None:
        r = self.random
        match r.randrange(6):
            case 0 | 1:
                self.numbers += 1
                name = f"x{self.numbers}"
                connection.execute(f"ALTER TABLE item ADD COLUMN {name} int".encode())
                self.extra.append(name)
            case 2 if self.extra:
                name = self.extra.pop(r.randrange(len(self.extra)))
                connection.execute(f"ALTER TABLE item DROP COLUMN {name}".encode())
            case 3 if self.extra:
                self.numbers += 1
                place = r.randrange(len(self.extra))
                old, self.extra[place] = self.extra[place], f"y{self.numbers}"
                connection.execute(f"ALTER TABLE item RENAME COLUMN {old} TO {self.extra[place]}".encode())
            case 4:
                connection.execute(b"ALTER TABLE item ALTER COLUMN n TYPE bigint USING n * 2")
            case _:
                connection.execute(b"VACUUM FULL pair")


class _Undone(Exception):
    """The transaction is rolled back."""


def _word(r: random.Random, length: int) -> str:
    return "".join(r.choices(string.ascii_letters, k=length))
