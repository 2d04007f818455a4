"""The virtual environment of a connector: its own, made once, without ours and without the SDK from elsewhere."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from sdk_world import World, written

from instep.errors import ProjectError, SetupError
from instep.sources.connector import environment
from instep.sources.connector.config import ConnectorConfig
from instep.sources.connector.environment import contents, interpreter, requirements

LOOKS = """
import importlib, sys
def update(configuration, state):
    def has(name):
        try:
            importlib.import_module(name)
        except ImportError:
            return False
        return True
    import fivetran_connector_sdk
    op.upsert("t", {"prefix": sys.prefix, "sdk": fivetran_connector_sdk.__file__, "path": ":".join(sys.path),
                    **{n: has(n) for n in ("requests", "pyarrow", "instep", "pip", "tiny")}})
"""


def interpreter_of(minor: int) -> str | None:
    """The Python of that version, if it is here and works."""
    if (path := shutil.which(f"python3.{minor}")) is None:
        return None
    return path if subprocess.run([path, "-c", "import venv"], capture_output=True).returncode == 0 else None


def tiny_wheel(folder: Path, version: str = "1.0") -> Path:
    """A package with one module, as pip installs it."""
    wheel = folder / f"tiny-{version}-py3-none-any.whl"
    info = f"tiny-{version}.dist-info"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("tiny.py", "VALUE = 1\n")
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: tiny\nVersion: {version}\n")
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{info}/RECORD", "tiny.py,,\n")
    return wheel


def test_a_connector_without_requirements_sees_requests_and_nothing_of_ours(world: World) -> None:
    (row,) = world.sync(LOOKS).records("t")
    assert {n: row[n] for n in ("requests", "pyarrow", "instep", "pip", "tiny")} == {
        "requests": True, "pyarrow": False, "instep": False, "pip": False, "tiny": False
    }  # fmt: skip
    assert row["prefix"].startswith(str(world.environments))
    assert row["sdk"].endswith("sources/connector/sdk/fivetran_connector_sdk/__init__.py")


def test_an_environment_is_made_once(world: World, tmp_path: Path) -> None:
    config = world.config(LOOKS)
    first = interpreter(config)
    marker = first.parent.parent / "marker"
    marker.touch()
    assert interpreter(config) == first
    assert marker.exists()
    (first.parent.parent / "ready").unlink()  # as if it had been left half made
    assert interpreter(config) == first
    assert not marker.exists()


@pytest.mark.slow
def test_requirements_are_installed(world: World) -> None:
    folder = written(world.folder / "source", LOOKS)
    wheel = tiny_wheel(folder)
    folder.joinpath("requirements.txt").write_text("# ours\nfivetran_connector_sdk==3.1.0\n-r more.txt\n")
    folder.joinpath("more.txt").write_text(f"./{wheel.name}\n")
    sync = world.sync(folder)
    assert sync.error is None
    (row,) = sync.records("t")
    assert (row["tiny"], row["requests"], row["pyarrow"]) == (True, True, False)
    assert row["sdk"].endswith("sources/connector/sdk/fivetran_connector_sdk/__init__.py")


BACKEND = """
import os, zipfile
def build_wheel(folder, settings=None, metadata=None):
    name, info = "local-1.0-py3-none-any.whl", "local-1.0.dist-info"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as file:
        file.writestr("local.py", f"SAW = {sorted(os.environ)!r}")
        file.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\\nName: local\\nVersion: 1.0\\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        file.writestr(f"{info}/RECORD", "local.py,,\\n")
    return name
"""


def local_package(folder: Path) -> Path:
    """A package that needs no index to be built; its module tells what its build saw."""
    folder.mkdir(parents=True)
    folder.joinpath("backend.py").write_text(BACKEND)
    folder.joinpath("pyproject.toml").write_text(
        "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n"
    )
    return folder


def alone(world: World, folder: Path) -> ConnectorConfig:
    """With environments that no other test has made."""
    return world.config(folder).model_copy(update={"environments": str(world.folder / "environments")})


@pytest.mark.slow
def test_constraints_hold_and_count_with_their_content(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    index = world.folder / "index"
    index.mkdir(parents=True)
    for version in ("1.0", "1.1"):
        tiny_wheel(index, version)
    monkeypatch.setenv("PIP_FIND_LINKS", index.as_uri())
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    folder = written(world.folder / "a source", LOOKS, requirements__txt="-r more/base.txt\n")
    folder.joinpath("more").mkdir()
    folder.joinpath("more", "base.txt").write_text("tiny\n-c pins.txt\n")
    for version in ("1.0", "1.1"):
        folder.joinpath("more", "pins.txt").write_text(f"tiny=={version}\n")
        python = interpreter(alone(world, folder))
        assert list(python.parent.parent.glob(f"lib/*/site-packages/tiny-{version}.dist-info"))


@pytest.mark.slow
@pytest.mark.parametrize("without_ours", [False, True])
def test_pip_is_shadowed_by_no_module_of_the_connector_and_shows_builds_nothing_of_ours(
    world: World, monkeypatch: pytest.MonkeyPatch, without_ours: bool
) -> None:
    index = world.folder / "index"
    index.joinpath("tiny").mkdir(parents=True)
    index.joinpath("tiny", "index.html").write_text(f"<a href='{tiny_wheel(index / 'tiny').name}'>tiny</a>")
    folder = written(world.folder / "source", LOOKS, requirements__txt="-e ./local[x] ; python_version > '3'\ntiny\n")
    local_package(folder / "local")
    for name in ("types", "enum", "token", "re", "pip", "venv", "ensurepip"):
        folder.joinpath(f"{name}.py").write_text("raise RuntimeError('a module of the connector')\n")
    config = alone(world, folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("OUR_PASSWORD", "hidden")
    if without_ours:
        monkeypatch.setattr(environment, "_has_pip", lambda: False)
        monkeypatch.setenv("PIP_INDEX_URL", index.as_uri())
    else:
        settings = world.folder / "settings" / "pip" / "pip.conf"
        settings.parent.mkdir(parents=True)
        settings.write_text(f"[global]\nindex-url = {index.as_uri()}\n")
        monkeypatch.setenv("XDG_CONFIG_HOME", str(settings.parent.parent))
        monkeypatch.delenv("PIP_INDEX_URL", raising=False)
    python = interpreter(config)
    said = subprocess.run([python, "-I", "-c", "import local, tiny; print(local.SAW)"], capture_output=True, text=True)
    assert "'PATH'" in said.stdout, said.stderr
    assert "OUR_PASSWORD" not in said.stdout


@pytest.mark.slow
def test_what_cannot_be_installed_is_told(world: World) -> None:
    folder = written(world.folder / "source", LOOKS, requirements__txt="./no-such-package\n")
    error = world.sync(folder).error
    assert isinstance(error, SetupError)
    assert "no-such-package" in str(error)


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        (
            "requirements.txt",
            "a==1 # why\n\n# none\nFivetran-Connector-SDK>=2\nfivetran_connector_sdk\nb",
            ("a==1", "b"),
        ),
        ("pyproject.toml", '[project]\ndependencies = ["a>=1", "fivetran_connector_sdk[x]"]', ("a>=1",)),
        ("pyproject.toml", "[tool.other]\n", ()),
        ("other.txt", "a", ()),
        ("requirements.txt", "\ufeff  a==1\n", ("a==1",)),
        (
            "requirements.txt",
            "fivetran-connector-sdk==2.1 \\\n    --hash=sha256:00\na==1 \\\n    --hash=sha256:11\n",
            ("a==1      --hash=sha256:11",),
        ),
        (
            "requirements.txt",
            "-r more/base.txt\na @ https://host/a.zip#sha256=00\n",
            ("b", "-c more/pins.txt", "./c", "a @ https://host/a.zip#sha256=00"),
        ),
        (
            "requirements.txt",
            "-r https://host/r.txt\n--constraint=https://host/c.txt\n--constraint pins.txt\n",
            ("-r https://host/r.txt", "--constraint=https://host/c.txt", "-c pins.txt"),
        ),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_requirements(tmp_path: Path, file: str, text: str, expected: tuple[str, ...], encoding: str) -> None:
    tmp_path.joinpath("more").mkdir()
    tmp_path.joinpath("more", "base.txt").write_text("b\n-c pins.txt\n--requirement=least.txt\n")
    tmp_path.joinpath("more", "least.txt").write_text("./c # beside the connector\n")
    if file == "pyproject.toml" or text.startswith("\ufeff"):
        encoding = "utf-8"
    tmp_path.joinpath(file).write_text(text, encoding=encoding)
    assert requirements(tmp_path) == expected


def test_requirements_that_name_themselves(tmp_path: Path) -> None:
    tmp_path.joinpath("requirements.txt").write_text("-r more.txt\n")
    tmp_path.joinpath("more.txt").write_text("-r requirements.txt\n")
    with pytest.raises(ProjectError, match=r"requirements\.txt names itself"):
        requirements(tmp_path)


def test_what_is_required_beside_the_connector_is_known_by_its_content(tmp_path: Path) -> None:
    wanted = ["requests>=2", "-e ./lib", "tiny-1.0.whl", ".", "./none", "a @ https://host/lib"]
    package = tmp_path / "lib" / "package"
    package.mkdir(parents=True)
    seen = [list(contents(tmp_path, wanted))]
    for file, text in ((package / "a.py", "1"), (package / "a.py", "2"), (tmp_path / "tiny-1.0.whl", "3")):
        file.write_text(text)
        seen.append(list(contents(tmp_path, wanted)))
    tmp_path.joinpath("requests").write_text("no package")
    assert list(contents(tmp_path, wanted)) == seen[-1]
    assert len(set(map(tuple, seen))) == 4


@pytest.mark.parametrize(("file", "counts"), [
    ("package/a.py", True), ("egg-info/a.py", True), ("package/build.py", True), ("lib.egg-info/PKG-INFO", False),
    ("src/lib.egg-info/PKG-INFO", False), ("build/lib/a.py", False), ("package/__pycache__/a.pyc", False),
    ("files/state.json", False), (".venv/lib/a.py", False), ("sub/.instep/a", False),
    ("package/files/a.py", True), ("package/build/a.py", True),
])  # fmt: skip
def test_what_installing_and_trying_writes_is_no_other_content(tmp_path: Path, file: str, counts: bool) -> None:
    """Wherever the connector is."""
    place = tmp_path / "build" / "lib"
    place.mkdir(parents=True)
    place.joinpath("setup.py").write_text("1")
    before = list(contents(place.parent, ["./lib"]))
    place.joinpath(file).parent.mkdir(parents=True, exist_ok=True)
    place.joinpath(file).write_text("2")
    assert (list(contents(place.parent, ["./lib"])) != before) == counts


BESIDE = ["./lib[x]", "./lib ; python_version > '3'", "./lib[x,y]; python_version > '3'", "lib @ file:./lib",
          "lib[x] @ file:lib ; python_version > '3'", "lib @ file://{place}/lib", "-e lib[x]",
          "-c lib/a.py"]  # fmt: skip


@pytest.mark.parametrize("line", BESIDE)
def test_what_is_beside_the_connector_is_known_however_it_is_written(tmp_path: Path, line: str) -> None:
    folder = tmp_path / "a b"
    folder.joinpath("lib").mkdir(parents=True)
    wanted = [line.format(place=str(folder).replace(" ", "%20"))]
    before = list(contents(folder, wanted))
    folder.joinpath("lib", "a.py").write_text("1")
    after = list(contents(folder, wanted))
    assert len(before) == len(after) == 1
    assert before != after


EDITABLE = ["-e ./lib[x]", "--editable=lib ; python_version > '3'", "-e git+https://host/lib", "-e .", "-e none"]


def test_an_environment_leads_to_no_folder_of_another_connector(tmp_path: Path) -> None:
    """What is beside a connector is copied; an environment that links to the connector itself is its own."""
    seen = []
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.joinpath("lib").mkdir(parents=True)
        folder.joinpath("requirements.txt").write_text("\n".join(EDITABLE))
        wanted = requirements(folder)
        assert wanted == ("./lib[x]", "./lib ; python_version > '3'", *EDITABLE[2:])
        seen.append(list(contents(folder, wanted)))
    assert [one == two for one, two in zip(*seen, strict=True)] == [True, True, False, True]


def test_requirements_that_cannot_be_read(tmp_path: Path) -> None:
    tmp_path.joinpath("pyproject.toml").write_text("[project")
    with pytest.raises(ProjectError, match=r"pyproject\.toml"):
        requirements(tmp_path)


OTHERS = [path for minor in (10, 12, 13, 14) if (path := interpreter_of(minor))]


@pytest.mark.slow
@pytest.mark.parametrize("python", OTHERS or [sys.executable], ids=lambda path: Path(path).name)
def test_other_interpreters(world: World, python: str) -> None:
    sync = world.sync(
        """
        import sys, requests
        from datetime import datetime, timezone
        def schema(configuration):
            return [{"table": "t", "primary_key": ["id"], "columns": {"at": "UTC_DATETIME", "day": "NAIVE_DATE",
                     "n": {"type": "DECIMAL", "precision": 9, "scale": 3}}}]
        def update(configuration, state):
            op.upsert("t", {"id": sys.version, "at": "2026-01-01T00:00:00.5+01:00", "day": "2026-01-31", "n": "1.5"})
            op.update("t", {"id": 1, "at": datetime.now(timezone.utc), "doc": {"a": [1]}})
            op.checkpoint({"at": 1})
            try:
                op.upsert("t", {"id": 2, "day": "x"})
            except ValueError as error:
                log.info(str(error))
        """,
        python=python,
    )
    assert sync.error is None
    assert len(sync.rows("t")) == 2
    assert "'x' is not a valid NAIVE_DATE" in sync.said
