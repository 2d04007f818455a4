"""The Dockerfile, the compose file and the units: what a linter would ask, and that their commands exist."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from instep.cli.main import app
from programs import program

FOLDER = Path(__file__).parents[2] / "packaging"
SKIPPED = ("#",)


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"\\\n", " ", (FOLDER / "Dockerfile").read_text())
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(SKIPPED)]
    return [(line.split()[0], line.split(maxsplit=1)[1].strip()) for line in lines]


def of(name: str) -> list[str]:
    return [rest for word, rest in instructions() if word == name]


def parsed(words: list[str]) -> None:
    """Typer takes these words of a command line: nothing is run."""
    command: Any = get_command(app)
    while words and not words[0].startswith("-"):
        command, words = command.commands[words[0]], words[1:]
    command.make_context("instep", list(words))


def test_the_image_has_stages_pinned_bases_and_no_root() -> None:
    froms = of("FROM")
    assert len(froms) == 2
    assert " AS " in froms[0]
    assert all(re.search(r":[\d.]+-slim-\w+", base) for base in froms)
    assert of("USER")[-1] == "10001"
    names = [word for word, _ in instructions()]
    assert names.index("USER") > max(i for i, word in enumerate(names) if word == "RUN"), (
        "nothing is done after as root"
    )


@pytest.mark.slow
def test_a_linter_finds_nothing() -> None:
    """hadolint, with the shell parts of RUN; nothing is ignored but what the file itself says, with its reason."""
    done = subprocess.run(
        [program("hadolint"), "--no-color", "--failure-threshold", "style", str(FOLDER / "Dockerfile")],
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr
    bad = subprocess.run([program("hadolint"), "-"], input="FROM debian\n", capture_output=True, text=True, check=False)
    assert (bad.returncode, "DL3006" in bad.stdout) == (1, True), "it would say so"
    assert re.findall("hadolint ignore=.*", (FOLDER / "Dockerfile").read_text()) == ["hadolint ignore=DL3008"]


def test_the_image_keeps_nothing_that_it_does_not_need() -> None:
    for run in of("RUN"):
        assert ("apt-get install" in run) == ("rm -rf /var/lib/apt/lists" in run) == ("--no-install-recommends" in run)
        assert all("--no-cache-dir" in part for part in run.split("&&") if "pip install" in part)
        assert "sudo" not in run
    assert not of("ADD")


def test_the_image_says_whether_it_lives_and_starts_by_exec() -> None:
    [check] = of("HEALTHCHECK")
    command = json.loads(check[check.index("CMD") + 3 :])
    assert "/healthz" in command[-1]
    compile(command[-1], "healthcheck", "exec")
    assert json.loads(of("ENTRYPOINT")[0]) == ["instep"]
    parsed(json.loads(of("CMD")[0]))


def test_what_is_copied_exists() -> None:
    for copied in (text for text in of("COPY") if not text.startswith("--from")):
        for name in copied.split()[:-1]:
            assert (FOLDER.parent / name).exists(), name


COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yml").read_text())


def test_the_services_have_a_store_and_no_rights() -> None:
    assert set(COMPOSE["services"]) == {"store", "server", "worker"}
    for name in ("server", "worker"):
        service = COMPOSE["services"][name]
        assert service["cap_drop"] == ["ALL"]
        assert service["read_only"]
        assert service["depends_on"]["store"]["condition"] == "service_healthy"
        assert service["environment"]["INSTEP_STORE"].startswith("postgresql+psycopg://")
        parsed(list(service["command"]))
    for port in COMPOSE["services"]["store"]["ports"]:
        assert port.startswith("127.0.0.1:")


def test_no_password_stands_in_a_file() -> None:
    for file in FOLDER.iterdir():
        assert not re.search(r"(?i)password[=:]\s*[\w]+$", file.read_text(), re.MULTILINE), file.name


@pytest.mark.parametrize("name", ["instep-server.service", "instep-worker.service"])
def test_units_start_a_command_that_exists_without_rights(name: str) -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(FOLDER / name)
    service = unit["Service"]
    assert service["User"] == "instep"
    assert service["NoNewPrivileges"] == "yes"
    assert service["ProtectSystem"] == "strict"
    words = shlex.split(service["ExecStart"])
    assert words[1:3] == ["--project", service["WorkingDirectory"]]
    parsed(words[3:])


def test_the_variables_are_ones_that_are_read() -> None:
    """`INSTEP_STORE` is the project file's own: the compose file says to refer to it there."""
    variable = re.compile(r"INSTEP_[A-Z_]+")
    told = {name for file in FOLDER.iterdir() for name in variable.findall(file.read_text())}
    source = FOLDER.parent / "src"
    read = {name for file in source.rglob("*.py") for name in variable.findall(file.read_text())}
    assert told - read == {"INSTEP_STORE"}
