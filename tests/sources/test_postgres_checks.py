"""`source test` on PostgreSQL: what is missing comes with the statements that bring it, and those work."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from instep.model import Check
from instep.project.sections.databases import PostgresSourceSection
from instep.sources.postgres.connect import conninfo, translate
from instep.sources.postgres.source import PostgresSource, clock_check
from instep.sources.server import places
from postgres_server import READER, Database


def checks(config: PostgresSourceSection) -> dict[str, Check]:
    return {c.name: c for c in PostgresSource(config).test()}


def test_the_grants_that_are_missing_are_printed_by_schema_and_work(postgres: Database) -> None:
    postgres.execute('CREATE SCHEMA shut; CREATE SCHEMA "od""d"')
    for name in ("shut.a", "shut.b", '"od""d".c', "public.d", "public.e"):
        postgres.execute(f"CREATE TABLE {name} (id int, secret text)")
    postgres.execute(
        f"REVOKE ALL ON d FROM {READER}; REVOKE ALL ON e FROM {READER}; GRANT SELECT (id) ON e TO {READER}"
    )
    postgres.execute(f'GRANT SELECT ON shut.b TO {READER}; GRANT USAGE ON SCHEMA "od""d" TO {READER}')
    postgres.execute(f'REVOKE SELECT ON shut.a, "od""d".c FROM {READER}')  # noqa: S608
    found = checks(postgres.reader)["privileges"]
    assert (found.ok, found.needed) == (False, True)
    assert found.hint.split("; ") == [
        'GRANT SELECT ON "od""d"."c" TO "reader"',
        'GRANT SELECT ON "public"."d" TO "reader"',
        'GRANT USAGE ON SCHEMA "shut" TO "reader"',
        'GRANT SELECT ON "shut"."a" TO "reader"',
        'GRANT SELECT ("secret") ON "public"."e" TO "reader";',
    ]
    postgres.execute(found.hint)
    assert checks(postgres.reader)["privileges"].ok


def test_what_is_only_worth_knowing_fails_nothing(postgres: Database) -> None:
    postgres.execute("CREATE TABLE t (id int); ALTER TABLE t ENABLE ROW LEVEL SECURITY")
    postgres.execute("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
    found = checks(postgres.reader)
    notes = {name for name, c in found.items() if not c.ok}
    assert {"tls", "identity", "row security"} <= notes
    assert [c for c in found.values() if c.needed and not c.ok] == []
    assert all(found[name].hint for name in notes)
    for name in ("identity", "row security"):
        postgres.execute(found[name].hint)
    assert {"identity", "row security"} & {n for n, c in checks(postgres.reader).items() if not c.ok} == set()
    postgres.execute(f"ALTER ROLE {READER} NOBYPASSRLS")


CLOCKS = [
    ("the same", 100.0, 99.9, 100.1, True),
    ("a slow answer", 95.0, 90.0, 130.0, True),
    ("a little behind", 96.0, 100.0, 100.1, True),
    ("behind", 80.0, 100.0, 100.1, False),
    ("ahead", 200.0, 100.0, 100.1, False),
]


@pytest.mark.parametrize(("server", "before", "after", "ok"), [c[1:] for c in CLOCKS], ids=[c[0] for c in CLOCKS])
def test_clocks(server: float, before: float, after: float, ok: bool) -> None:
    assert clock_check(server, before, after).ok is ok


def test_the_server_lists_connections_under_the_name_that_is_set(postgres: Database) -> None:
    config = postgres.config.model_copy(update={"application_name": "nightly load"})
    with psycopg.connect(conninfo(config)) as connection:
        row: Any = connection.execute("SELECT current_setting('application_name')").fetchone()
    assert row[0] == "nightly load"


PLACES = [
    ((), [("db", 5432)]),
    (("r1", "r2:5433"), [("r1", 5432), ("r2", 5433), ("db", 5432)]),
    (("[::1]:7", "::1", "[fe80::2]"), [("::1", 7), ("::1", 5432), ("fe80::2", 5432), ("db", 5432)]),
]


@pytest.mark.parametrize(("given", "expected"), PLACES, ids=[str(p[0]) for p in PLACES])
def test_where_replicas_are(given: tuple[str, ...], expected: list[tuple[str, int]]) -> None:
    found = places(
        PostgresSourceSection.resolved(type="postgres", host="db", database="d", user="u", read_replica=given)
    )
    assert [(c.host, c.port, c.read_replica) for c in found] == [(host, port, ()) for host, port in expected]


def test_another_kind_of_server_is_told() -> None:
    error = translate(
        PostgresSourceSection.resolved(type="postgres", host="h", database="d", user="u"),
        "failed: received invalid response to SSL negotiation: h",
        "",
    )
    assert "the server there is not PostgreSQL" in error.message
    assert "`type`" in error.hint


def test_a_conflict_with_recovery_is_no_timeout() -> None:
    error = translate(
        PostgresSourceSection.resolved(type="postgres", host="h", database="d", user="u"),
        "ERROR: canceling statement due to conflict with recovery",
        "40001",
    )
    assert "hot_standby_feedback" in error.hint
    assert "statement_timeout" not in error.hint
