"""Random changes of a PostgreSQL database, values that are stored aside among them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import psycopg
from random_changes import KEYS, Change, Changes, Execute

from instep.sources.postgres.connect import conninfo


class LogChanges(Changes):
    SETUP = (
        "CREATE TABLE item (id int PRIMARY KEY, name text, n int, price numeric(10,2))",
        "CREATE TABLE pair (a int, b varchar(20), body text, at timestamptz, PRIMARY KEY (b, a))",
        "ALTER TABLE pair ALTER COLUMN body SET STORAGE EXTERNAL",
        "CREATE TABLE part (id bigint PRIMARY KEY, v text) PARTITION BY RANGE (id)",
        "CREATE TABLE part_low PARTITION OF part FOR VALUES FROM (MINVALUE) TO (100)",
        "CREATE TABLE part_high PARTITION OF part FOR VALUES FROM (100) TO (MAXVALUE)",
    )
    OTHER_DDL = ("ALTER TABLE item ALTER COLUMN n TYPE bigint USING n * 2", "VACUUM FULL pair")

    @contextmanager
    def session(self) -> Iterator[Execute]:
        with psycopg.connect(conninfo(self.database.config), autocommit=True) as connection:
            yield lambda statement, values: connection.execute(statement.encode(), values or None).rowcount

    def kinds(self) -> Sequence[Callable[[], Change]]:
        return self._item, self._item, self._pair, self._part

    def _item(self) -> Change:
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
                row = (key, self.word(8), r.randrange(-9, 9999), r.randrange(10**6) / 100)
                return (
                    "INSERT INTO item (id, name, n, price) VALUES (%s, %s, %s, %s) "
                    "ON CONFLICT (id) DO UPDATE SET name = excluded.name, n = excluded.n, price = excluded.price"
                ), row

    def _pair(self) -> Change:
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
                body = self.word(3000) if r.random() < 0.2 else None
                return (
                    "INSERT INTO pair (a, b, body) VALUES (%s, %s, %s) "
                    "ON CONFLICT (a, b) DO UPDATE SET body = coalesce(excluded.body, pair.body)"
                ), (a, b, body)

    def _part(self) -> Change:
        r = self.random
        key, other = r.randrange(KEYS), r.randrange(KEYS)
        match r.randrange(5):
            case 0:
                return "DELETE FROM part WHERE id = %s", (key,)
            case 4:
                many = "SELECT i, i::text FROM generate_series(%s::int, %s::int, 3) i"
                return f"INSERT INTO part {many} ON CONFLICT (id) DO UPDATE SET v = excluded.v || %s", (
                    key, key + 90, self.word(2),
                )  # fmt: skip
            case 1:
                clash = "NOT EXISTS (SELECT FROM part WHERE id = %s)"
                return f"UPDATE part SET id = %s WHERE id = %s AND {clash}", (other, key, other)  # noqa: S608
            case _:
                return "INSERT INTO part VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET v = excluded.v", (
                    key, self.word(5),
                )  # fmt: skip
