"""Tables that settings name and a source never had, what a connection is called in other words, shared tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from control_world import found, recorded

from instep.control.compat import Identity, identity
from instep.control.selection.unknown_tables import check_named
from instep.control.shards import as_data, shared_tables
from instep.errors import ProjectError
from instep.project.load import load
from instep.project.project import Project
from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import parse
from instep.server.fivetran_api.connection import status
from instep.store.catalogs.discoveries import CachedDiscovery
from instep.store.store import Store
from instep.store.work.runs import Outcomes
from instep.sync.schema_changes.owned_tables import OF

FILE = """\
sources: {db: {type: sqlite, path: shop.db}}
destinations: {lake: {type: duckdb, path: lake.duckdb, namespace: raw}}
connections:
  shop: {source: db, OPTIONS}
"""
SHARDS = """\
sources: {db: {type: sqlite, path: shop.db}}
destinations: {lake: {type: duckdb, path: lake.duckdb}}
connections:
  eu: {namespace: shop, shard: eu}
  us: {namespace: shop, shard: us}
  alone: {namespace: other}
"""


def made(folder: Path, options: str = "tags: []", text: str = FILE) -> Project:
    folder.joinpath("instep.yml").write_text(text.replace("OPTIONS", options))
    return load(folder)


def tables(*paths: str, **columns: str) -> Catalog:
    known = tuple(Column(name, parse(kind)) for name, kind in (columns or {"id": "int64"}).items())
    return Catalog.of(Table(*path.split("."), known) for path in paths)


# tables that are excluded by name, what is said of them ("": nothing)
NAMED = [
    ("main.item", ""), ("item", ""), ("main.secret", ""), ("secret", ""), ("main.gone", ""), ("gone", ""),
    ("main.itme", "did you mean 'main.item'"), ("itme", "did you mean 'item'"), ("zzzzz", r"no table 'zzzzz'\n"),
    ("other.item", "no table 'other.item'"), ("main.", "no table 'main.'"), ("ITEM", "no table 'ITEM'"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "said"), NAMED)
def test_tables_that_a_source_never_had(store: Store, tmp_path: Path, name: str, said: str) -> None:
    project = made(tmp_path, f'app_options: {{excluded_external_table_names: ["{name}"]}}')
    check_named(project, store, "shop")  # before the first look nothing is known
    store.discoveries.save("shop", CachedDiscovery(tables("main.item", "main.gone"), "f"))
    seen = CachedDiscovery(tables("main.item"), "g", denied={("main", "secret"): "no grant"})
    store.discoveries.save("shop", seen)
    if not said:
        check_named(project, store, "shop")
        return
    with pytest.raises(ProjectError, match=said) as error:
        check_named(project, store, "shop")
    assert "instep.yml" in error.value.message
    assert error.value.hint


def test_what_is_accepted_is_known(store: Store, tmp_path: Path) -> None:
    project = made(tmp_path, "app_options: {excluded_external_table_names: [main.old]}")
    store.discoveries.save("shop", CachedDiscovery(tables("main.item"), "f"))
    with pytest.raises(ProjectError):
        check_named(project, store, "shop")
    store.accepted.add("shop", tables("main.old"), who="ann", why="w")
    check_named(project, store, "shop")


# a document that only the compatible API knows, what it is called
FOREIGN: list[tuple[dict[str, Any], Identity]] = [
    ({"service": "fax", "group_id": "lake", "config": {"schema": "s"}}, Identity("fax", "s", "lake")),
    ({"service": "fax", "config": {"schema": ""}}, Identity("fax", "far", "")),
    ({"service": "fax", "config": ["schema"]}, Identity("fax", "far", "")), ({}, Identity("", "far", "")),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "called"), FOREIGN)
def test_what_nothing_here_reads_has_a_name_too(
    store: Store, tmp_path: Path, spec: dict[str, Any], called: Identity
) -> None:
    project = made(tmp_path)
    assert identity(project, store, "far") == Identity(), "it is not there"
    store.objects.put("foreign", "far", spec, who="ann")
    assert identity(project, store, "far") == called
    assert identity(project, store, "shop") == Identity("sqlite", "raw", "lake")


# whether it is set up, whether that works, the word for it
SETUPS = [(True, False, "connected"), (True, True, "broken"), (False, True, "incomplete"), (False, False, "incomplete")]


@pytest.mark.parametrize(("complete", "broken", "word"), SETUPS)
def test_states_of_a_set_up(complete: bool, broken: bool, word: str) -> None:
    from datetime import UTC, datetime

    now = datetime(2026, 3, 1, tzinfo=UTC)
    found = status(Outcomes(), [], now, paused=False, late_after=60, complete=complete, broken=broken)
    assert (found.setup, found.sync) == (word, "scheduled")


@pytest.fixture
def shards(store: Store, tmp_path: Path) -> Project:
    """Both shards have `t`, us alone has `extra`; the connection alone has a `t` that is nobody else's."""
    project = made(tmp_path, text=SHARDS)
    store.accepted.add("eu", tables("main.t", id="int64", v="int32"), who="ann", why="w")
    both = (*tables("main.t", id="int64", v="int64", more="string").tables, *tables("main.extra").tables)
    store.accepted.add("us", Catalog.of(both), who="ann", why="w")
    store.accepted.add("alone", tables("main.t"), who="ann", why="w")
    for name in ("eu", "us", "alone"):
        place = project.namespace_of(name)
        store.connections.put(name, destination="lake", namespace=place)
        at = f"{place}{OF}{name}" if place == "shop" else place  # shards own their rows of a table
        store.names.set_owned(name, "lake", {t.ref: (at, t.name) for t in store.accepted.catalog(name).tables})
    return project


def test_who_lacks_what(store: Store, shards: Project) -> None:
    extra, shared = shared_tables(shards, store)
    assert (extra.name, shared.name, shared.destination) == ("shop.extra", "shop.t", "lake")
    assert ([s.name for s in extra.shards], extra.missing) == (["us"], ("eu",))
    assert ([s.name for s in shared.shards], shared.missing) == (["eu", "us"], ())
    assert {c.name: (str(c.type), c.lacking) for c in shared.columns} == {
        "id": ("int64", ()), "v": ("int64", ()), "more": ("string", ("eu",)),
    }  # fmt: skip
    assert [c.name for c in shared.differing] == ["v", "more"], "a narrower type differs, too"
    assert extra.differing == ()
    data = as_data(shared)
    assert data["columns"][1] == {  # type: ignore[index]
        "column": "v", "type": "int64", "shards": {"eu": "int32", "us": "int64"}, "retained": [], "lacking": [],
    }  # fmt: skip


def test_how_each_shard_fares(store: Store, shards: Project) -> None:
    run = store.runs.claim("eu", "sync")
    store.runs.finish(run, "failed", "gone")
    recorded(store, found(), found(action="apply", column="b"), connection="us")
    *_, shared = shared_tables(shards, store)
    eu, us = shared.shards
    assert (eu.version, eu.status, eu.started, eu.waiting) == (1, "failed", run.started, 0)
    assert (us.version, us.status, us.started, us.waiting) == (1, "", None, 1), "what policy lets in does not wait"


def test_before_anything_is_loaded_nothing_is_shared(store: Store, tmp_path: Path) -> None:
    assert shared_tables(made(tmp_path, text=SHARDS), store) == []
    assert shared_tables(made(tmp_path), store) == []
