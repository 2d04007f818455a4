"""Random changes of a MariaDB database: rows of every kind, keys, truncates, foreign keys, and DDL between them."""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pymysql

from mariadb import MariaDatabase, open_as

SETUP = (
    "CREATE TABLE item (id int PRIMARY KEY, name text, n int, price decimal(10,2))",
    "CREATE TABLE pair (a int, b varchar(20), body longtext, at timestamp(6) NULL, PRIMARY KEY (b, a))",
    "CREATE TABLE part (id bigint PRIMARY KEY, v text) PARTITION BY RANGE (id) "
    "(PARTITION low VALUES LESS THAN (100), PARTITION high VALUES LESS THAN MAXVALUE)",
    "CREATE TABLE owner (id int PRIMARY KEY)",
    "CREATE TABLE owned (id int PRIMARY KEY, owner int, FOREIGN KEY (owner) REFERENCES owner (id) "
    "ON DELETE CASCADE ON UPDATE CASCADE)",
)
KEYS = 200
BUSY = (1205, 1213, 1412, 1020, 1452)
Change = tuple[str, tuple[Any, ...]]


@dataclass
class BinlogChanges:
    """A writer of changes, the same ones for a seed. `ddl`: how often a transaction is one of DDL. `made` counts the
    rows that were changed."""

    database: MariaDatabase
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
        config = replace(self.database.admin, database=self.database.config.database)
        with open_as(config) as connection, connection.cursor() as cursor:
            while self.made < until:
                if self.random.random() < self.ddl:
                    for statement in self._alter():
                        cursor.execute(statement)
                    continue
                try:
                    self._transaction(cursor)
                except pymysql.MySQLError as error:
                    cursor.execute("ROLLBACK")
                    if error.args[0] not in BUSY:
                        raise

    def _transaction(self, cursor: Any) -> None:
        cursor.execute("BEGIN")
        made = 0
        for statement, values in self._some():
            made += max(cursor.execute(statement, values), 0)
        undone = self.random.random() < 0.05
        cursor.execute("ROLLBACK" if undone else "COMMIT")
        self.made += made

    def _some(self) -> Iterator[Change]:
        kinds: tuple[Callable[[], Change], ...] = (self._item, self._item, self._pair, self._part, self._owned)
        for _ in range(self.random.choice((1, 1, 2, 5, 40))):
            yield self.random.choice(kinds)()

    def _item(self) -> Change:
        r = self.random
        key = r.randrange(KEYS)
        match r.randrange(12):
            case 0 | 1:
                return "DELETE FROM item WHERE id = %s", (key,)
            case 2:
                return "UPDATE IGNORE item SET id = %s WHERE id = %s", (r.randrange(KEYS), key)
            case 3 if r.random() < 0.02:
                return "TRUNCATE item", ()
            case 4 if r.random() < 0.1:
                return "UPDATE item SET n = coalesce(n, 0) + 1", ()
            case 5 if self.extra:
                return f"UPDATE item SET {r.choice(self.extra)} = %s WHERE id = %s", (r.randrange(99), key)  # noqa: S608
            case _:
                row = (key, _word(r, 8), r.randrange(-9, 9999), r.randrange(10**6) / 100)
                return (
                    "INSERT INTO item (id, name, n, price) VALUES (%s, %s, %s, %s) ON DUPLICATE KEY UPDATE "
                    "name = VALUES(name), n = VALUES(n), price = VALUES(price)"
                ), row

    def _pair(self) -> Change:
        r = self.random
        a, b = r.randrange(20), r.choice(("it's", "b\\c", "ü🫖", "plain", ""))
        match r.randrange(6):
            case 0:
                return "DELETE FROM pair WHERE a = %s AND b = %s", (a, b)
            case 1:
                return "UPDATE pair SET at = now(6) WHERE a = %s", (a,)
            case 2:
                return "UPDATE IGNORE pair SET b = %s WHERE a = %s AND b = %s", (f"{b}{r.randrange(99)}", a, b)
            case _:
                body = _word(r, 3000) if r.random() < 0.2 else None
                return "REPLACE INTO pair (a, b, body) VALUES (%s, %s, %s)", (a, b, body)

    def _part(self) -> Change:
        r = self.random
        key, other = r.randrange(KEYS), r.randrange(KEYS)
        match r.randrange(5):
            case 0:
                return "DELETE FROM part WHERE id = %s", (key,)
            case 4:
                many = "SELECT seq, concat(seq, %s) FROM seq_0_to_290_step_3 WHERE seq BETWEEN %s AND %s"
                return f"REPLACE INTO part {many}", (_word(r, 2), key, key + 90)
            case 1:
                return "UPDATE IGNORE part SET id = %s WHERE id = %s", (other, key)
            case _:
                return "REPLACE INTO part VALUES (%s, %s)", (key, _word(r, 5))

    def _owned(self) -> Change:
        r = self.random
        match r.randrange(20):
            case 0:
                return "DELETE FROM owner WHERE id = %s", (r.randrange(9),)
            case 1:
                return "UPDATE IGNORE owner SET id = %s WHERE id = %s", (r.randrange(9), r.randrange(9))
            case 2 | 3 | 4:
                return "INSERT IGNORE INTO owner VALUES (%s)", (r.randrange(9),)
            case _:
                return "INSERT IGNORE INTO owned VALUES (%s, %s)", (r.randrange(KEYS), r.randrange(9))

    def _alter(self) -> Iterator[str]:
        r = self.random
        match r.randrange(7):
            case 0 | 1:
                self.numbers += 1
                name = f"x{self.numbers}"
                self.extra.append(name)
                yield f"ALTER TABLE item ADD COLUMN {name} int{r.choice((' FIRST', '', '', ' AFTER id'))}"
            case 2 if self.extra:
                yield f"ALTER TABLE item DROP COLUMN {self.extra.pop(r.randrange(len(self.extra)))}"
            case 3 if self.extra:
                self.numbers += 1
                place = r.randrange(len(self.extra))
                old, self.extra[place] = self.extra[place], f"y{self.numbers}"
                yield f"ALTER TABLE item RENAME COLUMN {old} TO {self.extra[place]}"
            case 4:
                yield "ALTER TABLE item MODIFY n bigint"
            case 5:
                yield "CREATE OR REPLACE INDEX named ON pair (at)"
            case _:
                yield "OPTIMIZE TABLE pair"


def _word(r: random.Random, length: int) -> str:
    return "".join(r.choices(string.ascii_letters, k=length))
