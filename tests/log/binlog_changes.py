"""Random changes of a MariaDB database, rows that follow others by foreign keys among them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pymysql
from random_changes import KEYS, Change, Changes, Execute

from mariadb import open_as

BUSY = (1205, 1213, 1412, 1020, 1452)


class BinlogChanges(Changes):
    SETUP = (
        "CREATE TABLE item (id int PRIMARY KEY, name text, n int, price decimal(10,2))",
        "CREATE TABLE pair (a int, b varchar(20), body longtext, at timestamp(6) NULL, PRIMARY KEY (b, a))",
        "CREATE TABLE part (id bigint PRIMARY KEY, v text) PARTITION BY RANGE (id) "
        "(PARTITION low VALUES LESS THAN (100), PARTITION high VALUES LESS THAN MAXVALUE)",
        "CREATE TABLE owner (id int PRIMARY KEY)",
        "CREATE TABLE owned (id int PRIMARY KEY, owner int, FOREIGN KEY (owner) REFERENCES owner (id) "
        "ON DELETE CASCADE ON UPDATE CASCADE)",
    )
    PLACES = (" FIRST", "", "", " AFTER id")
    OTHER_DDL = (
        "ALTER TABLE item MODIFY n bigint", "CREATE OR REPLACE INDEX named ON pair (at)", "OPTIMIZE TABLE pair",
    )  # fmt: skip

    @contextmanager
    def session(self) -> Iterator[Execute]:
        config = self.database.admin.model_copy(update={"database": self.database.config.database})
        with open_as(config) as connection, connection.cursor() as cursor:
            yield lambda statement, values: cursor.execute(statement, values or None)

    def transaction(self, execute: Execute) -> int:
        try:
            return super().transaction(execute)
        except pymysql.MySQLError as error:
            execute("ROLLBACK", ())
            if error.args[0] not in BUSY:
                raise
            return 0

    def kinds(self) -> Sequence[Callable[[], Change]]:
        return self._item, self._item, self._pair, self._part, self._owned

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
                row = (key, self.word(8), r.randrange(-9, 9999), r.randrange(10**6) / 100)
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
                body = self.word(3000) if r.random() < 0.2 else None
                return "REPLACE INTO pair (a, b, body) VALUES (%s, %s, %s)", (a, b, body)

    def _part(self) -> Change:
        r = self.random
        key, other = r.randrange(KEYS), r.randrange(KEYS)
        match r.randrange(5):
            case 0:
                return "DELETE FROM part WHERE id = %s", (key,)
            case 4:
                many = "SELECT seq, concat(seq, %s) FROM seq_0_to_290_step_3 WHERE seq BETWEEN %s AND %s"
                return f"REPLACE INTO part {many}", (self.word(2), key, key + 90)
            case 1:
                return "UPDATE IGNORE part SET id = %s WHERE id = %s", (other, key)
            case _:
                return "REPLACE INTO part VALUES (%s, %s)", (key, self.word(5))

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
