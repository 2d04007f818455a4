"""A project over a SQLite file: detections, switches and what follows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from instep.bootstrap import App, open_project
from instep.control.selection.listing import listed, tree
from instep.control.selection.selections import SwitchedConnection, SwitchStep, place_of, steps, switch, targets
from instep.sync.schema_changes.evolve import evolve, preview
from instep.sync.schema_changes.selected import selected_reads

PROJECT = """\
sources: {db: {type: sqlite, path: shop.db}}
destinations: {lake: {type: iceberg}}
policies: {all: {preset: PRESET}}
connections: {shop: {policy: all, salt: "${env:SALT}"}}
"""


@dataclass
class Desk:
    """A project over a SQLite file; schemas are those of the file (`main`)."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch

    def write(self, preset: str = "allow_all", text: str = PROJECT) -> None:
        self.monkeypatch.setenv("SALT", "pepper")
        self.folder.joinpath("instep.yml").write_text(text.replace("PRESET", preset))

    def sql(self, script: str) -> None:
        import sqlite3
        from contextlib import closing

        with closing(sqlite3.connect(self.folder / "shop.db")) as connection:
            connection.executescript(script)

    def app(self) -> App:
        return open_project(self.folder)

    def detect(self, *, apply: bool = True) -> None:
        with self.app() as app:
            context = app.sync_context("shop")
            found = preview(context, count=True, pauses=True)
            if apply:
                evolve(context, found.plan)

    def place(self, app: App) -> SwitchedConnection:
        return place_of(app.project, app.store, "shop")

    def switch(self, verb: Any, *paths: str, match: tuple[str, ...] = ()) -> list[SwitchStep]:
        with self.app() as app:
            place = self.place(app)
            return switch(place, steps(place, verb, targets(place, paths, match)), "ann")

    def tree(self, *, columns: bool = False) -> Any:
        with self.app() as app:
            place = self.place(app)
            return tree(place, listed(place, columns=columns))

    def reads(self) -> dict[str, set[str]]:
        """Table to the columns that the next sync reads; `#` before a hashed one."""
        with self.app() as app:
            context = app.sync_context("shop")
            found, _ = selected_reads(context, preview(context).detection)
        return {r.table.name: {("#" if c.hashed else "") + c.column.name for c in r.columns if c.source} for r in found}

    def why(self, path: str) -> str:
        with self.app() as app:
            place = self.place(app)
            [one] = [o for o in listed(place, columns=True) if o.path == path]
        return f"{'on' if one.enabled else 'off'}: {one.why}"


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    made = Desk(tmp_path, monkeypatch)
    made.write()
    made.sql("create table table_1 (column_1 text, column_2 text)")
    return made
