"""`init`, `validate`, `doctor`, `version`."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_world import Shop

from instep import __version__


def test_init_writes_a_project_that_validates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new = Shop(tmp_path / "new", capsys)
    said = new.ok("init")
    assert said.out == f"wrote {tmp_path}/new/instep.yml\n"
    assert "instep validate" in said.err
    assert {p.name for p in new.folder.iterdir()} == {"instep.yml", ".gitignore", ".instep"}
    without = new.run("validate")
    assert (without.code, "PG_PASSWORD is not set" in without.err) == (1, True)
    new.folder.joinpath(".env").write_text("PG_PASSWORD=x\n")
    assert new.json("validate") == {"format_version": 1, "project": "new", "connections": ["shop_to_lake"]}


def test_init_leaves_a_project_alone(shop: Shop) -> None:
    before = shop.folder.joinpath("instep.yml").read_text()
    said = shop.run("init")
    assert (said.code, "exists already" in said.err) == (1, True)
    assert shop.folder.joinpath("instep.yml").read_text() == before


def test_the_demo_never_replaces_another_project(shop: Shop) -> None:
    said = shop.run("init", "--demo")
    assert (said.code, "not the demo" in said.err) == (1, True)
    assert shop.folder.joinpath("shop.db").exists()


WRONG = [
    ("an unknown key", "{type: sqlite, path: x, pth: y}", "unknown key, did you mean 'path'?"),
    ("an unknown type", "{type: sqlight, path: x}", "did you mean 'sqlite'?"),
    ("a secret in the file", "{type: postgres, database: a, user: b, password: hunter2}", "a secret must not be"),
]


@pytest.mark.parametrize(("source", "said"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
def test_validate_says_line_and_cause(shop: Shop, source: str, said: str) -> None:
    shop.write(source)
    answer = shop.run("validate")
    assert answer.code == 1
    assert "instep.yml:4: " in answer.err
    assert said in answer.err
    assert "hunter2" not in answer.err


def test_every_problem_is_said_at_once(shop: Shop) -> None:
    shop.write("{type: sqlite, pth: x}", preset="alow_all")
    err = shop.run("validate").err
    assert "sources.db.pth" in err
    assert "did you mean 'allow_all'?" in err


def test_a_folder_without_a_project_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = Shop(tmp_path, capsys).run("plan")
    assert (said.code, "instep init" in said.err) == (1, True)
    assert list(tmp_path.iterdir()) == []


def test_the_project_is_found_from_a_folder_inside_it(shop: Shop) -> None:
    inside = shop.folder / "a" / "b"
    inside.mkdir(parents=True)
    assert Shop(inside, shop.capsys).json("validate")["project"] == "shop"


def test_doctor_checks_machine_and_project(shop: Shop) -> None:
    checks = {c["name"]: c["ok"] for c in shop.json("doctor")["checks"]}
    assert {"Python", "Java", "jars", "disk", "project", "store", "workers", "queue", "clock"} <= set(checks)
    assert all(checks.values())
    more = {c["name"]: c["state"] for c in shop.json("doctor", "--connect")["checks"]}
    assert {name.partition(" ")[0] for name in set(more) - set(checks)} == {"source", "destination"}
    assert shop.ok("doctor").out.startswith("ok   Python: 3.")


def test_doctor_fails_where_something_is_missing(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(shop.folder))
    shop.json("doctor")  # the local engine needs no Java
    monkeypatch.setenv("INSTEP_ENGINE", "spark")
    said = shop.run("doctor")
    assert said.code == 1
    assert "bad  Java: JAVA_HOME" in said.out
    assert "install Java 17" in said.out


def test_version(shop: Shop) -> None:
    assert shop.ok("version").out == f"instep {__version__}\n"
    assert shop.json("version")["version"] == __version__


def test_every_variable_that_is_missing_is_named_at_once(shop: Shop) -> None:
    shop.write("{type: postgres, database: a, user: b, password: '${env:NO_SOURCE_PW}'}")
    text = shop.folder.joinpath("instep.yml").read_text()
    second = "  other: {type: postgres, database: a, user: b, password: '${env:NO_OTHER_PW}'}\n"
    channel = "channels:\n  hook: {type: webhook, url: '${env:NO_HOOK_URL}', secret: '${env:NO_HOOK_URL}'}\n"
    text = text.replace("destinations:\n", f"{second}destinations:\n", 1) + channel
    shop.folder.joinpath("instep.yml").write_text(text)
    err = shop.run("validate").err
    assert "variable NO_SOURCE_PW is not set" in err
    assert "variable NO_OTHER_PW is not set" in err
    assert "variable NO_HOOK_URL is not set" in err
    assert err.count("write it into") == 3
