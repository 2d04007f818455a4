"""`history TABLE.COLUMN`, `schema show`, `diff` and `lock`, and `plan --check`."""

from __future__ import annotations

import json

import duckdb
import pytest
from cli_world import CHANGED, PROJECT, REMOVED, Shop

ADDED = "column main.order.note added (string)"


@pytest.fixture
def past(shop: Shop) -> Shop:
    """Version 1.0 has the first tables; 1.1 has `note`, while the removal of `city` waits for a review."""
    shop.applied()
    shop.sql(CHANGED)
    shop.ok("apply", "--yes")
    return shop


def columns(said: dict[str, list[dict[str, object]]], table: str) -> list[str]:
    return [c["name"] for t in said["tables"] if t["name"] == table for c in t["columns"]]  # type: ignore[attr-defined]


class TestHistory:
    def test_of_a_column(self, past: Shop) -> None:
        said = past.json("history", "main.order.note")
        [entry] = said["entries"]
        assert (entry["summary"], entry["status"], entry["label"], entry["rule"]) == (
            ADDED, "applied", "1.1", "preset allow_all",
        )  # fmt: skip
        [run] = [r["id"] for r in past.json("history", "--runs", "-n", "1")["runs"]]
        assert entry["run"] == run
        assert [(c["column"], c["version"]) for c in said["columns"]] == [("note", 2)]
        out = past.ok("history", "order.note").out
        assert out.startswith("main.order.note\n  note  string  since version 2 (1.1), 20")
        assert f"by {entry['who']}; in run {run}; change {entry['change']}; applied (preset allow_all)" in out

    def test_of_a_column_with_an_open_change(self, past: Shop) -> None:
        newest, first = past.json("history", "customer.city")["entries"]
        assert (newest["summary"], newest["status"], newest["version"]) == (REMOVED, "open", 0)
        assert first["summary"] == "table main.customer added (3 columns)"
        past.ok("changes", "reject", "--match", "column.removed")
        assert "answered by " in past.ok("history", "customer.city").out

    def test_of_a_table(self, past: Shop) -> None:
        said = past.json("history", "main.order", "-n", "1")
        assert [e["summary"] for e in said["entries"]] == [ADDED]
        assert {c["column"]: c["label"] for c in said["columns"]} == {
            "id": "1.0", "customer_id": "1.0", "amount": "1.0", "note": "1.1",
        }  # fmt: skip

    def test_a_connection_comes_before_a_table(self, past: Shop) -> None:
        assert "events" in past.json("history", "shop")
        assert past.json("history", "order", "-c", "shop")["table"] == "main.order"
        said = past.run("history", "shop", "-c", "shop")
        assert (said.code, said.out) == (1, "")
        assert "connection shop never had a table or column shop" in said.err

    def test_what_is_not_there_names_what_is(self, past: Shop) -> None:
        said = past.run("history", "order.nte")
        assert said.code == 1
        assert "did you mean order.note?" in said.err

    def test_versions_have_numbers(self, past: Shop) -> None:
        assert [v["label"] for v in past.json("history", "--schema")["versions"]] == ["1.1", "1.0"]
        past.ok("changes", "approve", "--match", "column.removed")
        past.ok("apply", "--yes")
        assert past.json("history", "--schema")["versions"][0]["label"] == "2.0"
        assert past.json("status")["connections"][0]["schema_label"] == "2.0"
        assert "schema version 3 (2.0), " in past.ok("status").out


class TestShow:
    def test_three_sides(self, past: Shop) -> None:
        assert columns(past.json("schema", "show"), "order") == ["id", "customer_id", "amount", "note"]
        assert columns(past.json("schema", "show"), "customer") == ["id", "name", "city"]
        assert columns(past.json("schema", "show", "--side", "source"), "customer") == ["id", "name"]
        there = past.json("schema", "show", "--side", "destination")
        assert columns(there, "customer")[:3] == ["id", "name", "city"]
        assert there["tables"][0]["schema"] == "shop"

    @pytest.mark.sampled
    @pytest.mark.parametrize("side", ["source", "accepted", "destination"])
    @pytest.mark.parametrize("at", ["1", "v1.0"])
    def test_as_it_was(self, past: Shop, side: str, at: str) -> None:
        said = past.json("schema", "show", "shop", "--side", side, "--at", at)
        assert columns(said, "order")[:3] == ["id", "customer_id", "amount"]
        assert "note" not in columns(said, "order")

    def test_at_a_time(self, past: Shop) -> None:
        second = past.json("history", "--schema")["versions"][0]["at"]
        assert past.json("schema", "show", "--at", second)["version"] == 2
        said = past.run("schema", "show", "--at", "2020-01-01")
        assert said.code == 1
        assert "the recorded history starts at 20" in said.err

    def test_formats(self, past: Shop) -> None:
        assert json.loads(past.ok("schema", "show", "--format", "json").out) == past.json("schema", "show")
        sql = past.ok("schema", "show", "--side", "destination", "--format", "sql").out
        with duckdb.connect() as engine:
            engine.execute(sql)
            assert engine.execute('select count(*) from shop."order"').fetchall() == [(0,)]
        markdown = past.ok("schema", "show", "--format", "markdown").out
        assert markdown.startswith("# shop: accepted schema, version 2 (1.1), since 20")
        assert "| note | string |  | yes | note |  |" in markdown
        table = past.ok("schema", "show").out
        assert "main.order  at the destination: order\n" in table
        assert "key 1, not null" in table

    def test_before_anything(self, shop: Shop) -> None:
        for words in (["show"], ["show", "--side", "source"], ["diff", "--at", "1"], ["lock"]):
            said = shop.run("schema", *words)
            assert said.code == 1
            assert "is known yet" in said.err
        assert shop.run("schema", "show", "--side", "nowhere").code == 64
        assert shop.run("schema", "show", "--at", "soon").code == 1


class TestDiff:
    def test_between_two_versions(self, past: Shop) -> None:
        said = past.json("schema", "diff", "--at", "1.0", "--at", "1.1")
        assert (said["summary"], said["breaking"], said["retained_drops"]) == ([ADDED], False, [])
        assert [c["kind"] for c in said["changes"]] == ["column.added"]
        assert (said["from"]["version"], said["to"]["version"]) == (1, 2)

    def test_until_now(self, past: Shop) -> None:
        out = past.ok("schema", "diff", "--at", "1", "--side", "source").out.splitlines()
        assert out[0].startswith("from shop: source schema, version 1, since 20")
        assert out[1].startswith("to   shop: source schema, version 2 (accepted: version 1 (1.0)), since 20")
        assert out[2:] == [REMOVED, ADDED]
        assert past.ok("schema", "diff", "--at", "2").out.splitlines()[2:] == ["no changes"]

    def test_exit_code(self, past: Shop) -> None:
        assert past.run("schema", "diff", "--at", "1", "--exit-code").code == 2
        assert past.run("schema", "diff", "--at", "2", "--exit-code").code == 0
        assert past.run("schema", "diff", "--at", "1", "--at", "2", "--at", "1").code == 64
        assert past.run("schema", "diff").code == 64


class TestLock:
    def test_is_written_once_and_checked(self, past: Shop) -> None:
        file = past.folder / "schemas" / "shop.lock.yml"
        assert past.run("schema", "lock", "--check").code == 2
        assert not file.exists()
        assert past.ok("schema", "lock").out.endswith("schemas/shop.lock.yml is written\n")
        before = file.stat().st_mtime_ns
        assert past.ok("schema", "lock").out == "schemas/shop.lock.yml is up to date\n"
        assert file.stat().st_mtime_ns == before
        assert past.ok("schema", "lock", "--check").out == "the lock file is up to date\n"
        assert "  - {name: note, type: string}\n" in file.read_text()

    def test_shows_what_is_behind(self, past: Shop) -> None:
        past.ok("schema", "lock")
        past.ok("changes", "approve", "--match", "column.removed")
        past.ok("apply", "--yes")
        said = past.run("schema", "lock", "--check")
        assert said.code == 2
        assert [line for line in said.out.splitlines() if line[0] in "+-"][2:] == [
            "-  - {name: city, type: string}", "+  - {name: city, type: string, retained: true}",
        ]  # fmt: skip
        assert past.run("schema", "lock", "--check", "--output", "json").json["version"] == 3

    def test_a_damaged_file_is_named(self, past: Shop) -> None:
        past.ok("schema", "lock")
        past.folder.joinpath("schemas", "shop.lock.yml").write_text("<<<<<<< HEAD\n")
        said = past.run("schema", "lock", "--check")
        assert said.code == 1
        assert "shop.lock.yml is not a lock file" in said.err


class TestPlanCheck:
    def test_everything_is_up_to_date(self, shop: Shop) -> None:
        shop.applied()
        said = shop.run("plan", "--check")
        assert said.code == 2, "there is no lock file yet"
        assert said.err.endswith("`instep schema lock shop` writes the lock file: commit it\n")
        assert shop.run("schema", "lock", "--check").err.endswith("writes the lock file: commit it\n")
        shop.ok("schema", "lock")
        assert shop.ok("plan", "--check").out.endswith("accepted schema and lock file are up to date\n")
        assert shop.json("plan", "--check")["behind"] == []
        assert "behind" not in shop.json("plan")

    def test_a_change_at_the_source(self, shop: Shop) -> None:
        shop.applied()
        shop.ok("schema", "lock")
        shop.sql(CHANGED)
        said = shop.run("plan", "--check")
        assert said.code == 2
        assert f"not accepted yet: {REMOVED}\nnot accepted yet: {ADDED}\n" in said.out
        assert "+  - {name: note, type: string}\n" in said.out
        assert "a sync, or `instep apply`, accepts the changes" in said.err
        behind = shop.run("plan", "--check", "--output", "json").json["behind"]
        assert behind[:2] == [f"not accepted yet: {REMOVED}", f"not accepted yet: {ADDED}"]
        shop.ok("apply", "--yes")
        shop.ok("schema", "lock")
        shop.ok("changes", "reject", "--match", "column.removed")
        assert shop.ok("plan", "--check").code == 0, "what was rejected is decided"

    def test_a_store_of_its_own_in_ci(self, shop: Shop) -> None:
        """Nothing is accepted there: the lock file is compared with what the source leads to."""
        shop.write(text=PROJECT.replace("decide: review", "decide: apply"))
        shop.applied()
        shop.sql("alter table customer drop column city")
        for _ in range(2):
            shop.ok("detect")
        shop.ok("apply", "--yes")
        shop.ok("schema", "lock")
        assert "retained: true" in shop.folder.joinpath("schemas", "shop.lock.yml").read_text()
        for path in shop.folder.joinpath(".instep").glob("state.db*"):
            path.unlink()
        shop.folder.joinpath("lake").rename(shop.folder / "elsewhere")
        said = shop.run("plan", "--check")
        assert (said.code, "not accepted yet" in said.out) == (0, False), said
        shop.sql('alter table "order" add column note text')
        assert shop.run("plan", "--check").code == 2
