# ruff: noqa: S608 - names pass through `quoted`
"""Sources that cannot be reached, refuse, or hold what cannot be synced: exit 4 or 6, the other tables go on."""

from __future__ import annotations

from typing import Any

import pytest
from commands import Place
from marks import SERVER

from postgres_server import READER, Database, free_port

WRONG: list[tuple[str, dict[str, Any], list[str]]] = [
    ("password", {"password": "not it"}, ["wrong user or password"]),
    ("user", {"user": "nobody"}, ["wrong user or password"]),
    ("host", {"host": "no-such-host.invalid"}, ["no-such-host.invalid"]),
    ("port", {"port": free_port()}, ["127.0.0.1:"]),
    ("database", {"database": "absent"}, ["absent"]),
]
COMMANDS = [["source", "discover"], ["detect"], ["plan"], ["apply", "--yes"], ["verify"]]


@pytest.mark.sampled
@pytest.mark.parametrize(("login", "said"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_source_that_cannot_be_reached(
    place: Place, postgres: Database, login: dict[str, Any], said: list[str], command: list[str]
) -> None:
    place.over(postgres, **login).run(*command).is_error(4, *said)


@pytest.mark.parametrize(("login", "said"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_source_test_says_the_same(place: Place, postgres: Database, login: dict[str, Any], said: list[str]) -> None:
    told = place.over(postgres, **login).run("source", "test")
    assert told.code == 4
    told.has("FAIL", *said)
    assert not all(c["ok"] for c in place.run("source", "test", "--output", "json").json["checks"])


class TestSync:
    pytestmark = SERVER

    @pytest.mark.parametrize(("login", "said"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
    def test_cannot_be_reached(self, place: Place, postgres: Database, login: dict[str, Any], said: list[str]) -> None:
        place.over(postgres, **login).run("sync").is_error(4, *said)
        status = place.run("status", "--output", "json").json["connections"][0]
        assert status["last_run"]["status"] == "failed"

    def test_a_table_that_may_not_be_read(self, place: Place, postgres: Database) -> None:
        """Lost after the first sync: the others continue, its rows stay, the grant is named; then it comes back."""
        postgres.execute("CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY)")
        postgres.execute("INSERT INTO a VALUES (1); INSERT INTO b VALUES (1)")
        place.over(postgres, reader=True)
        assert place.run("sync").code == 0
        postgres.execute(f"REVOKE ALL ON b FROM {READER}; INSERT INTO a VALUES (2); INSERT INTO b VALUES (2)")
        told = place.run("sync")
        assert told.code == 6, told.all
        told.has("public.b", 'GRANT SELECT ON "public"."b"')
        assert len(place.rows("select id from shop.a")) == 2
        assert len(place.rows("select id from shop.b")) == 1
        postgres.execute(f"GRANT SELECT ON b TO {READER}")
        assert place.run("sync").code == 0
        assert len(place.rows("select id from shop.b")) == 2

    def test_a_table_that_never_could_be_read(self, place: Place, postgres: Database) -> None:
        """It was never promised to anybody: it is left out, and each sync says which grant would bring it."""
        postgres.execute("CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY)")
        postgres.execute(f"REVOKE ALL ON b FROM {READER}")
        told = place.over(postgres, reader=True).run("sync")
        assert told.code == 0, told.all
        told.has("public.b", 'GRANT SELECT ON "public"."b"')
        assert place.rows("select id from shop.a") == []

    def test_a_column_that_may_not_be_read(self, place: Place, postgres: Database) -> None:
        """The column's values in the lake stay as they are, and it is not taken for dropped."""
        postgres.execute("CREATE TABLE a (id int PRIMARY KEY, free text, secret text); CREATE TABLE b (id int)")
        postgres.execute("INSERT INTO a VALUES (1, 'f', 's'); INSERT INTO b VALUES (1)")
        place.over(postgres, reader=True)
        assert place.run("sync").code == 0
        postgres.execute(f"REVOKE ALL ON a FROM {READER}; GRANT SELECT (id, free) ON a TO {READER}")
        postgres.execute("INSERT INTO b VALUES (2)")
        told = place.run("sync")
        assert told.code == 6, told.all
        told.has("public.a", "secret", "GRANT SELECT")
        assert place.rows("select secret from shop.a") == [{"secret": "s"}]
        assert len(place.rows("select id from shop.b")) == 2

    def test_no_key_and_null_in_a_key(self, place: Place, postgres: Database) -> None:
        """No key: reloaded whole. Upsert without a key: refused. NULL or twins in a key of the settings: held or
        refused, and said; the others continue."""
        postgres.execute(
            "CREATE TABLE plain (a int); CREATE TABLE wished (a int); CREATE TABLE nulls (a int, b text);"
            "CREATE TABLE fine (id int PRIMARY KEY)"
        )
        postgres.execute(
            "INSERT INTO plain VALUES (1), (1), (NULL); INSERT INTO wished VALUES (1);"
            "INSERT INTO nulls VALUES (1, 'one'), (NULL, 'none'); INSERT INTO fine VALUES (1)"
        )
        place.over(postgres).edit(
            "shop: {}", "shop: {tables: {public.wished: {mode: upsert}, public.nulls: {key: [a], mode: upsert}}}"
        )
        told = place.run("sync")
        assert told.code == 6, told.all
        told.has("public.wished has no primary key", "instep table set-key public.wished COLUMN")
        assert len(place.rows("select a from shop.plain")) == 3
        assert place.rows("select a, b from shop.nulls") == [{"a": 1, "b": "one"}]
        assert place.rows("select id from shop.fine") == [{"id": 1}]
        run = place.run("status", "--output", "json").json["connections"][0]
        held = {tuple(t["table"])[-1]: t["invalid_values"] for t in run["tables"]}
        assert held["nulls"] == 1
        assert list((place.folder / "lake").glob("shop/nulls-*/quarantine/*.parquet"))

    def test_an_empty_database(self, place: Place, postgres: Database) -> None:
        told = place.over(postgres).run("sync")
        assert told.code == 0
        assert "no table" in told.all.lower()


NAMES = [
    'with "quotes"', "with.dots", "with spaces", "select", "naïve 表 emoji 🚀", "back`tick", "semi;colon--",
    "%s {x} :p", "x" * 63, "é" * 31, "back\\slash", "'single'", "a/b", "..", "1st", "$dollar",
]  # fmt: skip


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class TestNames:
    pytestmark = SERVER

    def test_names_of_tables_and_columns(self, place: Place, postgres: Database) -> None:
        """Loaded, changed, loaded again by MERGE, verified; twins that differ by case are kept apart."""
        columns = ", ".join(f"{quoted(n)} text DEFAULT 'd'" for n in [*NAMES, "Twin", "twin", "TWIN"])
        tables = [*NAMES, "Twin", "twin", "TWIN"]
        for number, name in enumerate(tables):
            more = f", {columns}" if number in (0, 4) else ", a text"
            postgres.execute(f"CREATE TABLE {quoted(name)} ({quoted('the key')} int PRIMARY KEY{more})")
            postgres.execute(f"INSERT INTO {quoted(name)} ({quoted('the key')}) VALUES (1), ({number + 10})")
        place.over(postgres)
        assert place.run("detect").code in (0, 2)
        told = place.run("changes", "approve", "--kind", "name.collided")
        assert told.code == 0, told.all
        told = place.run("sync")
        assert told.code == 0, told.all
        for number, name in enumerate(tables):
            postgres.execute(f"DELETE FROM {quoted(name)} WHERE {quoted('the key')} = 1")
            postgres.execute(f"INSERT INTO {quoted(name)} ({quoted('the key')}) VALUES ({number + 100})")
        told = place.run("sync")
        assert told.code == 0, told.all
        told = place.run("verify", "--output", "json")
        assert told.code == 0, told.all
        assert {t["destination_rows"] for t in told.json["tables"]} == {2}
        assert len(told.json["tables"]) == len(tables)

    def test_long_names_that_begin_alike(self, place: Place, postgres: Database) -> None:
        schema = "s" * 63
        postgres.execute(f'CREATE SCHEMA "{schema}"')
        for end in "ab":
            postgres.execute(f'CREATE TABLE "{schema}"."{"表" * 20}xx{end}" ("{"c" * 62}{end}" int PRIMARY KEY)')
        told = place.over(postgres).run("sync")
        assert told.code == 0, told.all
        assert place.run("verify").code == 0
