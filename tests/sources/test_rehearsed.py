"""A rehearsed migration leads to what the database makes of it: statement by statement, on real servers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from contract.sources import SOURCES, Case
from instep.lineage.migration.statements import read_migration
from instep.schema.catalog.catalog import Catalog
from instep.schema.changes.describe import describe
from instep.schema.changes.diff import diff
from instep.schema.changes.rehearse import Rehearsal, Rules
from instep.sources.declared import DIALECTS, declared_type

BEGIN = {
    "postgres": [
        "create table orders (id bigint primary key, note varchar(20) default 'a', amount numeric(10,2), at timestamp)",
        'create table "Odd one" (a int not null, "B" text, primary key (a))',
    ],
    "mysql": [
        "create table orders (id bigint primary key, note varchar(20) default 'a', amount decimal(10,2), at datetime)",
        "create table items (a int not null, b text, c int, primary key (a, c))",
    ],
    "sqlite": [
        "create table orders (id integer primary key, note varchar(20) default 'a', amount decimal(10,2), at text)",
        "create table items (a int not null, b text, c int, primary key (a, c))",
    ],
}
COMMON = [
    "alter table orders add column phone varchar(30) default '-'",
    "alter table orders rename column phone to mobile",
    "alter table orders drop column mobile",
    "alter table orders rename to sales",
    "create table if not exists sales (id int)",
    "create table made (id int not null, v decimal(8,3), t varchar(9), d date, b boolean, f real, primary key (id))",
    "alter table made add column later timestamp",
    "drop table made",
    "create index i on sales (note)",
    "update sales set note = 'drop table x; y'",
]
SCRIPTS = {
    "postgres": [
        *COMMON,
        "alter table sales alter column amount type numeric(12, 2), alter column note set data type text using note",
        "alter table only public.sales alter note set not null, alter note drop default, add q int default 1 + 1",
        "alter table sales alter q set default 7, alter column q drop not null",
        "alter table sales add column if not exists q text, drop column if exists nothing cascade",
        'alter table "Odd one" rename "B" to b',
        'alter table "Odd one" drop constraint "Odd one_pkey"',
        'alter table "Odd one" add primary key (a, b)',
        'alter table "Odd one" drop constraint "Odd one_pkey", drop constraint if exists some_check',
        "alter table sales drop column id",
        "create schema other",
        'alter table "Odd one" set schema other',
        'drop table if exists nowhere, other."Odd one" restrict',
        "create table kinds (a serial, b int8[], c timestamptz(3), d time without time zone, e char(3), f char,"
        " g double precision, h float(10), i jsonb, j uuid, k bytea, l interval, m numeric, n numeric(5), o oid,"
        " p character varying, q timestamp(3) with time zone, r bit varying(5), s text[][], t bigserial,"
        " u int generated always as identity, v money, w integer array, x name, unique (a), check (b is not null))",
        "comment on table kinds is 'all of them'",
        "comment on column public.kinds.j is 'an id'",
        "alter table kinds drop column s",
        "create table twin (like kinds)",
        "create table parts (a int) partition by range (a)",
        "create table part_1 partition of parts for values from (1) to (9)",
        "alter table kinds alter u drop identity if exists, alter b set statistics 5, owner to current_user",
        "create type mood as enum ('sad', 'ok')",
        "alter table kinds add feels mood not null default 'ok'",
        "truncate kinds",
        "drop schema other cascade",
    ],
    "mysql": [
        *COMMON,
        "alter table sales modify note varchar(40) not null comment 'n', modify column amount decimal(12,2) first",
        "alter table sales change note remark text after id, add column (x int unsigned, y tinyint(1)), add key (x)",
        "alter table sales alter x set default 5, alter column y drop default",
        "alter table items drop primary key, add primary key (a)",
        "alter table items add column z enum('a','b') not null default 'a' after b, engine = InnoDB",
        "alter table items comment = 'them'",
        "rename table items to things, sales to items",
        "create table kinds (a serial, b bool, c bigint unsigned, d double precision, e char, f binary(3), g year,"
        " h json, i datetime(3) default current_timestamp(3) on update current_timestamp(3), j mediumint(5) zerofill,"
        " k bit(3), l blob, m longtext character set utf8mb4 collate utf8mb4_bin, n numeric, o float(7,3), p time,"
        " q set('x'), key (b), fulltext (m)) engine = InnoDB comment 'all of them' default charset utf8mb4",
        "create table twin like kinds",
        "alter table things drop column if exists nothing, drop b",
        "alter table `things` add `odd name` varchar(5) character set latin1 null, algorithm = inplace",
        "drop table if exists nowhere, twin",
    ],
    "sqlite": [
        *COMMON,
        "alter table items add column n decimal(5, 1) not null default 0 check (n >= 0)",
        'create table "new items" (a integer primary key autoincrement, [b c] varchar(10) collate nocase unique, d)',
        "insert into \"new items\" (a) select a from items",
        "drop table items",
        'alter table "new items" rename to items',
        "create table other (a text primary key, b blob references items(a) on delete set null, c int as (a + 1))",
        "create temp table passing (a int)",
        "alter table OTHER rename B to bb",
    ],
}  # fmt: skip


KINDS = [
    pytest.param("postgres", marks=pytest.mark.server),
    pytest.param("mysql", marks=[pytest.mark.server, pytest.mark.slow]),
    "sqlite",
]


@pytest.fixture(params=KINDS)
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    with SOURCES[request.param](request) as opened:
        yield opened


def rehearsed(case: Case, before: Catalog, sql: str) -> Catalog:
    dialect = DIALECTS[case.kind]
    read = read_migration([("m.sql", sql)], dialect)
    assert read.unread == (), sql
    made = Rehearsal.of(before, Rules.of(dialect, case.schema, lambda text: declared_type(dialect, text)))
    for number, step in enumerate(read.steps):
        made.run(number, step.edits)
    return made.catalog


def told(before: Catalog, after: Catalog) -> list[str]:
    """What a detection would see. How a database writes a default again is its own affair."""
    changes = diff(before, Catalog.of(after.tables))
    return sorted(describe(c).partition(" -> ")[0] if c.kind == "column.default" else describe(c) for c in changes)


def test_every_statement_leads_to_what_the_database_has_then(case: Case) -> None:
    source = case.source()
    for statement in BEGIN[case.kind]:
        case.execute(statement)
    different = {}
    now = source.discover().catalog
    for statement in SCRIPTS[case.kind]:
        expected = rehearsed(case, now, statement)
        case.execute(statement)
        before, now = now, source.discover().catalog
        if told(before, expected) != told(before, now) or _shapes(expected) != _shapes(now):
            different[statement] = (told(before, expected), told(before, now))
    assert different == {}


def _shapes(catalog: Catalog) -> list[tuple[object, ...]]:
    """Tables as they are, without the ids of what is new."""
    return [
        (t.ref, t.kind, t.comment, t.key, [replace(c, id=None, default=None, native="", note="") for c in t.columns])
        for t in catalog.tables
    ]
