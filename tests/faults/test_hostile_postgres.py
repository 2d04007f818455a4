"""A PostgreSQL that means harm, or is broken: what it answers fails by name and in time, nothing of it is committed, no
password goes where it should not, and no text of it moves the cursor of a terminal."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from command_runs import run
from contract.sources import Case
from faults.hostile import Act, Client, hostile
from faults.hostile_postgres import (
    CATALOG,
    COPYING,
    ENDLESS,
    ESCAPES,
    FIELDS,
    GARBAGE,
    HUGE,
    LAST,
    MOVES,
    ONE,
    ROW,
    ROWS,
    answers,
    asks,
    at,
    at_start,
    cut,
    ended,
    error,
    first,
    message,
    row,
    says,
    scram,
    table,
)  # fmt: skip
from instep.destinations.postgres.connect import PostgresServerConfig as DestinationConfig
from instep.destinations.postgres.server import PostgresServer as DestinationServer
from instep.errors import ConnectError, InstepError
from instep.project.sections.databases import PostgresSourceSection
from instep.sources.postgres.connect import connect, conninfo
from instep.sources.postgres.source import PostgresSource
from instep.sources.postgres.types import quote
from postgres_server import PASSWORD, SUPERUSER, Database, Server, make_database
from sync_world import World

PROJECT = """\
version: 1
project: shop
sources:
  pg: {{type: postgres, host: 127.0.0.1, port: {port}, database: {database}, user: {user}, tls: {{mode: {tls}}},
       password: "${{env:PG_PASSWORD}}", connect_timeout: {login}, read_timeout: {quiet}}}
destinations:
  lake: {{type: iceberg, warehouse: lake}}
connections:
  shop: {{source: pg, destination: lake}}
"""
TOLD = ESCAPES.replace("{password}", PASSWORD)
NOTICE = message(b"N", b"SINFO\0VINFO\0C00000\0M" + b"x" * 9000 + b"\0\0")
QUIET = "no answer in time"
CUT = "no word from the server for 1 s"
WAIT = 30
"""Seconds for what is answered honestly. Only where silence is the fault there are one or two, and an honest server
that needs longer is told in the same words."""


@pytest.fixture(scope="module")
def shop(postgres_server: Server) -> Iterator[Database]:
    database = make_database(postgres_server, "hostile")
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
    database.execute("INSERT INTO t VALUES (1, 1), (2, 2)")
    yield database
    replace(database, config=database.config.model_copy(update={"database": "postgres"})).execute(
        "DROP DATABASE hostile WITH (FORCE)"
    )


def project(folder: Path, port: int, tls: str = "prefer", login: int = WAIT, quiet: int = WAIT) -> None:
    text = PROJECT.format(port=port, tls=tls, database="hostile", user=SUPERUSER, login=login, quiet=quiet)
    folder.joinpath("instep.yml").write_text(text)


def check(folder: Path, capsys: pytest.CaptureFixture[str], act: Act, tls: str = "prefer", **limits: int) -> str:
    """What `source test` says of a server that cannot be used."""
    with hostile(act) as server:
        project(folder, server.port, tls, **limits)
        said = run(capsys, "--project", str(folder), "source", "test")
        assert PASSWORD.encode() not in server.heard
    assert said.code == 4, said
    text = said.out + said.err
    assert not MOVES.search(text)
    assert PASSWORD not in text
    assert f"127.0.0.1:{server.port}" in text
    assert not [line for line in text.splitlines() if line.startswith("error")]
    return text


@pytest.fixture
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its server counts as one of another machine."""
    monkeypatch.setenv("PG_PASSWORD", PASSWORD)
    monkeypatch.setattr("instep.stage.timeouts.is_near", lambda _: False)


LOGIN: list[tuple[str, Act, str, str]] = [
    ("garbage for TLS", lambda c: c.say(GARBAGE), "prefer", "the server there is not PostgreSQL"),
    ("TLS that is none", says(b"S" + GARBAGE, then=cut), "require", "SSL"),
    ("an error before TLS", at_start(b"", error(TOLD, "08000")), "require", "error response during SSL"),
    ("no TLS", at_start(b""), "require", "the server has no TLS"),
    ("garbage", at_start(GARBAGE), "prefer", "expected authentication request"),
    ("a gigabyte", at_start(b"R" + HUGE), "prefer", "invalid authentication request"),
    ("an error of a gigabyte", at_start(b"E" + HUGE + b"oh", then=cut), "prefer", "login"),
    ("endless notices", at_start(message(b"R", bytes(4)), then=lambda c: c.flood(NOTICE)), "prefer", QUIET),
    ("password in clear", asks(3), "prefer", "asks for the password itself over a connection without TLS"),
    ("password as MD5", asks(5, b"salt"), "prefer", "wrong user or password"),
    ("unknown method", asks(99), "prefer", "unknown authentication type"),
    ("SCRAM signature", scram(4096), "prefer", "the server does not know the password"),
    ("escapes", at_start(error(TOLD, "28000"), then=cut), "prefer", r"\x1b[2J\x1b]0;owned\x07 first"),
    ("cut off", at_start(message(b"R", bytes(4)) + b"S\0\0", then=cut), "prefer", "closed the connection"),
]


@pytest.mark.usefixtures("_secret")
@pytest.mark.parametrize(("act", "tls", "word"), [c[1:] for c in LOGIN], ids=[c[0] for c in LOGIN])
def test_a_login(tmp_path: Path, capsys: pytest.CaptureFixture[str], act: Act, tls: str, word: str) -> None:
    assert word in check(tmp_path, capsys, act, tls, login=2 if word == QUIET else WAIT)


@pytest.mark.slow
def test_a_login_that_would_compute_for_an_hour(tmp_path: Path) -> None:
    """In a process of its own, which ends with what it computes."""
    with hostile(scram(ENDLESS)) as server:
        project(tmp_path, server.port, login=2)
        said = subprocess.run(
            [sys.executable, "-m", "instep.cli.main", "--project", str(tmp_path), "source", "test"],
            env={**os.environ, "PG_PASSWORD": PASSWORD}, capture_output=True, text=True, timeout=600,
        )  # fmt: skip
    assert said.returncode == 4, said
    assert QUIET in said.stdout


@pytest.mark.usefixtures("_secret")
@pytest.mark.parametrize(("tls", "words"), [("prefer", "cleartext password"), ("require", "SSL")])
def test_a_destination_is_told_no_password_in_clear(tmp_path: Path, tls: str, words: str) -> None:
    with hostile(asks(3)) as server:
        config = DestinationConfig.resolved(
            name="lake",
            host="127.0.0.1",
            database="lake",
            user=SUPERUSER,
            port=server.port,
            password=PASSWORD,
            tls={"mode": tls},
            staging=str(tmp_path),
            connect_timeout=WAIT,
        )
        with pytest.raises(ConnectError, match=words) as told, DestinationServer(config).reading():
            pass
        assert server.heard
        assert PASSWORD.encode() not in server.heard
    assert PASSWORD not in str(told.value)


@pytest.mark.parametrize("login", ["variable", "file"])
@pytest.mark.parametrize("act", [asks(3), asks(5, b"salt"), scram(4096)], ids=["clear", "MD5", "SCRAM"])
@pytest.mark.parametrize("side", ["source", "destination"])
def test_a_server_is_told_no_password_of_the_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, side: str, act: Act, login: str
) -> None:
    """Whoever may name a server must not have it told what libpq finds by itself: a login is what the section says."""
    passwords = tmp_path / "pgpass"
    passwords.write_text(f"*:*:*:*:{PASSWORD}\n")
    passwords.chmod(0o600)
    monkeypatch.setenv(*(("PGPASSWORD", PASSWORD) if login == "variable" else ("PGPASSFILE", str(passwords))))
    with hostile(act) as server:
        given: dict[str, Any] = {"host": "127.0.0.1", "port": server.port, "database": "d", "user": "u"}
        given["connect_timeout"] = WAIT
        if side == "source":
            section = PostgresSourceSection.resolved(type="postgres", **given)
            with pytest.raises(ConnectError, match="asks for a password"), connect(section):
                pass
        else:
            config = DestinationConfig.resolved(name="lake", staging=str(tmp_path), **given)
            with pytest.raises(ConnectError, match="password"), DestinationServer(config).reading():
                pass
        assert not re.search(rb"p\0\0\0.(?!SCRAM)", server.heard, re.DOTALL), "an answer to a question of the login"


def test_the_account_s_certificate_is_shown_to_nobody() -> None:
    own = PostgresSourceSection.resolved(type="postgres", host="h", database="d", user="u")
    assert "sslcertmode=disable" in conninfo(own)
    shown = PostgresSourceSection.resolved(
        type="postgres", host="h", database="d", user="u", tls={"cert": "c.pem", "key": "k"}
    )
    assert "sslcertmode" not in conninfo(shown)


NOT_A_CATALOG = "not those of PostgreSQL"
TABLES: list[tuple[str, Act, str]] = [
    ("a row of a gigabyte", says(FIELDS, b"D" + HUGE + b"\0\4"), CUT),
    ("cut off within a row", says(FIELDS, table("id")[:30], then=cut), "closed the connection"),
    ("a row with more columns", says(FIELDS, row(*"123456789"), ended("SELECT 1")), "unexpected field count"),
    ("no JSON", says(FIELDS, row("1", "1", "[[", "x"), ended("SELECT 1")), NOT_A_CATALOG),
    ("another JSON", says(FIELDS, row("1", "1", "[1]", "x"), ended("SELECT 1")), NOT_A_CATALOG),
    ("no result", says(ended("SELECT 1")), "didn't produce records"),
    ("a COPY", says(message(b"G", b"\0\0\0")), "COPY cannot be used"),
    ("escapes", says(error(TOLD, "XX000"), message(b"Z", b"E")), r"\x1b[2J\x1b]0;owned\x07 first"),
]


@pytest.mark.usefixtures("_secret")
@pytest.mark.parametrize(("then", "word"), [c[1:] for c in TABLES], ids=[c[0] for c in TABLES])
def test_a_catalog(tmp_path: Path, capsys: pytest.CaptureFixture[str], shop: Database, then: Act, word: str) -> None:
    assert word in check(tmp_path, capsys, at(CATALOG, then)(shop.config.port), quiet=1 if word == CUT else WAIT)


@pytest.mark.usefixtures("_secret")
def test_a_catalog_without_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], shop: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("instep.stage.timeouts.MOST", 8 << 20)
    endless = says(FIELDS, then=lambda c: c.flood(table("id") * 500))
    said = check(tmp_path, capsys, at(CATALOG, endless)(shop.config.port))
    assert "the server's answer has no end: it was cut off after 8 MB" in said


def far(config: Any, port: int, **settings: Any) -> Callable[..., PostgresSource]:
    limits = {"connect_timeout": WAIT, "read_timeout": WAIT, "max_connections": 1, **settings}
    return lambda **_: PostgresSource(config.model_copy(update={"port": port, **limits}))


@pytest.fixture(scope="module")
def world(shop: Database, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Synced once, behind its source by one row."""
    case = Case("postgres", "public", shop.execute, far(shop.config, shop.config.port), quote)
    made = World(case, tmp_path_factory.mktemp("world"))
    assert made.sync().status == "done"
    shop.execute("INSERT INTO t VALUES (3, 3)")
    yield made
    made.close()


def said(world: World, shop: Database, act: Act, **settings: Any) -> str:
    """What a sync from a hostile server says."""
    with hostile(act) as server:
        there: World = replace(world, case=replace(world.case, source=far(shop.config, server.port, **settings)))
        try:
            report = there.sync()
            return "\n".join(t.error for t in report.tables)
        except InstepError as failed:
            return str(failed)
        finally:
            there.close()


COPIED: list[tuple[str, bytes, Act, str]] = [
    ("cut off within a row", ROWS, says(COPYING, first(ONE, ONE), ROW[:9], then=cut), "closed the connection"),
    ("a row of a gigabyte", ROWS, says(COPYING, first(ONE, ONE), b"d" + HUGE + b"\0\2"), CUT),
    (
        "a value of a gigabyte",
        ROWS,
        says(COPYING, first(ONE, ONE), message(b"d", b"\0\2" + HUGE + b"abcd")),
        "1073741824 bytes",
    ),
    ("more columns", ROWS, says(COPYING, first(*[ONE] * 9), LAST, ended("COPY 1")), "got 9"),
    ("garbage", ROWS, says(COPYING, message(b"d", GARBAGE), LAST, ended("COPY 1")), "Invalid PGCOPY signature"),
    ("escapes", ROWS, says(error(TOLD, "XX000").replace(b"FATAL", b"ERROR"), message(b"Z", b"E")), r"\x1b[2J"),
]


@pytest.mark.slow
def test_rows_without_end_end_with_the_statement(world: World, shop: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server has WAIT seconds for a statement; on this side it is one."""
    monkeypatch.setattr("instep.sources.server._LATE", 1.0 - WAIT)
    was = world.rows("t")
    endless = says(COPYING, first(ONE, ONE), then=lambda c: c.flood(ROW * 5000))
    text = said(world, shop, at(ROWS, endless)(shop.config.port), statement_timeout=WAIT)
    assert "goes on sending after statement_timeout" in text
    assert world.rows("t") == was


@pytest.mark.sampled
@pytest.mark.parametrize(("mark", "then", "word"), [c[1:] for c in COPIED], ids=[c[0] for c in COPIED])
def test_rows(world: World, shop: Database, mark: bytes, then: Act, word: str) -> None:
    was = world.rows("t")
    text = said(world, shop, at(mark, then)(shop.config.port), read_timeout=1 if word == CUT else WAIT)
    assert word in text
    assert not MOVES.search(text)
    assert PASSWORD not in text
    assert world.rows("t") == was


def test_types_that_are_never_told(world: World, shop: Database) -> None:
    """The longer of the two limits holds; an honest login that takes longer is told in the other words."""
    was = world.rows("t")
    act = at(b"attrelid, attnum", Client.silence)(shop.config.port)
    text = said(world, shop, act, connect_timeout=2, read_timeout=1)
    assert "no word from the server for" in text or QUIET in text
    assert world.rows("t") == was


def test_what_counts_is_the_rows_and_the_next_sync_puts_right_what_was_a_lie(world: World, shop: Database) -> None:
    lie = answers(ROWS, COPYING, first(ONE, ONE), LAST, ended("COPY 1000000"))
    assert said(world, shop, lie(shop.config.port)) == ""
    assert world.rows("t") == [(1, 1)]
    shop.execute("UPDATE t SET id = id")  # else the server says that the table is the one that was read
    assert world.sync().status == "done"
    assert world.rows("t") == [(1, 1), (2, 2), (3, 3)]


def test_a_name_of_a_megabyte_stays_out(world: World, shop: Database) -> None:
    long = answers(CATALOG, FIELDS, table("n" * (1 << 20)), ended("SELECT 1"))
    text = said(world, shop, long(shop.config.port))
    assert "a name of 1,048,576 characters (65,536 are the most)" in text


def test_a_catalog_that_changes_between_two_reads(world: World, shop: Database) -> None:
    """Whenever it is read, it tells of another column."""
    was, names = world.rows("t"), iter("abcdefghijklmnopqrstuvwxyz")

    def moving(client: Client) -> None:
        client.relay(shop.config.port, CATALOG, lambda: FIELDS + table(next(names)) + ended("SELECT 1"))

    text = said(world, shop, moving)
    assert text.startswith("public.t was replaced by another table of that name: review it (c-")
    assert next(names) < "g"
    assert world.rows("t") == was
