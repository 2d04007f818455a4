"""The wheel: it holds every file of the package, and what it installs works outside of the repository."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import sysconfig
import zipfile
from contextlib import closing
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = """\
sources: {db: {type: sqlite, path: shop.db}}
destinations: {lake: {type: iceberg}}
connections: {shop: {}}
"""
USED = "import instep; print(instep.__file__); print(instep.open('.').connection('shop').sync().tables[0].inserted)"


def run(*line: str | Path, folder: Path, **env: str) -> str:
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, env={**os.environ, **env})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", made, ROOT, folder=made)
    [found] = made.glob("*.whl")
    return found


@pytest.mark.slow
def test_every_file_of_the_package_is_in_it(wheel: Path) -> None:
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "src/instep"], capture_output=True, text=True, check=True)
    package = {name.removeprefix("src/") for name in listed.stdout.split()}
    assert package - set(zipfile.ZipFile(wheel).namelist()) == set()


@pytest.mark.drawn(5)
@pytest.mark.slow
def test_what_it_installs_syncs_a_table_outside_of_the_repository(wheel: Path, tmp_path: Path) -> None:
    """What it needs is taken from this environment, where the locked versions of it are."""
    home = tmp_path / "venv"
    run(sys.executable, "-m", "venv", home, folder=tmp_path)
    python = home / "bin" / "python"
    place = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", folder=tmp_path).strip())
    (place / "needed.pth").write_text(sysconfig.get_path("purelib") + "\n")  # without the links that stand there
    run(python, "-m", "pip", "install", "-q", "--no-deps", wheel, folder=tmp_path)

    shop, instep = tmp_path / "shop", home / "bin" / "instep"
    shop.mkdir()
    assert run(instep, "--version", folder=shop).startswith("instep ")
    run(instep, "init", folder=shop)
    assert (shop / "instep.yml").exists()
    (shop / "instep.yml").write_text(PROJECT)
    with closing(sqlite3.connect(shop / "shop.db")) as connection:
        connection.executescript(
            "create table item (id integer primary key, name text); insert into item values (1, 'pen')"
        )
    assert "main.item" in run(instep, "plan", folder=shop)
    where, inserted = run(python, "-c", USED, folder=shop).split()
    assert Path(where).is_relative_to(home)
    assert inserted == "1"
    assert "main.item" in run(instep, "sync", folder=shop)
