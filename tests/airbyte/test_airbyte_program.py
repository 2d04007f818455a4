"""The program of a connector: packages in environments of their own, commands, manifests, and what is refused."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airbyte_wheels import connector_wheel, wheel
from instep.errors import InstepError, ProjectError, SetupError
from instep.project.allowed.keys import refusals
from instep.project.sections.file_settings import Shelves
from instep.project.sections.sources import AirbyteSourceSection
from instep.sources.airbyte.config import AirbyteConfig
from instep.sources.airbyte.program import Pin, metadata_text, newest, program
from instep.sources.connector.environment import READY
from instep.sources.connector.segment import LogLine

MANIFEST = "version: 6.0.0\ntype: DeclarativeSource\ncheck: {type: CheckStream, stream_names: [a]}\nstreams: []\n"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("packages")
    connector_wheel(folder, "1.0.0")
    for name, version in (("fivetran-connector-sdk", "3.1.0"), ("fivetran-connector-sdk-core", "1.0")):
        wheel(folder, name, version, {f"{name.replace('-', '_')}.py": "", "installed.txt": ""})
    for name, needs in (("sdk", "fivetran-connector-sdk>=3"), ("core", "Fivetran_Connector.SDK-core")):
        wheel(folder, f"airbyte-source-{name}", "1.0", {f"source_{name}.py": "def run(): ..."}, requires=[needs])
    wheel(folder, "airbyte-source-bare", "1.0", {"bare.py": ""})
    metadata = {"source_told.py": "", "source_told/metadata.yaml": "data: {releases: {breakingChanges: {}}}"}
    wheel(folder, "airbyte-source-told", "1.0", metadata, points="[console_scripts]\nsource-told = source_told:run\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_NO_INDEX", "1")
        patch.setenv("PIP_FIND_LINKS", str(folder))
        patch.setenv("INSTEP_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield folder


def config(**given: Any) -> AirbyteConfig:
    return AirbyteConfig.resolved(name="shop", **given)


def no_log(line: LogLine) -> None:
    pass


def of_package(package: str) -> AirbyteConfig:
    return config(package=package)


def test_a_package_is_installed_once_and_started_by_its_own_python(packages: Path) -> None:
    lines: list[LogLine] = []
    found = program(of_package("airbyte-source-shop==1.0.0"), lines.append)
    again = program(of_package("Airbyte_Source.shop==1.0.0"), lines.append)
    assert (again.argv, len(lines)) == (found.argv, 1), "names are compared as an index compares them"
    python, script = found.argv
    assert Path(script).name == "source-shop"
    assert subprocess.run(found.command("spec"), capture_output=True, text=True, check=True).stdout.startswith(
        '{"type"'
    )
    seen = subprocess.run([python, "-c", "import instep"], capture_output=True, check=False, env={})
    assert seen.returncode, "it sees nothing of this program's packages"


def test_of_several_at_once_one_installs_and_an_interrupted_installation_is_done_again(
    packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INSTEP_CACHE", str(tmp_path))
    lines: list[LogLine] = []
    threads = [
        threading.Thread(target=program, args=(of_package("airbyte-source-shop==1.0.0"), lines.append)) for _ in "123"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(lines) == 1
    [ready] = tmp_path.glob(f"airbyte/*/{READY}")
    ready.unlink()
    (ready.parent / "bin" / "source-shop").write_text("half of it")
    found = program(of_package("airbyte-source-shop==1.0.0"), lines.append)
    assert (len(lines), Path(found.argv[1]).read_text() != "half of it") == (2, True)


@pytest.mark.parametrize(
    ("package", "error", "said"),
    [
        ("airbyte-source-shop==9.9", SetupError, r"package airbyte-source-shop==9\.9: its virtual environment"),
        ("airbyte-source-nobody==1.0", SetupError, "airbyte-source-nobody"),
        ("airbyte-source-bare==1.0", ProjectError, "has no program source-bare; it has no program"),
        ("airbyte-source-sdk==1.0", ProjectError, "never installs because of its licence"),
        ("airbyte-source-core==1.0", ProjectError, "never installs because of its licence"),
        ("fivetran-connector-sdk==3.1.0", ProjectError, "its licence does not allow"),
        ("Fivetran_Connector.SDK-core==1.0", ProjectError, "its licence does not allow"),
    ],
)
def test_what_cannot_be_had_is_said_by_name(
    packages: Path, package: str, error: type[InstepError], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INSTEP_CACHE", str(tmp_path))
    with pytest.raises(error, match=said) as raised:
        program(of_package(package), no_log)
    assert raised.value.hint
    assert not list(tmp_path.rglob("installed.txt")), "what is refused is never unpacked"


@pytest.mark.parametrize(
    "text", ["airbyte-source-x", "airbyte-source-x>=1", "a==1; b", "x==", "-e .==1", "x @ file:///a==1"]
)
def test_a_package_without_one_version_is_no_pin(text: str) -> None:
    with pytest.raises(ProjectError, match="names no package in one version"):
        Pin.parse(text)


def test_the_newest_version_and_the_metadata_of_a_package_are_found(packages: Path) -> None:
    pin = Pin.parse("airbyte-source-told==0.5")
    assert str(newest(of_package(str(pin)), pin)) == "airbyte-source-told==1.0"
    assert "breakingChanges" in metadata_text(of_package(str(pin)), pin.at("1.0"), no_log)
    assert (
        metadata_text(of_package("airbyte-source-shop==1.0.0"), Pin.parse("airbyte-source-shop==1.0.0"), no_log) == ""
    )
    with pytest.raises(SetupError, match="airbyte-source-nobody"):
        newest(of_package(str(pin)), Pin.parse("airbyte-source-nobody==1"))


def test_a_command_is_found_below_the_project_and_changes_with_its_file(tmp_path: Path) -> None:
    (tmp_path / "player.py").write_text("print(1)")
    given = config(command=[sys.executable, "player.py"], folder=str(tmp_path))
    found = program(given, no_log)
    assert found.argv == (sys.executable, str(tmp_path / "player.py"))
    (tmp_path / "player.py").write_text("print(2)")
    assert program(given, no_log).version != found.version
    for missing in ("./gone", "no-such-program-here"):
        with pytest.raises(ProjectError, match="was not found, or cannot be run"):
            program(config(command=[missing], folder=str(tmp_path)), no_log)


ALIASES = "".join(f"a{n}: &a{n} {{x: [{', '.join([f'*a{n - 1}'] * 10) if n else 1}]}}\n" for n in range(12))
"""Parts that stand in a million million places."""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot be read"),
        ("a: [", "is not YAML"),
        ("- 1", "not a low-code manifest"),
        ("version: 1", "not a low-code manifest"),
        (f"{MANIFEST}x: {{type: CustomRetriever, class_name: source_declarative_manifest.components.Mine}}", "Mine"),
        (f"{MANIFEST}x: [{{y: {{class_name: os.system}}}}]", r"os\.system"),
        (f"{MANIFEST}x: {{type: CustomAuthenticator}}", "CustomAuthenticator"),
        (f"{MANIFEST}x: {{class_name: {{$ref: '#/definitions/c'}}}}\ndefinitions: {{c: os.system}}", "Python code"),
        (f"{MANIFEST}x: {{type: {{$ref: '#/definitions/t'}}}}\ndefinitions: {{t: CustomRetriever}}", "Python code"),
        (f"{MANIFEST}x: {'[' * 150}{{class_name: os.system}}{']' * 150}", "too deeply"),
        (f"{MANIFEST}{ALIASES}x: {{class_name: os.system}}", "aliases repeat one another"),
    ],
)
def test_a_manifest_that_is_none_or_brings_code_is_refused(tmp_path: Path, text: str | None, said: str) -> None:
    file = tmp_path / "manifest.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ProjectError, match=said) as raised:
        program(config(manifest=str(file)), no_log)
    assert "instep.yml" in raised.value.hint


def test_a_manifest_beside_python_code_is_refused_unless_it_is_allowed(tmp_path: Path) -> None:
    (tmp_path / "manifest.yaml").write_text(MANIFEST)
    (tmp_path / "components.py").write_text("")
    with pytest.raises(ProjectError, match=r"components\.py.*not allowed"):
        program(config(manifest=str(tmp_path / "manifest.yaml")), no_log)


@pytest.mark.parametrize(
    "given",
    [
        {"package": "airbyte-source-faker==7.2.1"},
        {"command": ["cat"]},
        {"manifest": "connectors/a.yaml"},
        {"package": "airbyte-source-faker==7.2.1", "python": "/usr/bin/python3"},
        {"package": "airbyte-source-faker==7.2.1", "environment": {"A": "b"}},
    ],
)
def test_no_api_sets_what_runs(tmp_path: Path, given: dict[str, Any]) -> None:
    section = AirbyteSourceSection(type="airbyte", **given)
    refused = {place[0] for place, _ in refusals(section, Shelves.of(tmp_path, ("data",), "sqlite:///x.db"))}
    assert set(given) <= refused


def test_an_environment_is_private_to_its_python(
    packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "python3"
    own.symlink_to(os.path.realpath(getattr(sys, "_base_executable", sys.executable)))
    found = program(config(package="airbyte-source-shop==1.0.0", python=str(own)), no_log)
    assert found.argv[0] == program(of_package("airbyte-source-shop==1.0.0"), no_log).argv[0], "a link is the same"
    with pytest.raises(SetupError, match="virtual environment cannot be made"):
        program(config(package="airbyte-source-shop==1.0.0", python=str(tmp_path / "none")), no_log)
