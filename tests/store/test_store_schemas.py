"""Versions of schemas, and the numbers of accepted ones."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from store_world import START, Clock, catalog

from instep.errors import InstepError
from instep.schema.catalog.catalog import Catalog
from instep.store.catalogs.discoveries import CachedDiscovery
from instep.store.store import Store


def test_versions_are_added_when_the_schema_differs(any_store: Store, clock: Clock) -> None:
    add = any_store.schemas.add
    assert add("c", "source", catalog("orders"), run="r-1", identity="here")
    clock.forward(5)
    assert not add("c", "source", catalog("orders"), run="r-2", identity="here")
    assert add("c", "source", catalog("orders", "items"), run="r-2", accepted=1, identity="here")
    assert add("c", "source", catalog("orders", "items"), identity="another server")
    assert add("c", "destination", catalog("orders"), accepted=1)
    newest, second, first = any_store.schemas.history("c", "source")
    assert (first.version, first.run, first.accepted, first.at, first.identity) == (1, "r-1", 0, START, "here")
    assert (second.version, second.run, second.accepted, second.at - first.at) == (2, "r-2", 1, timedelta(seconds=5))
    assert (newest.version, newest.identity, newest.fingerprint) == (3, "another server", second.fingerprint)
    assert any_store.schemas.catalog("c", "source", 1) == catalog("orders")
    assert any_store.schemas.catalog("c", "source", 2) == catalog("orders", "items")
    assert [v.version for v in any_store.schemas.history("c", "destination")] == [1]
    assert any_store.schemas.history("other", "source") == []
    with pytest.raises(InstepError, match="no version 9 of the source schema"):
        any_store.schemas.catalog("c", "source", 9)


def test_a_schema_that_comes_back_is_a_version_of_its_own(store: Store) -> None:
    for names in (("a",), ("a", "b"), ("a",)):
        assert store.schemas.add("c", "source", catalog(*names))
    assert len(store.schemas.history("c", "source")) == 3


def test_discoveries_keep_versions(any_store: Store) -> None:
    any_store.accepted.add("c", catalog("orders"), who="ana", why="first")
    seen = CachedDiscovery(catalog("orders"), "f1", identity="here")
    any_store.discoveries.save("c", seen, run="r-1")
    any_store.discoveries.save("c", replace(seen, fingerprint="other estimates"))
    any_store.discoveries.save("c", replace(seen, catalog=catalog()))
    found = any_store.schemas.history("c", "source")
    assert [(v.version, v.accepted, v.run, v.identity) for v in found] == [(2, 1, "", "here"), (1, 1, "r-1", "here")]


def test_nothing_is_kept_of_a_transaction_that_fails(store: Store) -> None:
    with pytest.raises(ZeroDivisionError), store.transaction():  # noqa: PT012
        store.schemas.add("c", "destination", catalog("orders"))
        raise ZeroDivisionError
    assert store.schemas.history("c", "destination") == []


def test_accepted_versions_are_numbered(any_store: Store) -> None:
    steps = (("a",), ("a", "b"), ("a", "b", "c"), ("a",), ("a", "d"))
    found = [any_store.accepted.add("c", catalog(*names), who="ana", why="w", run="r-7").label for names in steps]
    assert found == ["1.0", "1.1", "1.2", "2.0", "2.1"]
    assert any_store.accepted.add("c", catalog("a", "d"), who="bob", why="w").label == "2.1"
    assert [(v.version, v.label, v.run) for v in any_store.accepted.history("c")][:2] == [
        (5, "2.1", "r-7"),
        (4, "2.0", "r-7"),
    ]
    assert any_store.accepted.add("other", catalog("z"), who="ana", why="w").label == "1.0"


def test_the_first_version_may_be_empty(store: Store) -> None:
    assert store.schemas.add("c", "destination", Catalog())
    assert store.schemas.catalog("c", "destination", 1) == Catalog()
