"""Commands that are not understood, names that do not exist, plans that are no plans."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
import traceback
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pytest
from commands import POSTGRES, Place
from marks import SERVER

import instep
from instep.errors import InstepError
from postgres_server import Database

SQLITE = """\
version: 1
sources: {db: {type: sqlite, path: shop.db}}
destinations: {lake: {type: iceberg, warehouse: lake}}
connections: {shop: {source: db, destination: lake}}
"""
GOOD = POSTGRES.format(port=5432, database="shop", user="me", engine="local")

USAGE = [
    ["no-such-command"],
    ["sync", "--no-such-option"],
    ["sync", "one", "two", "three"],
    ["backfill"],
    ["query"],
    ["history", "--limit", "0"],
    ["history", "--limit", "many"],
    ["--output", "xml", "status"],
    ["changes", "show"],
    ["source"],
    ["sync", "--table"],
]


@pytest.mark.parametrize("words", USAGE, ids=" ".join)
def test_wrong_usage(place: Place, words: list[str]) -> None:
    told = place.write(GOOD, {"PG_PASSWORD": "x"}).run(*words)
    assert told.code == 64, told.all
    assert told.all.strip()
    assert "Traceback" not in told.all


@pytest.mark.parametrize("words", USAGE[:7], ids=" ".join)
def test_wrong_usage_is_json_too(place: Place, words: list[str]) -> None:
    told = place.write(GOOD, {"PG_PASSWORD": "x"}).run("--output", "json", *words)
    assert told.code == 64
    assert told.json["format_version"] == 1
    assert told.json["exit_code"] == 64
    assert told.json["detail"]


ERRORS = [
    ("project", ["validate"], 1),
    ("connection", ["sync", "sohp"], 1),
    ("change", ["changes", "show", "c-nothing"], 1),
    ("review", ["changes", "approve", "c-nothing"], 1),
    ("table", ["pause", "--table", "public.nothing"], 1),
    ("query", ["query", "selec 1"], 1),
]


@pytest.mark.parametrize(("words", "code"), [e[1:] for e in ERRORS], ids=[e[0] for e in ERRORS])
def test_errors_are_json_too(place: Place, words: list[str], code: int) -> None:
    place.write(GOOD if words != ["validate"] else "version: 2\n", {"PG_PASSWORD": "x"})
    place.run(*words).is_error(code)
    told = place.run(*words, "--output", "json")
    assert told.code == code
    problem = told.json
    assert problem["type"].startswith("urn:instep:")
    assert problem["exit_code"] == code
    assert all(problem[part] for part in ("title", "detail", "hint"))
    assert not told.err.strip()


def test_an_unknown_connection_names_the_near_one(place: Place) -> None:
    place.write(GOOD, {"PG_PASSWORD": "x"}).run("sync", "sohp").is_error(1, "unknown connection 'sohp'", "shop")


def test_a_table_in_the_place_of_a_connection_is_told_to_be_named_by_an_option(place: Place) -> None:
    told = place.write(GOOD, {"PG_PASSWORD": "x"}).run("sync", "public.orders")
    told.is_error(1, "unknown connection 'public.orders'", "instep sync --table public.orders")


NOT_PLANS = [
    ("no json", "plan it"),
    ("empty", ""),
    ("a list", "[]"),
    ("no plan", '{"connection": "shop"}'),
    ("no connection", '{"plan": {}}'),
    ("half", '{"connection": "shop", "plan": {"steps": ['),
    ("nothing in it", '{"connection": "shop", "plan": {}}'),
    ("text", '{"connection": "shop", "plan": "x"}'),
    ("null", "null"),
    ("another's", '{"format_version": 1, "connections": []}'),
]


@pytest.mark.parametrize("text", [n[1] for n in NOT_PLANS], ids=[n[0] for n in NOT_PLANS])
def test_a_plan_file_that_is_none(place: Place, text: str) -> None:
    place.write(GOOD, {"PG_PASSWORD": "x"})
    file = place.folder / "plan.json"
    file.write_text(text)
    place.run("apply", str(file), "--yes").is_error(1, "plan.json", "instep plan -o")


def test_a_plan_file_of_bytes(place: Place) -> None:
    place.write(GOOD, {"PG_PASSWORD": "x"})
    file = place.folder / "plan.json"
    file.write_bytes(b"\x80\x81\x82")
    place.run("apply", str(file), "--yes").is_error(1, "plan.json", "instep plan -o")


def test_a_plan_file_that_is_not_there(place: Place) -> None:
    place.write(GOOD, {"PG_PASSWORD": "x"}).run("apply", "plan.json", "--yes").is_error(1, "plan.json")


def test_a_plan_with_another_meaning(place: Place, postgres: Database) -> None:
    """Its steps were edited: what would be done is not what was shown."""
    postgres.execute("CREATE TABLE t (id int PRIMARY KEY)")
    place.over(postgres)
    file = place.folder / "plan.json"
    assert place.run("plan", "-o", str(file)).code == 0
    document = json.loads(file.read_text())
    for damage in ("steps", "after", "decisions"):
        damaged = json.loads(json.dumps(document))
        damaged["plan"].pop(damage, None)
        file.write_text(json.dumps(damaged))
        place.run("apply", str(file), "--yes").is_error(1, "plan.json", "instep plan -o")


def test_a_stale_plan(place: Place, postgres: Database) -> None:
    postgres.execute("CREATE TABLE t (id int PRIMARY KEY)")
    place.over(postgres)
    file = place.folder / "plan.json"
    assert place.run("plan", "-o", str(file)).code == 0
    assert place.run("apply", "--yes").code == 0
    place.run("apply", str(file), "--yes").is_error(5, "plan")
    shutil.rmtree(place.folder / "lake")
    assert place.run("plan", "-o", str(file)).code == 0
    place.run("apply", str(file), "--yes")


def test_nothing_is_applied_without_a_yes(place: Place, postgres: Database) -> None:
    postgres.execute("CREATE TABLE t (id int PRIMARY KEY)")
    told = place.over(postgres).run("apply")
    assert told.code == 3
    told.has("--yes")
    assert not list((place.folder / "lake").glob("*/*"))


class TestNames:
    """Tables that do not exist are an error that names the near ones; nothing is read."""

    pytestmark = SERVER

    @pytest.mark.sampled
    @pytest.mark.parametrize(
        "words",
        [["sync", "--table", "public.ordres"], ["backfill", "public.ordres"], ["verify", "--table", "public.ordres"],
         ["pause", "--table", "public.ordres"], ["sync", "--table", "orders"]],
        ids=" ".join,
    )  # fmt: skip
    def test_an_unknown_table(self, place: Place, postgres: Database, words: list[str]) -> None:
        postgres.execute("CREATE TABLE orders (id int PRIMARY KEY)")
        place.over(postgres)
        assert place.run("sync").code == 0
        place.run(*words).is_error(1, words[-1], "public.orders")


def test_the_folder_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    Place(tmp_path / "file").run("validate").is_error(1, "instep.yml")


NOT_TEXT = b"a\xff".decode(errors="surrogateescape")
"""A word whose bytes are no UTF-8, as Python passes it on."""


@pytest.mark.parametrize(
    "words",
    [
        ["sync", "--table", NOT_TEXT],
        ["changes", "show", NOT_TEXT],
        ["pause", "--reason", NOT_TEXT],
        ["undo", NOT_TEXT],
        ["query", NOT_TEXT],
        ["tables", NOT_TEXT],
        ["changes", "list", "--search", NOT_TEXT],
    ],
    ids=lambda words: " ".join(words[:2]).encode("ascii", "replace").decode(),
)
def test_a_word_that_is_no_text(place: Place, words: list[str]) -> None:
    place.write(SQLITE)
    with closing(sqlite3.connect(place.folder / "shop.db")) as connection:
        connection.execute("create table t (id integer primary key)")
    for told in (place.run(*words), place.run(*words, "--output", "json")):
        assert told.code in (1, 64), told.all
        assert "a\\udcff" in told.all or "UTF-8" in told.all
        assert "Traceback" not in told.all


@pytest.mark.parametrize("buffered", [True, False])
@pytest.mark.parametrize("output", ["table", "json"])
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&- <&-", ">/dev/full"])
def test_streams_that_are_closed_or_full(
    place: Place, closed: str, output: str, buffered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is opened next takes no number of a stream, so that nothing is written into it."""
    place.write(SQLITE)
    sqlite3.connect(place.folder / "shop.db").close()
    monkeypatch.setenv("PYTHONUNBUFFERED", "" if buffered else "1")
    command = f"{shlex.quote(sys.executable)} -m instep --output {output} status {closed}"
    done = subprocess.run(
        ["sh", "-c", command], cwd=place.folder, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == (1 if "full" in closed else 0), done.stderr
    assert "Traceback" not in done.stderr
    if "full" in closed:
        assert "No space left" in done.stderr
    assert place.run("status").code == 0


GONE = [
    "-m instep status",
    "-m instep init",
    "-m instep init --demo",
    "-m instep connector init made",
    "-m instep doctor",
    "-c 'import instep; instep.open()'",
    "-c 'import instep; instep.spark_conf()'",
]


@pytest.mark.parametrize("words", GONE)
def test_the_current_folder_is_gone(tmp_path: Path, words: str) -> None:
    command = f"mkdir gone && cd gone && rmdir ../gone && {shlex.quote(sys.executable)} {words}"
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 1
    assert "the current folder is gone: it was deleted\n  change to another folder" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["apply", "deep.json"],
        ["impact", "--manifest", "deep.json"],
        ["import", "airbyte", "deep.json"],
        ["import", "fivetran", "deep.json"],
        ["--yes", "quarantine", "discard", "main.t", "--key", "[" * 100_000],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_documents_that_are_nested_without_end(place: Place, words: list[str]) -> None:
    place.write(SQLITE)
    deep = place.folder / "deep.json"
    deep.write_text("[" * 100_000 + "]" * 100_000)
    place.run(*(str(deep) if word == "deep.json" else word for word in words)).is_error(1)


SECRET = "s3cr3t@Zq7kw/vw8yy:k5mmm tail9"
URLS = [
    (f"postgresql://me:{SECRET}@db.internal:5432/state", "percent-encode"),
    (f"postgresql:///me:{SECRET}@db.internal/state", "percent-encode"),
    (f"postgres://me:{SECRET}@db.internal/state", "postgresql://"),
    (f"mystery://me:{quote(SECRET, safe='')}@db.internal/state", "instep doctor"),
    (SECRET, "not a database URL"),
]


@pytest.mark.parametrize(("url", "said"), URLS, ids=[said for _, said in URLS])
def test_an_address_of_the_store_that_is_wrong(
    place: Place, url: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No part of a password that was written as it is shows as a host, neither in the error nor in what caused it."""
    monkeypatch.setenv("STORE", url)
    place.write("store: ${env:STORE}\n" + SQLITE)
    place.run("status").has(said)
    with pytest.raises(InstepError) as error, instep.open(place.folder) as project:
        project.status()
    text = "".join(traceback.format_exception(error.value)) + place.run("status").all
    assert not [part for part in (*re.split(r"[@/: ]", SECRET), quote(SECRET, safe="")) if part in text], text
