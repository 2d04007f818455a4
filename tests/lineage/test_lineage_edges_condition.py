"""Which texts can be the filter of a table's rows, by the text alone; and which relation a name means."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lineage_world import edit, field, model

from instep.lineage.assess import assess
from instep.lineage.parse import filter_error
from instep.lineage.shape import LEVELS, Level, ModelRelation, RelationShape, worst
from postgres_server import Server, make_database

GOOD = [
    "id = 1", "state IN ('open', 'new') AND at > '2026-01-01'", "name LIKE 'a%' OR name IS NULL", "NOT done", "done",
    "lower(name) = 'x'", "a BETWEEN 1 AND 2", "coalesce(a, 0) > 1", "'a;b' <> name", "note = '-- no comment'",
    "CASE WHEN a > 1 THEN b ELSE c END", "(a, b) = (1, 2)", "a + b * 2 > 3",
]  # fmt: skip
BAD = [
    ("", "not one condition"), ("id = 1;", "not one condition"), ("id = 1; DROP TABLE t", "not one condition"),
    ("SELECT 1", "but select"), ("id IN (SELECT id FROM u)", "query"), ("EXISTS (SELECT 1 FROM u)", "query"),
    ("id = 1 -- all", "comment"), ("id /* x */ = 1", "comment"), ("name = 'a\x00b'", "comment"),
    ("t.id = 1", "names a table: write id"), ("count(*) > 1", "says nothing of one row"), ("sum(a) > 1", "of one row"),
    ("row_number() OVER () = 1", "says nothing of one row"), ("1", "not a condition"), ("'x'", "not a condition"),
    ("NULL", "not a condition"), ("id = ", "not a condition"), ("(id = 1", "not a condition"),
    ("pg_sleep(10) IS NULL", "pg_sleep"), ("PG_READ_FILE('/etc/passwd') = ''", "may do more"),
    ("dblink('x', 'y') = 1", "dblink"), ("set_config('a', 'b', true) = 'b'", "set_config"),
    ("ts_rewrite('a'::tsquery, 'select q, q from u') = 'b'", "ts_rewrite"),
    ("crosstab('select 1') IS NULL", "crosstab"),
    ("other.f(id) = 1", "may do more|names a table"),
    ("DELETE FROM t", "not a condition"), ("DROP TABLE t", "not a condition"),
    ("(" * 5000 + "id" + ")" * 5000, "not a condition"),
]  # fmt: skip


@pytest.mark.parametrize("dialect", ["postgres", "mysql", "sqlite"])
@pytest.mark.parametrize("text", GOOD)
def test_a_condition_over_one_row(text: str, dialect: str) -> None:
    assert filter_error(text, dialect) == ""


@pytest.mark.parametrize(("text", "why"), BAD, ids=[c[0][:30] for c in BAD])
def test_what_is_no_condition(text: str, why: str) -> None:
    found = filter_error(text, "postgres")
    assert re.search(why, found), found


ELSEWHERE: dict[str, str] = {
    "h2": "file_read('/etc/passwd') file_write('a', 'b') csvread('/x') csvwrite('/x', 'q') link_schema('a', 'b', 'c') "
          "cancel_session(1) abort_session(1) runscript('x')",
    "mysql": "load_file('/x') sleep(1) benchmark(1, 2) get_lock('a', 1) source_pos_wait('a', 1) master_gtid_wait('x') "
             "wsrep_sync_wait_upto_gtid('x') wait_for_executed_gtid_set('x') spider_direct_sql('a', 'b', 'c') "
             "spider_bg_direct_sql('a', 'b', 'c') spider_copy_tables('a') keyring_key_fetch('a') "
             "group_replication_set_as_primary('x') asynchronous_connection_failover_reset() sys_eval('x') nextval(s) "
             "service_get_write_locks('a', 'b', 1) audit_log_filter_remove_user('x') version_tokens_set('x') "
             "@@hostname",
    "tsql": "openrowset('a', 'b', 'c') openquery(a, 'b') opendatasource('a', 'b') xp_cmdshell('x') sp_who(1)",
    "oracle": "utl_http.request('u') dbms_pipe.receive_message('a', 1) httpuritype('u') httpuritype('u').getclob() "
              "dburitype('/a') xdburitype('/a') xmltype('<a/>') bfilename('a', 'b') sys_context('a', 'b')",
    "snowflake": "system$wait(1) system$cancel_all_queries(1) SYSTEM$ABORT_SESSION(1)",
    "sqlite": "load_extension('x') readfile('/x') writefile('a', 'b') edit('x') zeroblob(9) randomblob(9)",
}  # fmt: skip


@pytest.mark.parametrize("dialect", ELSEWHERE)
def test_no_function_that_does_more_than_look_at_a_row(dialect: str) -> None:
    """Those of databases without a server here, by their documentation; H2 and Db2 are read as plain SQL."""
    calls = re.findall(r"[\w$@.]+(?:\([^()]*\)(?:\.\w+\(\))?)?", ELSEWHERE[dialect])
    assert len(calls) > 2
    known = "" if dialect == "h2" else dialect
    assert [call for call in calls if not filter_error(f"{call} = 1", known)] == []


@pytest.mark.parametrize("dialect", ["tsql", "oracle", "snowflake", "mysql", "postgres", ""])
def test_a_sequence_is_not_advanced(dialect: str) -> None:
    assert filter_error("NEXT VALUE FOR s = 1", dialect)
    assert filter_error("s.nextval = 1", dialect)


HARMLESS = {
    *("array_sample", "array_shuffle", "clock_timestamp", "gen_random_uuid", "random", "random_normal", "timeofday"),
    *("uuidv4", "uuidv7"),
}
"""Functions of PostgreSQL that answer another value each time, and do nothing else."""
CALLABLE = """
    SELECT DISTINCT proname FROM pg_proc
    WHERE pronamespace = 'pg_catalog'::regnamespace AND prokind = 'f' AND provolatile = 'v' AND NOT proretset
    AND prorettype NOT IN (SELECT oid FROM pg_type WHERE typtype = 'p' AND typname ~ 'trigger|handler|internal')
    AND NOT 'internal'::regtype = ANY(proargtypes)
"""


def test_no_function_of_postgres_that_does_something_is_part_of_a_condition(postgres_server: Server) -> None:
    """The server says itself which may: a filter is read with the source's login, by whoever may set one."""
    database = make_database(postgres_server, "functions")
    names = {name for (name,) in database.execute(CALLABLE)}
    assert {"pg_sleep", "query_to_xml", "ts_rewrite", "nextval", "lo_export"} <= names
    assert not [name for name in sorted(names - HARMLESS) if not filter_error(f"{name}(id) = 1", "postgres")]


@pytest.mark.parametrize(
    ("text", "why"),
    [("ID = 1", ""), ("rowid > 5", ""), ('"nope" = 1', "there is no column nope"), ("id = 1 AND größe = 2", "größe"),
     ("load_extension('x') IS NULL", "load_extension"), ("readfile('/x') IS NULL", "readfile"),
     ("zeroblob(900000000) IS NULL", "zeroblob")],
)  # fmt: skip
def test_names_are_looked_up_where_the_source_takes_unknown_ones_for_texts(text: str, why: str) -> None:
    assert (filter_error(text, "sqlite", ["id", "name"]) == "") is (why == "")
    assert why in filter_error(text, "sqlite", ["id", "name"])


@given(st.lists(st.sampled_from(LEVELS)))
def test_the_worst_level_counts(levels: list[Level]) -> None:
    found = worst(levels)
    assert found in (levels or ["safe"])
    assert all(LEVELS.index(found) <= LEVELS.index(level) for level in levels)


LAKE = [
    ModelRelation(("a", "t"), RelationShape((field("x", edit("gone", "a.t.x goes", "c-a")),))),
    ModelRelation(("b", "t"), RelationShape((field("x", edit("gone", "b.t.x goes", "c-b")),))),
]


@pytest.mark.parametrize(
    ("sql", "change"),
    [("select x from a.t", "c-a"), ("select x from B.T", "c-b"), ("select x from lake.b.t", "c-b"),
     ("select x from c.t", ""), ("with t as (select 1 as x) select x from t", "")],
)  # fmt: skip
def test_a_name_means_the_relation_that_agrees_with_it_in_most_parts(sql: str, change: str) -> None:
    (verdict,) = assess([model("m", sql)], LAKE)
    assert {f.change for f in verdict.findings} == ({change} if change else set())


def test_a_model_stands_before_a_table_of_its_name_and_models_in_a_ring_end() -> None:
    view = model("create", "create view a.t as select 1 as x")
    ring = [model("p", "select x from q"), model("q", "select x from p")]
    found = {v.model.name: v.level for v in assess([view, model("m", "select x from a.t"), *ring], LAKE)}
    assert found[view.name] == found["m"] == "safe"
    assert {"p", "q"} <= found.keys()
