"""Objects that the server manages: versions, pages, and what they are found by."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_world import START, Clock

from instep.errors import Conflict
from instep.store.server.ids import new_id
from instep.store.server.resources import Link
from instep.store.store import Store

SPEC: dict[str, Any] = {"source": "shop", "destination": "lake", "tags": ["eu"], "é": [1, None, {"x": 0.5}]}
LINKS: list[Link] = [("source", "shop"), ("destination", "lake")]


def test_an_object_is_written_read_and_deleted(any_store: Store, clock: Clock) -> None:
    made = any_store.objects.put("connection", "a", SPEC, who="eve", tags=["eu"], links=LINKS)
    assert (made.version, made.created, made.created_by, made.tags, made.spec) == (1, START, "eve", ("eu",), SPEC)
    clock.forward(60)
    changed = any_store.objects.put("connection", "a", {"source": "shop"}, who="bob", expected=1)
    assert (changed.id, changed.version, changed.created_by, changed.updated_by) == (made.id, 2, "eve", "bob")
    assert (changed.updated - changed.created).total_seconds() == 60
    assert any_store.objects.get("connection", "a") == any_store.objects.by_id(made.id) == changed
    assert any_store.objects.users("source", "shop") == [], "the links are those of the last write"
    assert any_store.objects.delete("connection", "a") == changed
    assert any_store.objects.get("connection", "a") is None
    assert any_store.objects.delete("connection", "a") is None
    again = any_store.objects.put("connection", "a", SPEC, who="eve", expected=0)
    assert (again.version, again.id != made.id) == (1, True)


# what is there, the version that is expected -> what the refusal says
REFUSED = [
    (0, 1, "no longer exists"),
    (1, 0, "exists already"),
    (2, 1, "changed meanwhile by bob: it is at version 2, this change was made from version 1"),
    (1, 2, "it is at version 1"),
]


@pytest.mark.parametrize(("writes", "expected", "said"), REFUSED)
def test_a_write_from_another_version_changes_nothing(store: Store, writes: int, expected: int, said: str) -> None:
    for _ in range(writes):
        store.objects.put("source", "s", {"type": "sqlite"}, who="bob")
    before = store.objects.get("source", "s")
    with pytest.raises(Conflict, match=said):
        store.objects.put("source", "s", {}, who="eve", expected=expected)
    with pytest.raises(Conflict, match=said):
        store.objects.delete("source", "s", expected=expected)
    assert store.objects.get("source", "s") == before


def test_kinds_have_names_of_their_own(store: Store) -> None:
    for kind in ("source", "destination"):
        store.objects.put(kind, "shop", {"type": kind}, who="eve")
    store.objects.delete("source", "shop")
    assert store.objects.names("source") == ()
    assert store.objects.names("destination") == ("shop",)


# filter -> names
FOUND: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["Zoo", "a-b", "a_b", "ab", "b"]),
    ({"name": "a"}, ["a-b", "a_b", "ab"]),
    ({"name": "A_"}, ["a_b"]),
    ({"name": "%"}, []),
    ({"after": "a_b"}, ["ab", "b"]),
    ({"limit": 2}, ["Zoo", "a-b"]),
    ({"links": [("tag", "EU")]}, ["b"]),
    ({"links": [("tag", "eu")]}, ["a-b", "a_b"]),
    ({"links": [("tag", "eu"), ("destination", "lake")]}, ["a_b"]),
    ({"links": [("source", "eu")]}, []),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("asked", "names"), FOUND)
def test_pages_and_filters(any_store: Store, asked: dict[str, Any], names: list[str]) -> None:
    put = any_store.objects.put
    put("connection", "a_b", {}, who="", tags=["eu", "x"], links=[("destination", "lake")])
    put("connection", "a-b", {}, who="", tags=["eu"], links=[("destination", "other")])
    put("connection", "b", {}, who="", tags=["EU"])
    for name in ("ab", "Zoo"):
        put("connection", name, {}, who="")
    put("source", "aa", {}, who="", tags=["eu"])
    assert [o.name for o in any_store.objects.page("connection", **asked)] == names
    if not asked.keys() & {"after", "limit"}:
        assert any_store.objects.count("connection", **asked) == len(names)


def test_who_uses_an_object(store: Store) -> None:
    store.objects.put("connection", "b", {}, who="", links=LINKS)
    store.objects.put("connection", "a", {}, who="", links=[*LINKS, ("source", "shop")])
    assert store.objects.users("source", "shop") == [("connection", "a"), ("connection", "b")]
    assert store.objects.users("channel", "shop") == []


NAMES = st.text("abZ_-09", min_size=1, max_size=6).map("n".__add__)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20, deadline=None)
@given(names=st.sets(NAMES, max_size=12), limit=st.integers(1, 5))
def test_pages_name_each_object_once(store: Store, names: set[str], limit: int) -> None:
    with store.transaction():
        for name in store.objects.names("policy"):
            store.objects.delete("policy", name)
        for name in names:
            store.objects.put("policy", name, {}, who="")
    seen, after = [], ""
    while page := store.objects.page("policy", after=after, limit=limit):
        seen += [found.name for found in page]
        after = page[-1].name
    assert seen == sorted(names) == list(store.objects.names("policy"))


def test_ids_are_long_and_differ() -> None:
    made = {new_id() for _ in range(1000)}
    assert len(made) == 1000
    assert all(len(text) == 20 and text[0].isalpha() and text.isalnum() and text.islower() for text in made)
