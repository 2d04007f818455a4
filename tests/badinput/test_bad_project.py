"""Project files that are wrong: every problem with its line and the next step, exit code 1."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import POSTGRES, Place

GOOD = POSTGRES.format(port=5432, database="shop", user="me", engine="local")

# name, text, what is said
WRONG = [
    ("empty", "", ["instep.yml", "is empty", "instep init"]),
    ("only comments", "# nothing\n", ["is empty"]),
    ("only a version", "version: 1\n", ["has no sources", "instep init"]),
    ("broken brackets", "version: 1\nsources: {pg: [}\n", ["instep.yml:2"]),
    ("broken indent", "version: 1\nsources:\n  pg:\n   type: postgres\n  - x\n", ["instep.yml:5"]),
    ("tab", "version: 1\nsources:\n\tpg: {}\n", ["instep.yml:3", "indent with spaces"]),
    ("a list", "- version: 1\n", ["instep.yml:1"]),
    ("unknown key", GOOD.replace("host:", "hots:"), ["instep.yml:6", "hots", "host"]),
    ("unknown section", GOOD.replace("connections:", "conections:"), ["instep.yml:13", "connections"]),
    ("unknown type", GOOD.replace("type: postgres", "type: postgre"), ["instep.yml:4", "did you mean 'postgres'"]),
    ("twice", GOOD + "project: again\n", ["instep.yml:17", "project"]),
    ("port", GOOD.replace("port: 5432", "port: many"), ["instep.yml:7", "port"]),
    ("secret in the file", GOOD.replace("${env:PG_PASSWORD}", "hunter2"), ["instep.yml:10", "${env:"]),
    ("reference", GOOD.replace("${env:PG_PASSWORD}", "${PG_PASSWORD}"), ["instep.yml:10", "${env:PG_PASSWORD}"]),
    ("source", GOOD.replace("shop: {}", "shop: {source: gp}"), ["instep.yml:14", "gp", "pg"]),
    ("policy", GOOD.replace("shop: {}", "shop: {policy: careful}"), ["instep.yml:14", "careful"]),
    ("mode", GOOD.replace("shop: {}", "shop: {tables: {public.t: {mode: upset}}}"), ["instep.yml:14", "upsert"]),
    ("cursor", GOOD.replace("shop: {}", "shop: {tables: {t: {mode: full_refresh, cursor: x}}}"), ["cursor"]),
    ("no destination", GOOD.replace("  lake: {type: iceberg, warehouse: lake}\n", "  {}\n"), ["destination"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_a_wrong_file(place: Place, text: str, said: list[str]) -> None:
    told = place.write(text, {"PG_PASSWORD": "x"}).run("validate")
    told.is_error(1, *said)
    assert "hunter2" not in told.all


def test_all_problems_are_told_at_once(place: Place) -> None:
    text = GOOD.replace("host:", "hots:").replace("port: 5432", "port: many").replace("user: me", "usr: me")
    told = place.write(text, {"PG_PASSWORD": "x"}).run("validate")
    told.is_error(1, "instep.yml:4", "instep.yml:6", "instep.yml:7", "instep.yml:9")


def test_not_text(place: Place) -> None:
    place.write("")
    (place.folder / "instep.yml").write_bytes(b"\xff\xfe\x00\x01")
    place.run("validate").is_error(1, "UTF-8")


def test_no_project(place: Place, tmp_path: Path) -> None:
    place.folder.mkdir()
    place.run("validate").is_error(1, "no instep.yml", "instep init")
    Place(tmp_path / "nowhere").run("plan").is_error(1, "no instep.yml", "instep init")


@pytest.mark.parametrize("command", [["validate"], ["source", "test"], ["plan"], ["sync"]], ids=" ".join)
def test_a_secret_that_is_not_set(place: Place, monkeypatch: pytest.MonkeyPatch, command: list[str]) -> None:
    monkeypatch.delenv("PG_PASSWORD", raising=False)
    told = place.write(GOOD).run(*command)
    told.is_error(1, "instep.yml:10", "sources.pg.password", "PG_PASSWORD", "not set", ".env")


def test_a_secret_in_a_file_that_is_not_there(place: Place) -> None:
    place.write(GOOD.replace("${env:PG_PASSWORD}", "${file:/nowhere/secret}")).run("validate").is_error(
        1, "instep.yml:10", "/nowhere/secret"
    )


def test_a_variable_that_does_not_fit(place: Place) -> None:
    place.write(GOOD.replace("port: 5432", "port: ${env:PG_PORT}"), {"PG_PORT": "s3cret-text", "PG_PASSWORD": "x"})
    told = place.run("validate")
    told.is_error(1, "instep.yml:7", "sources.pg.port")
    assert "s3cret-text" not in told.all


def test_init_keeps_what_is_there(place: Place) -> None:
    place.write(GOOD)
    place.run("init").is_error(1, "instep.yml")
    assert (place.folder / "instep.yml").read_text() == GOOD
    place.run("init", "--demo").is_error(1, "not the demo")
    assert (place.folder / "instep.yml").read_text() == GOOD
