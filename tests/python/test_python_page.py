"""The code of docs/python.md runs, from its first block to its last, on a project."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "python.md"
PROJECT = """\
version: 1
project: page
engine: inline
sources: {db: {type: sqlite, path: shop.db}}
destinations: {lake: {type: duckdb, path: lake.duckdb}}
policies: {careful: {preset: approve}}
connections: {shop: {policy: careful}}
"""
TABLES = """
create table orders (id integer primary key, total integer, updated_at integer not null);
insert into orders values (1, 10, 1), (2, 20, 2);
"""


def test_the_code_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    (tmp_path / "instep.yml").write_text(PROJECT)
    monkeypatch.chdir(tmp_path)
    with closing(sqlite3.connect("shop.db")) as connection:
        connection.executescript(TABLES)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) > 5
    names: dict[str, Any] = {}
    try:
        for number, block in enumerate(blocks):
            exec(compile(block, f"{PAGE.name}, block {number + 1}", "exec"), names)
            if number == 0:
                with closing(sqlite3.connect("shop.db")) as connection:
                    connection.executescript("alter table orders add column note text")
                names["shop"].sync()
    finally:
        names["project"].close()
    said = capsys.readouterr().out
    assert "done [(('main', 'orders'), 2)]" in said
    assert "note" in said
    assert "main.orders True" in said
