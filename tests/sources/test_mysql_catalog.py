from __future__ import annotations

import re
import sys

import pytest

from events.shows import shows
from instep.errors import AccessDenied, ConnectError, InstepError, ProjectError, SetupError
from instep.project.sections.databases import MySqlSourceSection
from instep.project.sections.reach import Tls, TlsMode
from instep.schema.catalog.types import Json, String
from instep.sources.mysql.catalog import WEAK, _decoded, _parts
from instep.sources.mysql.connect import translate
from instep.sources.mysql.source import MySqlSource
from mariadb import PASSWORD, MariaDatabase, open_as
from source_reads import EVERYTHING, accept, batches, find, values


@pytest.fixture
def source(mariadb: MariaDatabase) -> MySqlSource:
    return MySqlSource(mariadb.config)


def privileged(mariadb: MariaDatabase) -> MySqlSource:
    """As a user who may see InnoDB's ids."""
    return MySqlSource(mariadb.admin.model_copy(update={"database": mariadb.config.database}))


def test_catalog_details(mariadb: MariaDatabase, source: MySqlSource) -> None:
    mariadb.execute(
        "CREATE TABLE t (b int NOT NULL COMMENT 'it''s', a varchar(5) NOT NULL DEFAULT 'x', j json, l longtext,"
        " g int AS (b + 1) STORED, PRIMARY KEY (a, b)) COMMENT 'what was bought'"
    )
    mariadb.execute("INSERT INTO t (b) VALUES (1), (2)")
    mariadb.execute("ANALYZE TABLE t")
    table = find(source, "t")
    assert (table.key, table.comment, table.kind, table.id) == (("a", "b"), "what was bought", "table", None)
    columns = table.by_name
    assert (columns["b"].comment, columns["b"].nullable, columns["j"].nullable) == ("it's", False, True)
    assert (columns["a"].default, columns["j"].default, columns["b"].default) == ("'x'", None, None)
    assert (columns["j"].type, columns["l"].type) == (Json(), String())
    assert source.discover().stats[table.ref].rows == 2
    assert values(source, "t")["g"] == [2, 3]


def test_no_function_is_used_that_newer_servers_have_dropped(mariadb: MariaDatabase) -> None:
    """MySQL 9.6 has no MD5() and SHA1() any more: they went to a component that few install."""
    for part in _parts(mariadb.config):
        assert not re.search(r"(?i)\b(md5|sha1?)\(", part.digest + part.rows), part.view


def test_table_ids_prove_renames_and_nothing_else(mariadb: MariaDatabase) -> None:
    source = privileged(mariadb)
    for name in ("t", "per-cent% x", "parted"):
        mariadb.execute(f"CREATE TABLE `{name}` (id int PRIMARY KEY)")
    mariadb.execute("ALTER TABLE parted PARTITION BY HASH (id) PARTITIONS 3")
    first = {t.name: t.id for t in source.discover().catalog.tables}
    assert first["parted"] is None
    assert all((first[name] or "").startswith(WEAK) for name in ("t", "per-cent% x"))
    mariadb.execute("RENAME TABLE t TO u")
    assert find(source, "u").id == first["t"]
    mariadb.execute("TRUNCATE TABLE u")
    assert find(source, "u").id != first["t"]
    found = source.discover()
    assert found.identity
    assert not found.proves_absence


ENCODED = [
    ("shop/orders", ("shop", "orders")),
    ("shop/a@002db", ("shop", "a-b")),
    ("my@0020shop/caf@00e9", ("my shop", "café")),
    ("shop/t#P#p0", None),
    ("shop/caf@0s", None),
    ("SYS_FOREIGN", None),
]


@pytest.mark.parametrize(("name", "expected"), ENCODED)
def test_innodbs_names(name: str, expected: tuple[str, str] | None) -> None:
    assert _decoded(name) == expected


def test_ids_do_not_belong_to_the_fingerprint(mariadb: MariaDatabase) -> None:
    source = privileged(mariadb)
    mariadb.execute("CREATE TABLE t (id int PRIMARY KEY)")
    before = source.fingerprint()
    mariadb.execute("TRUNCATE TABLE t")
    assert source.fingerprint() == before == source.discover().fingerprint


FACETS = [
    "ALTER TABLE t MODIFY a bigint",
    "ALTER TABLE t MODIFY a int NOT NULL",
    "ALTER TABLE t MODIFY a int COMMENT 'new'",
    "ALTER TABLE t COMMENT 'new'",
    "ALTER TABLE t MODIFY a int FIRST",
    "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (b, id)",
]


@pytest.mark.sampled
@pytest.mark.parametrize("sql", FACETS)
def test_the_fingerprint_tells(mariadb: MariaDatabase, source: MySqlSource, sql: str) -> None:
    mariadb.execute("CREATE TABLE t (id int, b int, a int, PRIMARY KEY (id, b))")
    before = source.discover()
    mariadb.execute(sql)
    after = source.discover()
    assert source.fingerprint() == after.fingerprint != before.fingerprint
    assert after.catalog != before.catalog


def test_what_may_not_be_read_is_hidden_or_denied(mariadb: MariaDatabase) -> None:
    for name in ("open", "shut", "half", "blind"):
        mariadb.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, secret int)")
    mariadb.execute("CREATE VIEW broken AS SELECT secret FROM shut")
    user = f"{mariadb.reader.user}@'%'"
    mariadb.execute(f"REVOKE ALL ON {mariadb.config.database}.* FROM {user}")
    for right, name in (("SELECT", "open"), ("SELECT (id)", "half"), ("INSERT (secret)", "half"), ("INSERT", "blind")):
        mariadb.execute(f"GRANT {right} ON {name} TO {user}")
    mariadb.execute(f"GRANT SELECT ON broken TO {user}")
    mariadb.execute("ALTER TABLE shut DROP COLUMN secret")
    source, schema = MySqlSource(mariadb.reader), mariadb.config.database
    found = source.discover()
    assert (schema, "shut") not in found.catalog.by_ref
    assert set(found.denied) == {(schema, "half", "secret"), (schema, "blind"), (schema, "broken")}
    assert not found.proves_absence
    failed = [check for check in source.test() if check.needed and not check.ok]
    assert {check.name for check in failed} == {f"read {'.'.join(ref[:2])}" for ref in found.denied}
    for check in failed:
        mariadb.execute(check.hint)
    assert set(source.discover().denied) == {(schema, "broken")}


def test_a_right_that_is_taken_away_is_access_lost(mariadb: MariaDatabase) -> None:
    mariadb.execute("CREATE TABLE t (id int PRIMARY KEY)")
    source = MySqlSource(mariadb.reader)
    read = accept(find(source, "t"))
    mariadb.execute(f"REVOKE ALL ON {mariadb.config.database}.* FROM {mariadb.reader.user}@'%'")
    mariadb.execute(f"CREATE TABLE u (id int); GRANT SELECT ON u TO {mariadb.reader.user}@'%'".split(";")[0])
    mariadb.execute(f"GRANT SELECT ON u TO {mariadb.reader.user}@'%'")
    with source.snapshot() as snapshot:
        chunks = snapshot.chunks(read, "shop.t", EVERYTHING)
        with pytest.raises(AccessDenied, match=r"shop\.t.*can no longer be read") as failed:
            batches(snapshot, chunks)
    assert mariadb.reader.user in failed.value.hint


PATTERNS = [
    ((), (), {"orders", "Stock", "a.b"}),
    (("orders",), (), {"orders"}),
    (("re:[^.]*\\.(o|S).*",), (), {"orders", "Stock"}),
    (("re:(?i)STOCK|orders",), (), {"orders", "Stock"}),
    (("re:^o", "re:tock", "re:a|orde"), (), set()),
    (("*",), ("re:.*k$", "re:rder"), {"orders", "a.b"}),
    (("a.b",), (), {"a.b"}),
    (("{s}.a.b",), (), {"a.b"}),
    (("stock",), (), set()),
    (("{other}.*",), (), {"elsewhere"}),
    (("{other}.*", "{s}.orders"), (), {"elsewhere", "orders"}),
    (("{s}*.?[lr]*",), (), {"orders", "elsewhere"}),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("include", "exclude", "expected"), PATTERNS)
def test_patterns_over_schemas(
    mariadb: MariaDatabase, include: tuple[str, ...], exclude: tuple[str, ...], expected: set[str]
) -> None:
    schema = mariadb.config.database
    other = f"{schema}_b"
    mariadb.execute(f"CREATE DATABASE {other}")
    try:
        for name in ("orders", "Stock", "`a.b`", f"{other}.elsewhere"):
            mariadb.execute(f"CREATE TABLE {name} (id int PRIMARY KEY)")
        patterns = tuple(p.replace("{s}", schema).replace("{other}", other) for p in include)
        source = MySqlSource(
            mariadb.admin.model_copy(update={"database": schema, "include": patterns, "exclude": exclude})
        )
        found = source.discover()
        assert {t.name for t in found.catalog.tables} == expected
        assert found.fingerprint == source.fingerprint()
    finally:
        mariadb.execute(f"DROP DATABASE {other}")


def test_a_bad_pattern_is_the_projects_fault(mariadb: MariaDatabase) -> None:
    with pytest.raises(ProjectError, match="regular expression"):
        MySqlSource(mariadb.config.model_copy(update={"include": ("re:(",)})).discover()


BAD: list[tuple[dict[str, object], str]] = [
    ({"password": "wrong"}, "refuses this user and password"),
    ({"user": "nobody"}, "refuses this user and password"),
    ({"database": "absent"}, "absent"),
    ({"port": 1}, "nothing listens there"),
    ({"host": "host.invalid"}, "host is unknown"),
    ({"tls": Tls(mode="require")}, "TLS"),
    ({"tls": Tls(mode="verify-full", ca="/absent.pem")}, "No such file"),
]


@pytest.mark.parametrize(("changes", "message"), BAD, ids=[next(iter(b[0])) + str(n) for n, b in enumerate(BAD)])
def test_a_bad_login_is_named_with_its_cause(mariadb: MariaDatabase, changes: dict[str, object], message: str) -> None:
    config = mariadb.config.model_copy(update=changes)
    with pytest.raises(ConnectError, match=message) as failed:
        MySqlSource(config).discover()
    assert str(config.port) in failed.value.message
    assert failed.value.hint
    assert MySqlSource(config).test()[0].ok is False
    assert config.password not in f"{failed.value}{failed.value.__cause__}{config!r}"


MODES: list[TlsMode] = ["disable", "prefer"]


@pytest.mark.parametrize("mode", MODES)
def test_a_server_without_tls_is_reached(mariadb: MariaDatabase, mode: TlsMode) -> None:
    assert (
        MySqlSource(mariadb.config.model_copy(update={"tls": Tls.resolved(mode=mode)})).discover().catalog.tables == ()
    )


def test_without_a_timeout_the_server_is_reached(mariadb: MariaDatabase) -> None:
    assert MySqlSource(mariadb.config.model_copy(update={"connect_timeout": 0, "read_timeout": 0})).test()[0].ok


CODES: list[tuple[int, type[InstepError], str]] = [
    (1142, AccessDenied, "can no longer be read"),
    (1040, ConnectError, "no free connection"),
    (1044, ConnectError, "not allowed to use"),
    (2013, InstepError, "connection was lost"),
    (1146, InstepError, "changed while"),
    (1412, InstepError, "changed while"),
    (9999, InstepError, "error 9999"),
]


@pytest.mark.parametrize(("code", "kind", "message"), CODES)
def test_errors_name_what_was_done_and_hide_the_password(code: int, kind: type[InstepError], message: str) -> None:
    error = translate(
        MySqlSourceSection.resolved(type="mysql", host="h", database="d", user="u", password=PASSWORD),
        code,
        f"said {PASSWORD}",
        "reading shop.t",
    )
    assert isinstance(error, kind)
    assert error.message.startswith("reading shop.t: ")
    assert message in error.message
    assert "said ***" in error.message
    assert error.hint


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (1292, "Truncated incorrect INTEGER value: 'canary'"),
        (1644, "no customer named 'canary'"),
        (1411, "Incorrect datetime value: 'canary' for function str_to_date"),
        (1366, "Incorrect integer value: 'canary' for column 'a' at row 1"),
        (1062, "Duplicate entry 'canary' for key 'PRIMARY'"),
    ],
)
def test_an_error_about_a_value_does_not_tell_it(code: int, text: str) -> None:
    config = MySqlSourceSection.resolved(type="mysql", host="h", database="d", user="u")
    error = translate(config, code, text, "reading shop.t")
    assert ("canary" in str(error), text.partition("'")[0] in error.message) == (False, True)


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymysql", None)
    with pytest.raises(SetupError, match="pymysql") as failed:
        MySqlSource(MySqlSourceSection.resolved(type="mysql", host="127.0.0.1", database="shop", user="u")).discover()
    assert "instep[mysql]" in failed.value.hint
    assert (
        MySqlSource(MySqlSourceSection.resolved(type="mysql", host="127.0.0.1", database="shop", user="u")).test()[0].ok
        is False
    )


@pytest.mark.slow
@shows(event=61)
def test_ten_thousand_tables_are_listed_by_as_many_statements_as_ten(
    mariadb: MariaDatabase, source: MySqlSource
) -> None:
    def statements() -> int:
        with open_as(mariadb.admin) as connection, connection.cursor() as cursor:
            cursor.execute("SHOW GLOBAL STATUS LIKE 'Questions'")
            return int(cursor.fetchone()[1])

    def asked() -> tuple[int, int]:
        before = statements()
        found = len(source.discover().catalog.tables)
        return found, statements() - before

    with (
        open_as(mariadb.admin.model_copy(update={"database": mariadb.config.database})) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("SET GLOBAL innodb_file_per_table = OFF")  # to make and remove the files takes most of the time
        try:
            for number in range(10_000):
                cursor.execute(f"CREATE TABLE t{number} (id int PRIMARY KEY, a varchar(9), d datetime)")
                if number == 9:
                    source.discover()
                    few = asked()
        finally:
            cursor.execute("SET GLOBAL innodb_file_per_table = ON")
    found, statements_of_all = asked()
    assert (few[0], found) == (10, 10_000)
    assert statements_of_all <= few[1]
