"""The steps by which a team moves, as docs/guides/other-products.md shows them: its exports, its commands, in order."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from airbyte_wheels import TEXT, connector_wheel, stream
from command_runs import run
from postgres_server import Database

PAGE = (Path(__file__).parents[2] / "docs" / "guides" / "other-products.md").read_text(encoding="utf-8")


def steps(product: str) -> tuple[dict[str, Any], list[list[str]]]:
    """Return the export and the commands of a product's move."""
    part = PAGE.partition(f"## Move from {product}\n")[2].partition("\n## ")[0].partition("### A team's move")[2]
    [export] = re.findall(r"```json\n(.*?)```", part, re.DOTALL)
    blocks = re.findall(r"```sh\n(.*?)```", part, re.DOTALL)
    return json.loads(export), [shlex.split(line)[1:] for block in blocks for line in block.splitlines()]


def carry_out(
    capsys: pytest.CaptureFixture[str], folder: Path, commands: list[list[str]], variables: dict[str, str]
) -> dict[str, str]:
    """Run the commands in a folder; return what each has written. The variables are set behind the import."""
    said = {}
    for words in commands:
        done = run(capsys, "--project", str(folder), *words)
        assert done.code == 0, (words, done)
        said[" ".join(words)] = done.out
        if words[0] == "import" and (folder / "instep.yml").exists():
            assert all(f"set {name}:" in done.out for name in variables), done.out
            (folder / ".env").write_text("".join(f"{name}={value}\n" for name, value in variables.items()))
    return said


def test_a_team_moves_from_airbyte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    export, commands = steps("Airbyte")
    connector_wheel(tmp_path / "packages", "1.4.0", "airbyte-source-crm", streams=[stream(name=TEXT, city=TEXT)])
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "packages"))
    monkeypatch.setenv("INSTEP_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "airbyte.json").write_text(json.dumps(export))
    said = carry_out(capsys, tmp_path, commands, {"AIRBYTE_SOURCE_CRM_CLIENT_SECRET": "a secret of tests"})
    assert "its next sync reads on" in said["import airbyte airbyte.json"]
    assert "city" in said["plan crm_to_lake"], "what has come since is a change"
    assert "city" in said["changes list"]
    found = run(
        capsys, "--project", str(tmp_path), "query", "select id from crm_to_lake.users order by id", "--output", "json"
    )
    assert [row["id"] for row in found.json["rows"]] == [8, 9, 10]


def test_a_team_moves_from_fivetran(
    tmp_path: Path, postgres: Database, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    export, commands = steps("Fivetran")
    c = postgres.config
    for one in (*export["destinations"], *export["connections"]):
        one["config"] |= {"host": c.host, "port": c.port, "database": c.database, "user": c.user}
    postgres.execute(
        "create table orders (id int primary key, total int, note text); insert into orders values (1, 10, 'x')"
    )
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fivetran.json").write_text(json.dumps(export))
    shown = run(
        capsys, "--project", str(tmp_path), "import", "fivetran", "fivetran.json", "--dry-run", "--output", "json"
    )
    variables = {one["variable"]: c.password or "none" for one in shown.json["secrets"]}
    carry_out(capsys, tmp_path, commands, variables)
    [name] = shown.json["connections"]
    found = run(capsys, "--project", str(tmp_path), "query", "select * from shop_public.orders", "--output", "json")
    assert (name, [(row["id"], row["total"], "note" in row) for row in found.json["rows"]]) == (name, [(1, 10, False)])
