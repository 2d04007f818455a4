# ruff: noqa: S608 - the names stand in this file
"""Whatever is done to a table between syncs, its versions are those that a model in Python keeps."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from version_checks import in_order, versions

from contract.destinations import DESTINATIONS
from instep.project.sections.tables import TableSettings
from sync_world import MakeWorld, World

pytestmark = pytest.mark.slow

SETTINGS = {"whole": TableSettings(history=True), "cursor": TableSettings(history=True, cursor="u")}
EDITS = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "delete", "back", "touch"]), st.integers(1, 4), st.sampled_from(["a", "b", None])
    ),
    max_size=4,
)


class Model:
    """The source's rows, and the versions that syncs have seen of them."""

    def __init__(self) -> None:
        self.rows: dict[int, tuple[str | None, int]] = {}
        self.left: dict[int, tuple[str | None, int]] = {}
        self.versions: list[list[Any]] = []
        self.clock = self.moment = 0

    def edit(self, what: str, key: int, value: str | None) -> str:
        self.clock += 1
        if what == "put":
            self.rows[key] = (value, self.clock)
            return self.put(key)
        if what == "delete":
            if row := self.rows.pop(key, None):
                self.left[key] = row
            return f"DELETE FROM {{}} WHERE id = {key}"
        if what == "back" and key in self.left and key not in self.rows:
            self.rows[key] = self.left[key]
            return self.put(key)
        return f"UPDATE {{}} SET id = id WHERE id = {key}"

    def put(self, key: int) -> str:
        value, clock = self.rows[key]
        shown = "NULL" if value is None else f"'{value}'"
        return f"INSERT OR REPLACE INTO {{}} VALUES ({key}, {shown}, {clock})"

    def sync(self) -> None:
        self.moment += 1
        current = {v[0]: v for v in self.versions if v[4] is None}
        for key in current.keys() | self.rows.keys():
            if key in current and current[key][1:3] != list(self.rows.get(key, ())):
                current[key][4] = self.moment
            if key in self.rows and (key not in current or current[key][4] is not None):
                self.versions.append([key, *self.rows[key], self.moment, None])

    @property
    def seen(self) -> list[tuple[Any, ...]]:
        """With the moments at which something changed numbered anew."""
        moments = sorted({m for v in self.versions for m in v[3:] if m is not None})
        number = {None: None} | {m: i for i, m in enumerate(moments, 1)}
        return in_order((*v[:3], number[v[3]], number[v[4]]) for v in self.versions)


@pytest.mark.parametrize("kind", ["duckdb", "delta, as if it were large"])
def test_law(make_world: MakeWorld, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world("sqlite")
    destination: Any = DESTINATIONS[kind.partition(",")[0]](world.folder)
    if "large" in kind:
        monkeypatch.setattr(type(destination.write), "is_large", lambda self, ref, files=(): True)
    world.destination = destination
    tables = iter(range(1000))

    @settings(max_examples=6)
    @given(st.lists(EDITS, min_size=2, max_size=4))
    def law(syncs: list[list[tuple[str, int, str | None]]]) -> None:
        names = {f"t{next(tables)}": how for how in SETTINGS}
        check(world, names, syncs)

    law()


def check(world: World, names: dict[str, str], syncs: list[list[tuple[str, int, str | None]]]) -> None:
    """The same edits in a table of each way to read."""
    world.settings |= {name: SETTINGS[how] for name, how in names.items()}
    model = Model()
    for name in names:
        world.run(f"CREATE TABLE {name} (id INTEGER PRIMARY KEY, a TEXT, u INTEGER)")
    for edits in syncs:
        statements = [model.edit(*edit) for edit in edits]
        for name in names:
            world.run(*(s.format(name) for s in statements))
        model.sync()
        assert not [t for t in world.sync(tables=frozenset(f"main.{n}" for n in names)).tables if t.status != "done"]
    for name in names:
        assert versions(world, name=name) == model.seen, name
