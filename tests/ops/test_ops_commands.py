"""`instep doctor --connect` over PostgreSQL, and `instep db prune`: as commands, over what is really there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL

from instep.cli.main import main
from instep.monitoring.doctor import SKEWED, clock
from instep.store.store import Store, utc_now
from postgres_server import Database

PROJECT = """\
{store}sources:
  crm: {{type: postgres, host: 127.0.0.1, port: {port}, database: {database}, user: {user}, password: '${{env:PG}}'}}
destinations: {{lake: {{type: duckdb, path: lake.duckdb}}}}
connections: {{shop: {{source: crm, destination: lake}}}}
{more}"""
PASSWORD = "canary-7b1d"


def said(capsys: pytest.CaptureFixture[str], folder: Path, *words: str) -> tuple[int, Any, str]:
    """(exit code, document, all that was written)."""
    capsys.readouterr()
    code = main(["--project", str(folder), *words, "--output", "json"])
    found = capsys.readouterr()
    return code, json.loads(found.out), found.out + found.err


@pytest.fixture
def people(postgres: Database) -> Iterator[Database]:
    """With a login that may read one table of two."""
    name = f"reader_{postgres.config.database}"
    postgres.execute(f"create role {name} login password '{PASSWORD}'")
    postgres.execute("create table item (id int primary key); create table box (id int primary key)")
    postgres.execute(f"grant select on item to {name}")
    yield postgres
    postgres.execute(f"drop owned by {name}; drop role {name}")


def write(folder: Path, base: Database, user: str, **other: object) -> None:
    c = base.config
    words: dict[str, object] = {"port": c.port, "database": c.database, "user": user, "store": "", "more": ""}
    folder.joinpath("instep.yml").write_text(PROJECT.format(**{**words, **other}))


REACHED: list[tuple[str, bool, str, dict[str, object], bool, str]] = [
    ("all is well", False, "", {}, True, ""),
    ("a wrong password", True, "wrong", {}, False, "password"),
    ("a database that is not there", False, "", {"database": "nowhere"}, False, "nowhere"),
    ("nobody at that port", False, "", {"port": 1}, False, "127.0.0.1"),
    ("a table that may not be read", True, PASSWORD, {}, False, "box"),
]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("limited", "password", "other", "well", "told"), [c[1:] for c in REACHED], ids=[c[0] for c in REACHED]
)
def test_the_doctor_tries_a_source(
    people: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    limited: bool, password: str, other: dict[str, object], well: bool, told: str,
) -> None:  # fmt: skip
    c = people.config
    monkeypatch.setenv("PG", password or c.password)
    write(tmp_path, people, f"reader_{c.database}" if limited else c.user, **other)
    code, document, text = said(capsys, tmp_path, "doctor", "--connect")
    found = [one for one in document["checks"] if one["name"].startswith("source crm")]
    wrong = [one for one in found if one["state"] != "ok" and not one["name"].endswith(": tls")]
    assert found
    assert not [one for one in document["checks"] if one["name"].startswith("destination lake") and not one["ok"]]
    assert (not wrong) == well
    assert told in json.dumps(wrong)
    assert all(one["hint"] for one in wrong)
    assert code == (1 if document["counts"]["bad"] else 0)
    assert PASSWORD not in text
    assert c.password not in text
    quick = said(capsys, tmp_path, "doctor")[1]
    assert not [one for one in quick["checks"] if one["name"].startswith("source crm")], "only if it is asked for"


CLOCKS = [(timedelta(0), "ok"), (timedelta(seconds=SKEWED + 5), "warn"), (timedelta(hours=-1), "warn")]


@pytest.mark.parametrize(("apart", "state"), CLOCKS, ids=["equal", "ahead", "behind"])
def test_the_clock_of_the_stores_server_is_compared(postgres: Database, apart: timedelta, state: str) -> None:
    with Store(url(postgres), now=lambda: utc_now() + apart) as store:
        found = clock(store)
    assert (found.state, bool(found.hint)) == (state, True)


def url(base: Database) -> str:
    c = base.config
    made = URL.create("postgresql+psycopg", c.user, c.password, c.host, c.port, c.database)
    return made.render_as_string(hide_password=False)


AGES = [
    ("past the default", "", 31, 3),
    ("within it", "", 29, 0),
    ("past a shorter one", "retention: {jobs: 7d}", 8, 3),
    ("within a longer one", "retention: {jobs: 60d}", 31, 0),
]


@pytest.mark.parametrize(("more", "days", "gone"), [c[1:] for c in AGES], ids=[c[0] for c in AGES])
def test_db_prune_forgets_by_the_projects_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: str, days: int, gone: int
) -> None:
    project = "sources: {{db: {{type: sqlite, path: shop.db}}}}\nconnections: {{shop: {{}}}}\n{more}\n"
    lake = "destinations: {{lake: {{type: duckdb, path: lake.duckdb}}}}\n"
    tmp_path.joinpath("instep.yml").write_text((lake + project).format(more=more))
    assert said(capsys, tmp_path, "db", "upgrade")[0] == 0
    place = f"sqlite:///{tmp_path / '.instep' / 'state.db'}"
    with Store(place, now=lambda: utc_now() - timedelta(days=days)) as store:
        for number in range(3):
            store.jobs.enqueue("shop", "test_connection", key=str(number))
        while job := store.jobs.claim("w-1"):
            store.jobs.finish(job)
        store.jobs.enqueue("shop", "sync")
    expected = {"jobs": gone} if gone else {}
    for words, left in ((("--dry-run",), 4), ((), 4 - gone)):
        code, document, _ = said(capsys, tmp_path, "db", "prune", *words)
        assert (code, document["dry_run"], document["forgotten"]) == (0, bool(words), expected)
        with Store(place) as store:
            assert len(store.jobs.find(limit=100)) == left
    assert main(["--project", str(tmp_path), "db", "prune"]) == 0
    assert "deleted nothing" in capsys.readouterr().out
