"""Objects as their users write and read them: the file's and the server's in one list, secrets never shown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from instep.control.resources.resources import Resources
from instep.errors import Blocked, Conflict, InstepError
from instep.operations.values import ObjectKind
from instep.project.documents import MASK, InvalidObject
from instep.project.load import load
from instep.project.served import served
from instep.store.engine.keyring import Keyring, new_key, parse
from instep.store.server.resources import KINDS
from instep.store.store import Store

CANARY = "canary-81c0"
FILE = """\
project: p
sources: {shop: {type: sqlite, path: shop.db}}
destinations: {lake: {type: delta, namespace: common}}
channels: {chat: {type: slack, url: '${env:CHAT}'}}
connections: {mine: {tags: [eu], shard: one}}
"""
POSTGRES = {"type": "postgres", "database": "d", "user": "u", "password": CANARY}
CONNECTION = {"source": "pg", "destination": "lake", "tags": ["eu", "big"], "hash": ["*.mail"], "salt": CANARY}


@pytest.fixture
def objects(tmp_path: Path) -> Iterator[Resources]:
    (tmp_path / "instep.yml").write_text(FILE)
    with Store(f"sqlite:///{tmp_path / 'state.db'}", keys=Keyring(parse(new_key("k"), ""))) as store:
        yield Resources(served(load(tmp_path, {}), store.objects, opener(store)), store)


def opener(store: Store) -> Any:
    return lambda id, place: store.secrets.open(id, {"sources": "source"}[place[0]], place[1], f"/{place[2]}")


def put(objects: Resources, kind: str, name: str, spec: dict[str, Any], **more: Any) -> Any:
    return objects.put(kind, name, spec, who="eve", **more)  # type: ignore[arg-type]


def test_a_secret_goes_in_and_is_never_shown_again(objects: Resources, tmp_path: Path) -> None:
    made = put(objects, "source", "pg", POSTGRES)
    assert made == objects.get("source", "pg") == objects.by_id(made.id)
    assert made.spec == {**POSTGRES, "password": MASK}
    assert objects.project.source("pg").password == CANARY
    stored = b"".join(f.read_bytes() for f in tmp_path.iterdir() if f.name.startswith("state"))
    assert CANARY.encode() not in stored
    assert CANARY not in repr((made, objects.store.secrets.of("source", "pg")))


def test_stars_keep_the_secret_and_a_value_replaces_it(objects: Resources) -> None:
    shown = dict(put(objects, "source", "pg", POSTGRES).spec)
    put(objects, "source", "pg", {**shown, "user": "v"}, expected=1)
    assert (objects.project.source("pg").password, objects.project.source("pg").user) == (CANARY, "v")
    put(objects, "source", "pg", {**shown, "password": "other"}, expected=2)
    assert objects.project.source("pg").password == "other"
    assert [r.place.version for r in objects.store.secrets.of("source", "pg")] == [2], "the former one is forgotten"
    put(objects, "source", "pg", {**shown, "password": ""})
    assert objects.project.source("pg").password == ""
    assert objects.store.secrets.of("source", "pg") == []


# document -> what is told
WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("source", {**POSTGRES, "password": MASK}, "password: \\*+ keeps the secret that is there, and there is none"),
    ("source", {**POSTGRES, "password": 5}, "password: must be text"),
    ("source", {**POSTGRES, "password": "${env:HOME}"}, "password: a reference is not possible"),
    ("source", {**POSTGRES, "host": "${env:HOME}"}, "host: a reference is not possible"),
    ("source", {**POSTGRES, "host": "x${file:/etc/passwd}"}, "host: a reference is not possible"),
    ("source", {**POSTGRES, "password": "${secret:STOLEN}"}, "password: a reference is not possible"),
    ("source", {**POSTGRES, "host": "${secret:pending}"}, "host: a reference is not possible"),
    ("source", {**POSTGRES, "tables": 1}, "tables: unknown key"),
    ("source", {**POSTGRES, "sslkey": 5}, "source new: "),
    ("source", {**POSTGRES, "password": "a\ud800"}, "password: has characters that cannot be kept"),
    ("source", {**POSTGRES, "host": "a\0"}, "host: has characters that cannot be kept"),
    ("source", {**POSTGRES, "\ud800": 1}, "the document: has a key with characters"),
    ("source", {**POSTGRES, "rows_per_second": float("inf")}, "rows_per_second: must be a number"),
    ("source", {**POSTGRES, "include": reduce(lambda inner, _: [inner], range(100_000), "a")}, "nested too deeply"),
    ("connection", {"destination": "lake"}, "source: is required"),
    ("connection", {"source": "pg", "destination": "laek"}, "unknown destination 'laek', did you mean 'lake'?"),
    ("connection", {"source": "pg", "destination": "lake", "hash": ["*.a"]}, "salt: is required for hashed columns"),
    ("connection", {"source": "pg", "destination": "lake", "notify": [{"on": ["failed"], "to": "x"}]},
     "notify.0.to: unknown channel 'x'"),
    ("connection", {"source": "pg", "destination": "lake", "shard": "one"}, "connection mine is shard 'one' of common"),
]  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize(("kind", "spec", "said"), WRONG)
def test_what_is_wrong_changes_nothing(objects: Resources, kind: str, spec: dict[str, Any], said: str) -> None:
    put(objects, "source", "pg", POSTGRES)
    stolen = put(objects, "destination", "other", {"type": "postgres", "database": "d", "user": "u", "password": "x"})
    del stolen
    id = objects.store.secrets.of("destination", "other")[0].id
    spec = {key: value.replace("STOLEN", id) if isinstance(value, str) else value for key, value in spec.items()}
    with pytest.raises(InvalidObject, match=said) as caught:
        put(objects, kind, "new", spec)
    assert CANARY not in str(caught.value)
    assert objects.store.objects.get(kind, "new") is None  # type: ignore[arg-type]
    assert len(objects.store.secrets.by_key()) == 1
    assert objects.store.secrets.of(kind, "new") == []


def test_a_dry_run_says_what_would_be_and_writes_nothing(objects: Resources) -> None:
    seen = put(objects, "source", "pg", POSTGRES, dry_run=True)
    assert (seen.spec["password"], seen.id, seen.version) == (MASK, "", 0)
    assert objects.count("source") == 1
    assert objects.store.secrets.by_key() == {}
    with pytest.raises(InvalidObject):
        put(objects, "source", "pg", {"type": "postgres"}, dry_run=True)


def test_one_list_of_both(objects: Resources) -> None:
    put(objects, "source", "pg", POSTGRES, tags=["db"])
    for name in ("a", "z"):
        put(objects, "connection", name, {**CONNECTION, "namespace": name})
    assert [(m.name, m.by, m.tags) for m in objects.page("connection")] == [
        ("a", "server", ("eu", "big")), ("mine", "file", ("eu",)), ("z", "server", ("eu", "big"))
    ]  # fmt: skip
    assert [m.name for m in objects.page("connection", limit=2)] == ["a", "mine"]
    assert [m.name for m in objects.page("connection", after="mine")] == ["z"]
    assert [m.name for m in objects.page("connection", links=[("source", "pg")])] == ["a", "z"]
    assert [m.name for m in objects.page("connection", links=[("destination", "lake"), ("tag", "eu")], name="M")] == [
        "mine"
    ]
    assert (objects.count("connection"), objects.count("connection", links=[("tag", "big")])) == (3, 2)
    assert objects.get("source", "pg").tags == ("db",)
    put(objects, "source", "pg", {**POSTGRES, "password": MASK})
    assert objects.get("source", "pg").tags == ("db",), "tags that are not mentioned stay"


def test_what_the_file_says_is_only_changed_there(objects: Resources) -> None:
    mine = objects.get("connection", "mine")
    assert (mine.by, mine.version, objects.by_id(mine.id)) == ("file", 0, mine)
    assert objects.get("channel", "chat").spec["url"] == "${env:CHAT}"
    with pytest.raises(Conflict, match=r"source shop is managed by instep.yml:2") as caught:
        put(objects, "source", "shop", POSTGRES)
    assert "password: '${env:SHOP_PASSWORD}'" in caught.value.hint
    assert CANARY not in str(caught.value)
    with pytest.raises(Conflict, match="managed by"):
        objects.delete("connection", "mine")


def test_versions_and_deletion(objects: Resources) -> None:
    put(objects, "source", "pg", POSTGRES, expected=0)
    put(objects, "connection", "c", CONNECTION)
    with pytest.raises(Conflict, match="version"):
        put(objects, "source", "pg", POSTGRES, expected=5)
    with pytest.raises(Blocked, match="source pg is used by connection c"):
        objects.delete("source", "pg")
    objects.delete("connection", "c", dry_run=True)
    objects.delete("connection", "c", expected=1)
    objects.delete("source", "pg")
    assert objects.store.secrets.by_key() == {}
    with pytest.raises(InstepError, match="there is no source 'pg'"):
        objects.delete("source", "pg")


KEYS = st.sampled_from(
    ["type", "host", "port", "password", "tls", "ssh", "key", "properties", "url", "options", "path", "tables", "rules",
     "preset", "source", "destination", "salt", "hash", "tags", "notify", "schedule", "detect", "sslmode", "sslkey",
     "app_options", "table_options", "protect", "include", "s3.secret-access-key", "database", "user"]
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6)
    | st.sampled_from(["postgres", "mysql", "files", "jdbc", "iceberg", "slack", "pg", "lake", "https://u:p@h", MASK,
                       "${env:HOME}", "${secret:a}", "${", CANARY]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=3), inner, max_size=4),
    max_leaves=8,
)  # fmt: skip


BASES: list[tuple[ObjectKind, dict[str, Any]]] = [
    *((kind, {}) for kind in KINDS),
    ("source", POSTGRES),
    ("source", {"type": "files", "path": "s3://b/x"}),
    ("source", {"type": "jdbc", "subprotocol": "mysql", "host": "h", "user": "u"}),
    ("destination", {"type": "iceberg"}),
    ("channel", {"type": "webhook"}),
    ("policy", {"preset": "approve"}),
    ("connection", {"source": "shop", "destination": "lake"}),
]


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(base=st.sampled_from(BASES), more=st.dictionaries(KEYS | st.text(max_size=3), VALUES, max_size=4))
def test_whatever_is_sent_is_taken_or_told(objects: Resources, base: Any, more: dict[str, Any]) -> None:
    kind, spec = base
    told = ""
    try:
        made = objects.put(kind, "new", {**spec, **more}, who="eve", dry_run=True)
    except InvalidObject as error:
        told = str(error)
    else:
        assert "${" not in json.dumps(made.spec, allow_nan=False)
    assert CANARY not in told
