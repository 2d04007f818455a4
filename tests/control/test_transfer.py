"""Between files and the server: what was taken in comes out again, and taking it in twice changes nothing."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from instep.bootstrap import opens
from instep.control.resources.resources import Resources
from instep.control.resources.transfer import ImportReport, export_text, exported, import_project
from instep.errors import Conflict, ProjectError
from instep.project.documents import InvalidObject, referenced, written
from instep.project.load import load, load_beside
from instep.project.served import served
from instep.project.text import tree as yaml_tree
from instep.store.engine.keyring import Keyring, new_key, parse
from instep.store.store import Store

CANARY = "canary-55e1"
FILE = """\
version: 1
sources:
  pg: {type: postgres, database: d, user: u, password: '${env:PG}', tls: {ca: data/a, cert: data/c, key: '${file:k}'}}
  shop: {type: sqlite, path: data/shop.db}
destinations:
  lake: {type: iceberg, properties: {s3.secret-access-key: '${env:S3}', s3.region: eu}}
policies:
  careful:
    preset: allow_all
    rules:
    - {on: [column.removed], decide: review, on_invalid_value: 'null'}
channels:
  chat: {type: slack, url: '${env:CHAT}'}
connections:
  goods:
    source: pg
    destination: lake
    policy: careful
    salt: ${env:SALT}
    hash: ['*.mail']
    notify:
    - {on: [failed], to: chat}
    tables:
      public.orders: {mode: upsert, cursor: at, lookback: 5m}
"""
VARIABLES = {name: f"{CANARY}-{name}" for name in ("PG", "S3", "SALT")} | {
    "CHAT": f"https://chat.example/{CANARY}-CHAT"
}


def opened(folder: Path) -> Resources:
    folder.mkdir(exist_ok=True)
    store = Store(f"sqlite:///{folder / 'state.db'}", keys=Keyring(parse(new_key("k"), "")))
    return Resources(served(load_beside(folder, {}), store.objects, opens(store.secrets)), store)


@pytest.fixture
def objects(tmp_path: Path) -> Iterator[Resources]:
    found = opened(tmp_path / "server")
    with found.store:
        yield found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "files"
    made.mkdir()
    (made / "instep.yml").write_text(FILE)
    (made / "k").write_text("KEY\n")
    return made


def take(objects: Resources, folder: Path, **more: Any) -> ImportReport:
    return import_project(objects, load(folder, VARIABLES), who="eve", **more)


def test_what_was_taken_in_comes_out(objects: Resources, folder: Path) -> None:
    done = take(objects, folder)
    assert [name for _, name in done.created] == ["pg", "shop", "lake", "careful", "chat", "goods"]
    assert yaml_tree.parse(export_text(objects)).data == yaml_tree.parse(FILE).data
    assert CANARY not in export_text(objects)
    assert objects.project.source("pg").password == f"{CANARY}-PG"
    assert objects.project.source("pg").tls.key == "KEY"
    assert objects.project.salt("goods") == f"{CANARY}-SALT".encode()
    stored = b"".join(f.read_bytes() for f in (folder.parent / "server").iterdir() if f.is_file())
    assert CANARY.encode() not in stored


def test_taking_it_in_twice_changes_nothing(objects: Resources, folder: Path) -> None:
    take(objects, folder)
    again = take(objects, folder)
    assert (len(again.unchanged), again.created, again.changed) == (6, [], [])
    other = import_project(objects, load(folder, {**VARIABLES, "PG": "new"}), who="eve", replace=True)
    assert other.changed == [("source", "pg")]
    assert objects.project.source("pg").password == "new"


def test_all_or_nothing(objects: Resources, folder: Path) -> None:
    objects.put("policy", "careful", {"preset": "approve"}, who="eve")
    with pytest.raises(Conflict, match="policy careful exists already"):
        take(objects, folder)
    assert objects.count("source") == 0
    assert objects.store.secrets.by_key() == {}
    done = take(objects, folder, dry_run=True, replace=True)
    assert (len(done.created), done.changed) == (5, [("policy", "careful")])
    assert objects.count("source") == 0
    assert objects.get("policy", "careful").spec == {"preset": "approve"}


def test_a_secret_that_is_not_set_is_named(objects: Resources, folder: Path) -> None:
    with pytest.raises(ProjectError, match="SALT is not set"):
        import_project(objects, load(folder, {k: v for k, v in VARIABLES.items() if k != "SALT"}), who="eve")
    assert objects.count("source") == 0


def test_other_references_are_resolved_and_both_ends_named(objects: Resources, folder: Path) -> None:
    text = (
        "sources: {s: {type: postgres, host: '${env:H:-db}', port: '${env:P:-5433}', database: d, user: u}}\n"
        "destinations: {l: {type: delta}}\nconnections: {c: {}}\n"
    )
    (folder / "instep.yml").write_text(text)
    take(objects, folder)
    assert (objects.project.source("s").host, objects.project.source("s").port) == ("db", 5433)
    assert objects.get("connection", "c").spec == {"source": "s", "destination": "l"}


def test_secrets_without_an_origin_have_variables_of_their_own(objects: Resources) -> None:
    for kind, name in (("source", "a-b"), ("source", "a_b"), ("destination", "a")):
        spec = {"type": "postgres", "database": "d", "user": "u", "password": CANARY}
        objects.put(kind, name, spec, who="eve")  # type: ignore[arg-type]
    found = exported(objects)
    said = [o["password"] for plural in ("sources", "destinations") for o in found[plural].values()]
    assert said == ["${env:SOURCE_A_B_PASSWORD}", "${env:SOURCE_A_B_PASSWORD_2}", "${env:DESTINATION_A_PASSWORD}"]


NAMES = st.from_regex(r"[a-z][a-z0-9_-]{0,5}", fullmatch=True)
TEXTS = st.text(max_size=8).filter(lambda t: "${" not in t and "\0" not in t)
HOSTS = TEXTS.filter(lambda text: not set("/\\@") & set(text) and all(part.strip() for part in text.split(",")))
SOURCES = st.fixed_dictionaries(
    {"type": st.just("postgres"), "database": TEXTS, "user": TEXTS},
    optional={
        "password": st.sampled_from([f"${{env:{name}}}" for name in VARIABLES]),
        "port": st.integers(1, 65535),
        "host": HOSTS,
        "rows_per_second": st.floats(0, 1e6),
        "application_name": st.just("x"),
        "include": st.lists(st.sampled_from(["public.*", "a.b", "re:x.*"]), max_size=2),
    },
)
POLICIES = st.fixed_dictionaries(
    {"preset": st.sampled_from(["approve", "stop", "allow_all"])},
    optional={"on_invalid_value": st.sampled_from(["null", "fail"]), "rename_threshold": st.floats(0, 1)},
)
FILES = st.fixed_dictionaries(
    {"version": st.just(1), "sources": st.dictionaries(NAMES, SOURCES, min_size=1, max_size=3)},
    optional={"policies": st.dictionaries(NAMES, POLICIES, min_size=1, max_size=3)},
)


@settings(max_examples=25, deadline=None)
@given(document=FILES)
def test_export_is_the_reverse_of_import(document: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "files")
        folder.mkdir()
        (folder / "instep.yml").write_text(yaml_tree.dump(document), encoding="utf-8")
        objects = opened(Path(place, "server"))
        with objects.store:
            try:
                take(objects, folder)
            except InvalidObject as error:
                raise AssertionError(str(error)) from error
            assert written(yaml_tree.parse(export_text(objects)).data) == document
            (folder / "instep.yml").write_text(export_text(objects), encoding="utf-8")
            assert len(take(objects, folder).unchanged) == objects.count("source") + objects.count("policy")
    assert written(referenced(document)) == document
