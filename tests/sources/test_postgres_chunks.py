"""Where the rows of PostgreSQL's tables are, looked up for many tables at once."""

from __future__ import annotations

import psycopg
import pytest

from instep.errors import InstepError, ReadError
from instep.sources.base import CursorRange
from instep.sources.postgres import snapshot as module
from instep.sources.postgres.connect import conninfo
from instep.sources.postgres.source import PostgresSource
from postgres_server import Database
from source_reads import accept

TABLES = """
CREATE TABLE "Two words" (id int PRIMARY KEY, v text);
INSERT INTO "Two words" SELECT i, 'x' FROM generate_series(1, 1000) i;
CREATE TABLE empty (id int);
CREATE VIEW v AS SELECT id FROM "Two words";
CREATE TABLE p (id int) PARTITION BY RANGE (id);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20);
CREATE TABLE parent (id int);
CREATE TABLE child () INHERITS (parent);
CREATE SCHEMA "o'ther"; CREATE TABLE "o'ther".empty (id int);
"""


@pytest.mark.parametrize("together", [1, 2, 100])
def test_chunks_are_the_same_one_by_one(postgres: Database, monkeypatch: pytest.MonkeyPatch, together: int) -> None:
    monkeypatch.setattr(module, "TOGETHER", together)
    postgres.execute(TABLES)
    with PostgresSource(postgres.config).snapshot() as snapshot:
        reads = [accept(t) for t in snapshot.discover().catalog.tables]
        alone = [snapshot.chunks(read, "t", CursorRange()) for read in reads]
        snapshot.look_up([read.source.ref for read in reads])
        assert [snapshot.chunks(read, "t", CursorRange()) for read in reads] == alone
        assert {read.source.ref for read in reads} == set(snapshot._stored)


def test_what_is_gone_or_in_use_is_left_to_its_own_turn(postgres: Database) -> None:
    postgres.execute("CREATE TABLE a (id int); CREATE TABLE b (id int); CREATE TABLE gone (id int)")
    with PostgresSource(postgres.config).snapshot() as snapshot:
        reads = {t.name: accept(t) for t in snapshot.discover().catalog.tables}
        with psycopg.connect(conninfo(postgres.config)) as other:
            other.execute("LOCK TABLE b")
            snapshot.look_up([read.source.ref for read in reads.values()])
            other.rollback()
        assert [len(snapshot.chunks(reads[name], "t", CursorRange())) for name in "ab"] == [1, 1]
        postgres.execute("DROP TABLE gone")
        snapshot.look_up([read.source.ref for read in reads.values()])
        assert set(snapshot._stored) == {("public", "a"), ("public", "b")}
        with pytest.raises(InstepError, match="gone"):
            snapshot.chunks(reads["gone"], "t", CursorRange())


@pytest.mark.parametrize("together", [True, False])
def test_a_table_that_was_replaced_since_is_not_read(postgres: Database, together: bool) -> None:
    """Its name is that of a table which the read point does not have: it would be read without rows."""
    postgres.execute("CREATE TABLE a (id int); INSERT INTO a VALUES (1)")
    with PostgresSource(postgres.config).snapshot() as snapshot:
        [read] = map(accept, snapshot.discover().catalog.tables)
        postgres.execute("DROP TABLE a; CREATE TABLE a (id int); INSERT INTO a VALUES (1)")
        if together:
            snapshot.look_up([read.source.ref])
        with pytest.raises(ReadError, match=r"public\.a: was replaced while it was being read"):
            snapshot.chunks(read, "t", CursorRange())
