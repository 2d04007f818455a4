"""Documents of a server: which of their values are secrets, and a project of a file and of documents together."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from project_types import Loads

from instep.errors import ProjectError
from instep.project.documents import (
    MASK,
    InvalidObject,
    check_name,
    masked,
    plain_secrets,
    pointer,
    referenced,
    replaced,
    secret_id,
    secrets_in,
    section_of,
    value_at,
    written,
)  # fmt: skip
from instep.project.project import Project
from instep.project.served import REMEMBERED, Sections, served

POSTGRES = {"type": "postgres", "database": "d", "user": "u"}
S3 = {"s3.secret-access-key": "hush", "s3.region": "eu", "s3.session-token": "hush2"}

# kind, document -> the places of its secrets
SECRETS: list[tuple[str, dict[str, Any], list[tuple[str, ...]]]] = [
    ("source", POSTGRES, []),
    ("source", {**POSTGRES, "password": "hush"}, [("password",)]),
    ("source", {**POSTGRES, "password": "${env:PW}"}, [("password",)]),
    ("source", {**POSTGRES, "password": None, "tls": {"ca": "a", "cert": "c", "key": "KEY"}}, [("tls", "key")]),
    ("source", {**POSTGRES, "ssh": {"host": "h", "user": "u", "key": "KEY"}, "password": "x"},
     [("password",), ("ssh", "key")]),
    ("source", {"type": "jdbc", "url": "jdbc:x://u:hush@h/d", "driver": "a.B", "jars": "a.jar"}, [("url",)]),
    ("source", {"type": "files", "path": "s3://b/x", "properties": S3},
     [("properties", "s3.secret-access-key"), ("properties", "s3.session-token")]),
    ("destination", {"type": "iceberg", "properties": S3, "catalog": "https://u:hush@h"},
     [("catalog",), ("properties", "s3.secret-access-key"), ("properties", "s3.session-token")]),
    ("destination", {"type": "postgres", "database": "d", "user": "u", "password": "hush"}, [("password",)]),
    ("connection", {"source": "s", "salt": "hush", "hash": ["*.mail"]}, [("salt",)]),
    ("channel", {"type": "slack", "url": "https://hooks.example/x"}, [("url",)]),
    ("channel", {"type": "email", "host": "h", "password": "hush", "to": ["a@b"], "sender": "i@b"}, [("password",)]),
    ("channel", {"type": "webhook", "url": "https://h/x", "secret": "whsec_hush", "former_secret": "whsec_x"},
     [("url",), ("secret",), ("former_secret",)]),
    ("channel", {"type": "apprise", "url": "ntfy://u:hush@h/t"}, [("url",)]),
    ("policy", {"preset": "approve"}, []),
    ("source", {"type": "no such"}, []),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "spec", "places"), SECRETS)
def test_what_the_file_would_refuse_is_a_secret(kind: str, spec: dict[str, Any], places: list[tuple[str, ...]]) -> None:
    before = json.dumps(spec)
    assert sorted(plain_secrets(kind, "one", spec)) == sorted(places)
    assert json.dumps(spec) == before
    sealed = replaced(spec, {path: f"${{secret:id{at}}}" for at, path in enumerate(places)})
    assert plain_secrets(kind, "one", referenced(sealed)) == ()
    assert secrets_in(sealed) == {path: f"id{at}" for at, path in enumerate(places)}
    assert [value_at(masked(sealed), path) for path in places] == [MASK] * len(places)
    if spec.get("type") not in ("no such", "jdbc"):
        section_of(kind, "x", sealed)


# kind, document -> what is told, place and words
WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("source", {}, "source x: the document: needs a type"),
    ("source", {"type": "postgres", "user": "u"}, "source x: database: is required"),
    ("source", {**POSTGRES, "hots": "h"}, "source x: hots: unknown key, did you mean 'host'?"),
    ("source", {**POSTGRES, "port": 70000}, "source x: port: must be at most 65535"),
    ("connection", {"tables": {"a.b": {"mode": "often"}}}, "connection x: tables.a.b.mode: must be one of"),
    ("policy", {"preset": "whatever"}, "policy x: preset: unknown preset"),
]


@pytest.mark.parametrize(("kind", "spec", "said"), WRONG)
def test_what_is_wrong_is_told_with_its_place(kind: str, spec: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidObject) as caught:
        section_of(kind, "x", spec)
    assert said in str(caught.value)


def test_an_error_repeats_no_value() -> None:
    with pytest.raises(InvalidObject) as caught:
        section_of("source", "x", {**POSTGRES, "password": "canary", "port": "canary", "colour": "canary"})
    assert "canary" not in str(caught.value)
    assert {path for path, _ in caught.value.problems} == {("password",), ("port",), ("colour",)}


@pytest.mark.parametrize("name", ["", "1a", "a b", "a/b", "é", "a" * 64, "a\n"])
def test_names_are_those_of_the_file(name: str) -> None:
    with pytest.raises(InvalidObject, match="a name starts with a letter"):
        check_name("source", name)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.just("${env:X}"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
)


@given(document=st.dictionaries(st.text(max_size=4), JSON))
def test_a_document_is_what_it_was(document: dict[str, Any]) -> None:
    assert written(referenced(document)) == document
    assert replaced(document, {}) == masked(document) == document


@pytest.mark.parametrize(
    ("text", "id"),
    [("${secret:ab1}", "ab1"), ("x${secret:a}", ""), ("${secret:}", ""), ("${secret:a}${secret:b}", ""), ("", "")],
)
def test_the_id_of_a_secret(text: str, id: str) -> None:
    assert secret_id(text) == id


def test_json_pointers() -> None:
    assert pointer(("properties", "a/b~c", 0)) == "/properties/a~1b~0c/0"


@dataclass
class Kept:
    name: str
    id: str
    version: int
    spec: dict[str, Any]


@dataclass
class Shelf:
    """Documents in memory that counts what is asked for."""

    kept: dict[tuple[str, str], Kept] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def put(self, kind: str, name: str, spec: dict[str, Any]) -> None:
        before = self.kept.get((kind, name))
        self.kept[kind, name] = Kept(name, f"{kind}{name}", before.version + 1 if before else 1, spec)

    def get(self, kind: str, name: str) -> Kept | None:
        self.asked.append(name)
        return self.kept.get((kind, name))

    def get_many(self, kind: str, names: Collection[str]) -> list[Kept]:
        self.asked.append(f"several {kind}")
        return [self.kept[kind, name] for name in sorted(names) if (kind, name) in self.kept]

    def names(self, kind: str) -> tuple[str, ...]:
        return tuple(sorted(name for k, name in self.kept if k == kind))


FILE = """\
project: p
sources: {shop: {type: sqlite, path: shop.db}}
destinations: {lake: {type: delta, namespace: common}}
policies: {careful: {preset: approve}}
connections: {mine: {}}
"""


@pytest.fixture
def shelf() -> Shelf:
    made = Shelf()
    made.put("source", "pg", {**POSTGRES, "host": "h", "password": "${secret:abc}"})
    made.put("connection", "theirs", {"source": "pg", "destination": "lake", "policy": "careful", "tags": ["eu"]})
    made.put("connection", "worse", {"source": "nowhere", "colour": "red"})
    return made


@pytest.fixture
def both(loads: Loads, shelf: Shelf) -> Project:
    return served(loads(FILE), shelf, lambda id, place: f"{id} at {'.'.join(map(str, place))}")


def test_a_project_of_both(both: Project) -> None:
    assert both.connections == ("mine", "theirs", "worse")
    assert both.source_of("mine") == "shop"
    assert both.destination_of("mine") == "lake"
    assert both.policy("theirs").preset == "approve"
    assert both.namespace_of("theirs") == "common"
    assert both.source("pg").password == "abc at sources.pg.password"
    assert both.source("shop").path == str(both.root / "shop.db")


def test_one_connection_is_read_without_the_others(both: Project, shelf: Shelf) -> None:
    shelf.asked.clear()
    one = both.of("theirs")
    assert set(shelf.asked) == {"theirs", "pg"}
    assert one.connections == ("theirs",)


def test_several_connections_are_read_by_a_statement_for_each_kind(both: Project, shelf: Shelf) -> None:
    names = ["mine", "theirs"]
    for number in range(20):
        shelf.put("connection", f"more{number}", {"source": "pg", "destination": "lake"})
        names.append(f"more{number}")
    shelf.asked.clear()
    found = both.for_connections(names)
    assert len([one for one in shelf.asked if one.startswith("several")]) == 4
    asked = len(shelf.asked)
    for name in names:
        assert found.source_of(name) == both.source_of(name) or name == "mine"
        assert found.policy(name) == both.policy(name)
        assert found.selection(name) == both.selection(name)
    assert asked <= 6


def test_few_sections_are_remembered(both: Project, shelf: Shelf) -> None:
    """Also of those that are gone: a server outlives them."""
    for number in range(3 * REMEMBERED):
        shelf.put("connection", f"c{number}", {"source": "pg", "destination": "lake"})
        assert both.connection(f"c{number}").source == "pg"
        del shelf.kept["connection", f"c{number}"]
    kept = both.model.connections
    assert isinstance(kept, Sections)
    assert len(kept._read) == REMEMBERED


def test_a_run_keeps_what_it_began_with(both: Project, shelf: Shelf) -> None:
    one = both.of("theirs")
    shelf.put("connection", "theirs", {"source": "shop", "destination": "lake"})
    assert one.source_of("theirs") == "pg"
    assert both.source_of("theirs") == "shop", "the server itself sees what was written"
    del shelf.kept["connection", "theirs"]
    assert both.connections == ("mine", "worse")
    with pytest.raises(ProjectError, match="unknown connection 'theirs'"):
        both.connection("theirs")


def test_what_is_wrong_with_one_concerns_it_alone(both: Project) -> None:
    with pytest.raises(InvalidObject, match="connection worse: colour: unknown key"):
        both.of("worse")


USES = {"source": "shop", "destination": "lake", "notify": [{"to": "ops", "on": ["rollout"]}]}
CHANNEL = "channels: {ops: {type: slack, url: '${env:URL}'}}\n"
GONE: list[tuple[str, str, str]] = [
    # what the file has no more, by kind and name; what it still has
    ("source", "shop", "destinations: {lake: {type: iceberg}}\n" + CHANNEL),
    ("destination", "lake", "sources: {shop: {type: sqlite, path: shop.db}}\n" + CHANNEL),
    ("channel", "ops", FILE.partition("policies")[0]),
]


@pytest.mark.parametrize(("kind", "name", "left"), GONE, ids=[kind for kind, *_ in GONE])
def test_what_the_file_takes_away_is_named_with_who_uses_it(
    loads: Loads, shelf: Shelf, kind: str, name: str, left: str
) -> None:
    shelf.put("connection", "held", USES)
    assert served(loads(FILE + CHANNEL), shelf, lambda *_: "").of("held").connections == ("held",)
    project = served(loads(left), shelf, lambda *_: "")
    with pytest.raises(ProjectError) as caught:
        project.of("held")
    assert caught.value.message == f"connection held: there is no {kind} '{name}', which it uses"
    assert caught.value.hint == f"put it back into instep.yml, or give the connection another {kind}"
    assert "held" in project.connections, "it can still be changed or deleted"


def test_places_are_those_of_the_file_or_of_the_object(both: Project) -> None:
    assert both.location_of(("connections", "mine")) == "instep.yml:5: connections.mine"
    assert both.location_of(("connections", "theirs", "tables", "a.b")) == "connection theirs: tables.a.b"
    assert both.location_of(("sources", "pg")) == "source pg"


def test_a_file_cannot_name_a_secret_of_the_server(loads: Loads) -> None:
    project = loads(FILE.replace("path: shop.db", "path: '${secret:abc}'"))
    with pytest.raises(ProjectError, match="is one that a server keeps"):
        project.source("shop")
