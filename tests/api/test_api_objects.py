"""Sources, destinations, policies, channels and connections as objects: of the server, and of the file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from api_world import PROJECT, Api, serve
from hypothesis import given
from hypothesis import strategies as st

from instep.bootstrap import open_server
from instep.control.resources.resources import merged
from instep.operations.values import ObjectKind
from instep.project import documents
from instep.project.sections.tables import TableKeys
from instep.schema.selection.selection import Pattern
from instep.server.writes import as_json

PASSWORD = "canary-7c41d9"
SOURCE = {"type": "postgres", "host": "db.example.org", "database": "shop", "user": "u", "password": PASSWORD}
SPECS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    # plural: document, patch, the document after it as it is shown
    "sources": (SOURCE, {"database": "db2"}, {**SOURCE, "database": "db2", "password": "******"}),
    "destinations": ({"type": "iceberg"}, {"namespace": "raw"}, {"type": "iceberg", "namespace": "raw"}),
    "policies": ({"preset": "approve"}, {"preset": "stop"}, {"preset": "stop"}),
    "channels": (
        {"type": "slack", "url": f"https://hooks.example.org/{PASSWORD}"}, {"digest": "daily"},
        {"type": "slack", "url": "******", "digest": "daily"},
    ),
}  # fmt: skip


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    tmp_path.joinpath("instep.yml").write_text(PROJECT)
    with open_server(tmp_path, insecure_dev=True) as app:
        yield serve(app)


def put(api: Api, path: str, spec: dict[str, Any], **more: Any) -> Any:
    return api.call("PUT", path, body={"spec": spec}, **more)


def test_names_that_begin_as_those_of_a_library_stay_in_documents(api: Api) -> None:
    """FastAPI leaves keys out that begin with `_sa`, unless it is told otherwise."""
    put(api, "/sources/db2", {"type": "sqlite", "path": "shop.db"})
    put(api, "/destinations/lake2", {"type": "duckdb", "path": "lake.duckdb"})
    spec = {"source": "db2", "destination": "lake2", "tables": {"_sales.orders": {"mode": "append"}}}
    made = api.call("POST", "/connections", body={"name": "mine", "spec": spec})
    assert made.status_code in (200, 201), made.text
    before = api.call("GET", "/connections/mine/settings")
    assert before.json()["spec"]["tables"] == spec["tables"]
    spec["tables"] = {"_sales.orders": {"mode": "full_refresh"}}
    assert put(api, "/connections/mine/settings", spec).status_code == 200
    after = api.call("GET", "/connections/mine/settings")
    assert after.headers["etag"] != before.headers["etag"]
    assert as_json({"_sa_id": {"_sales": 1}}) == {"_sa_id": {"_sales": 1}}


@pytest.mark.parametrize("plural", SPECS)
def test_the_life_of_an_object(api: Api, plural: str) -> None:
    spec, patch, after = SPECS[plural]
    made = api.call("POST", f"/{plural}", body={"name": "mine", "spec": spec, "tags": ["eu"]})
    assert made.status_code == 201, made.text
    assert made.json()["object"]["managed_by"] == "server"
    assert api.call("POST", f"/{plural}", body={"name": "mine", "spec": spec}).status_code == 409
    read = api.call("GET", f"/{plural}/mine")
    tag = {"If-Match": read.headers["etag"]}
    changed = api.call("PATCH", f"/{plural}/mine", body={"spec": patch}, headers=tag)
    assert changed.json()["object"]["spec"] == after
    assert changed.json()["object"]["tags"] == ["eu"]
    assert api.call("PATCH", f"/{plural}/mine", body={"spec": patch}, headers=tag).status_code == 412
    assert api.call("DELETE", f"/{plural}/mine", headers=tag).status_code == 412
    assert put(api, f"/{plural}/mine", after).json()["object"]["version"] == 3, "stars keep the secret"
    assert [one["name"] for one in api.get(f"/{plural}", params={"tag": "eu"})["items"]] == ["mine"]
    assert api.call("DELETE", f"/{plural}/mine").json()["deleted"] == "mine"
    assert api.call("GET", f"/{plural}/mine").status_code == 404
    assert (found := put(api, f"/{plural}/mine", spec)).status_code == 201, found.text
    assert put(api, f"/{plural}/other", spec, headers=tag).status_code == 412, "there is none to match"
    for path in (f"/{plural}", f"/{plural}/mine", "/audit"):
        assert PASSWORD not in api.call("GET", path).text


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_a_rehearsal_keeps_nothing(api: Api, method: str) -> None:
    put(api, "/policies/there", {"preset": "stop"})
    before = api.get("/policies"), api.get("/audit")
    path = "/policies" if method == "POST" else "/policies/there"
    body = {"name": "new", "spec": {"preset": "approve"}} if method == "POST" else {"spec": {"preset": "approve"}}
    found = api.call(method, path, body=None if method == "DELETE" else body, params={"dry_run": "true"})
    assert (found.status_code, found.json()["dry_run"]) == (200, True)
    assert (api.get("/policies"), api.get("/audit")) == before


OF_FILE = ["/sources/db", "/destinations/lake", "/policies/strict", "/connections/eu/settings"]


@pytest.mark.parametrize(
    ("method", "path"), [*((m, p) for m in ("PUT", "PATCH") for p in OF_FILE), *(("DELETE", p) for p in OF_FILE[:3])]
)
def test_what_the_file_says_is_changed_there(api: Api, method: str, path: str) -> None:
    before = api.get(path)
    body = None if method == "DELETE" else {"spec": dict(before["spec"])}
    found = api.call(method, path, body=body)
    assert (found.status_code, before["managed_by"]) == (409, "file"), found.text
    if method != "DELETE":
        assert f"  {before['name']}:" in found.json()["hint"]


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("/sources/s", {"type": "sqlite", "path": "a", "x": 1}, "/spec/x"),
    ("/sources/s", {"type": "none"}, "/spec"),
    ("/policies/p", {"preset": "maybe"}, "/spec/preset"),
    ("/sources/s", {"type": "sqlite", "path": "${env:HOME}"}, "/spec/path"),
    ("/sources/s", {**SOURCE, "password": "******"}, "/spec/password"),
    ("/sources/s", {"type": "connector", "path": "/tmp"}, "/spec/path"),
    ("/sources/s", {"type": "connector", "path": "connectors/c", "python": "/bin/sh"}, "/spec/python"),
]


@pytest.mark.parametrize(("path", "spec", "at"), WRONG)
def test_wrong_documents_are_told_by_place(api: Api, path: str, spec: dict[str, Any], at: str) -> None:
    found = put(api, path, spec)
    assert (found.status_code, found.json()["code"]) == (422, "invalid")
    assert at in [one["at"] for one in found.json()["errors"]]


S3 = {"type": "files", "path": "s3://b/x", "properties": {"s3.endpoint": "https://a", "s3.secret-access-key": PASSWORD}}
REST = {"type": "iceberg", "catalog": "https://a", "warehouse": "s3://b/x", "properties": {"token": PASSWORD}}
MAIL = {"type": "email", "to": ["a@b.c"], "sender": "a@b.c", "host": "mail.example", "user": "u", "password": PASSWORD}
HOOK = {"type": "webhook", "url": "https://a.example/x", "secret": "whsec_" + "A" * 32}
MOVES: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("sources", SOURCE, {"host": "evil"}, "password"), ("sources", SOURCE, {"port": 5433}, "password"),
    ("sources", SOURCE, {"read_replica": ["evil"]}, "password"),
    ("sources", SOURCE, {"ssh": {"host": "evil", "user": "u"}}, "password"),
    ("sources", {**SOURCE, "type": "mysql"}, {"host": "evil"}, "password"),
    ("sources", {"type": "jdbc", "url": "jdbc:postgresql://a/d", "user": "u", "password": PASSWORD},
     {"url": "jdbc:postgresql://evil/d"}, "password"),
    ("sources", {"type": "jdbc", "subprotocol": "oracle", "host": "a", "database": "d", "user": "u",
                 "password": PASSWORD}, {"host": "evil"}, "password"),
    ("sources", S3, {"properties": {"s3.endpoint": "https://evil"}}, "properties/s3.secret-access-key"),
    ("sources", S3, {"properties": {"s3.endpoint": None, "gcs.service.host": "https://evil", "gcs.oauth2.token": "x"}},
     "properties/s3.secret-access-key"),
    ("destinations", REST, {"catalog": "https://evil"}, "properties/token"),
    ("destinations", REST, {"properties": {"oauth2-server-uri": "https://evil"}}, "properties/token"),
    ("destinations", {**SOURCE, "user": "v"}, {"host": "evil"}, "password"),
    ("channels", MAIL, {"host": "evil.example"}, "password"),
    # the same server by name, which need not prove any more that it is that one
    ("sources", {**SOURCE, "tls": {"mode": "verify-full"}}, {"tls": {"mode": "disable"}}, "password"),
    ("sources", {**SOURCE, "type": "mysql"}, {"tls": {"mode": "disable"}}, "password"),
    ("sources", {**SOURCE, "ssh": {"host": "h", "user": "u", "host_key": "ssh-ed25519 AAAA"}},
     {"ssh": {"host_key": "ssh-ed25519 BBBB"}}, "password"),
    ("sources", {"type": "jdbc", "url": "jdbc:postgresql://a/d", "user": "u", "password": PASSWORD,
                 "options": {"sslmode": "verify-full"}}, {"options": {"sslmode": "disable"}}, "password"),
    ("sources", {"type": "jdbc", "url": "jdbc:sqlserver://a", "user": "u", "password": PASSWORD},
     {"options": {"trustServerCertificate": "true"}}, "password"),
    ("destinations", {**SOURCE, "user": "v"}, {"tls": {"mode": "disable"}}, "password"),
]  # fmt: skip


@pytest.mark.parametrize(("plural", "spec", "patch", "at"), MOVES)
def test_a_secret_is_not_sent_to_another_server(
    api: Api, plural: str, spec: dict[str, Any], patch: dict[str, Any], at: str
) -> None:
    """Whoever may write an object could read its secrets by moving it to a server of his own, or to one between."""
    assert (found := put(api, f"/{plural}/mine", spec)).status_code == 201, found.text
    moved = api.call("PATCH", f"/{plural}/mine", body={"spec": patch})
    assert (moved.status_code, f"/spec/{at}" in [one["at"] for one in moved.json()["errors"]]) == (422, True), (
        moved.text
    )
    assert "Write the secret's value again" in moved.text
    assert PASSWORD not in moved.text
    whole = merged(api.get(f"/{plural}/mine")["spec"], patch)
    assert put(api, f"/{plural}/mine", whole).status_code == 422, "nor by sending the stars back"
    again: Any = PASSWORD
    for part in reversed(at.split("/")):
        again = {part: again}
    assert api.call("PATCH", f"/{plural}/mine", body={"spec": merged(patch, again)}).status_code == 200


@pytest.mark.parametrize(
    ("plural", "spec", "patch"),
    [
        ("sources", SOURCE, {"user": "v", "connect_timeout": 5}), ("sources", SOURCE, {"port": 5432}),
        ("sources", S3, {"properties": {"s3.region": "eu-1"}}), ("channels", HOOK, {"url": "https://b.example/y"}),
    ],
)  # fmt: skip
def test_a_secret_stays_where_the_server_does(
    api: Api, plural: str, spec: dict[str, Any], patch: dict[str, Any]
) -> None:
    assert (found := put(api, f"/{plural}/mine", spec)).status_code == 201, found.text
    assert api.call("PATCH", f"/{plural}/mine", body={"spec": patch}).status_code == 200


def test_a_request_that_is_sent_again(api: Api) -> None:
    sent = {"body": {"name": "p", "spec": {"preset": "stop"}}, "headers": {"Idempotency-Key": "k1"}}
    first, again = (api.call("POST", "/policies", **sent) for _ in range(2))
    assert (first.status_code, again.status_code, again.json()) == (201, 201, first.json())
    assert again.headers["idempotent-replayed"] == "true"


SPEC = {"source": "db", "destination": "lake", "policy": "strict", "tags": ["europe"], "salt": PASSWORD}


class TestConnections:
    def test_one_that_the_server_keeps(self, api: Api) -> None:
        made = api.call("POST", "/connections", body={"name": "mine", "spec": SPEC})
        assert made.status_code == 201, made.text
        shown = api.get("/connections/mine")
        assert (shown["managed_by"], shown["source"], shown["namespace"], shown["policy"]) == (
            "server", "db", "mine", "strict"
        )  # fmt: skip
        assert [(c["name"], c["managed_by"]) for c in api.get("/connections")["items"]] == [
            ("eu", "file"), ("mine", "server"), ("us", "file")
        ]  # fmt: skip
        found = api.call("PATCH", "/connections/mine/settings", body={"spec": {"policy": None, "namespace": "raw"}})
        assert found.json()["object"]["spec"]["salt"] == "******"
        assert (api.get("/connections/mine")["policy"], api.get("/connections/mine")["namespace"]) == ("", "raw")

    def test_what_it_uses_stays(self, api: Api) -> None:
        put(api, "/policies/mine", {"preset": "stop"})
        api.call("POST", "/connections", body={"name": "mine", "spec": {**SPEC, "policy": "mine"}})
        found = api.call("DELETE", "/policies/mine")
        assert (found.status_code, found.json()["code"]) == (409, "blocked")
        assert "connection mine" in found.json()["detail"]

    def test_a_key_for_a_group_stays_within_it(self, api: Api) -> None:
        api.call("POST", "/connections", body={"name": "mine", "spec": SPEC})
        api.call("POST", "/connections", body={"name": "theirs", "spec": {**SPEC, "tags": ["america"]}})
        put(api, "/sources/other", {"type": "sqlite", "path": "x.db"})
        headers = api.key("admin", "europe")
        listed = api.client.get("/api/v1/connections", headers=headers).json()["items"]
        assert [one["name"] for one in listed] == ["eu", "mine"]
        assert [o["name"] for o in api.client.get("/api/v1/sources", headers=headers).json()["items"]] == ["db"]
        assert api.client.get("/api/v1/sources/other", headers=headers).status_code == 404
        at = "/api/v1/connections/{}/settings"
        cases = [("theirs", {"policy": "stop"}, 404), ("mine", {"policy": "stop"}, 200), ("mine", {"tags": []}, 403),
                 ("mine", {"source": "other"}, 403), ("mine", {"notify": []}, 403)]  # fmt: skip
        for name, patch, status in cases:
            found = api.client.patch(at.format(name), headers=headers, json={"spec": patch})
            assert found.status_code == status, (name, patch, found.text)


DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.dictionaries(st.text(max_size=2), inner, max_size=3) | st.lists(inner, max_size=2),
    max_leaves=6,
)


@given(DOCUMENTS, DOCUMENTS)
def test_a_merge_patch_twice_is_one(document: Any, patch: Any) -> None:
    once = merged(document, patch)
    assert merged(once, patch) == once
    assert merged(document, {}) == (document if isinstance(document, dict) else {})


def test_the_examples_of_merge_patches() -> None:
    cases: list[tuple[Any, Any, Any]] = [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": "foo"}, None, None),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ]
    for document, patch, after in cases:
        assert merged(document, patch) == after


# what is sent, whether all of it is meant; the tags of the connection, which had `old`, afterwards
TAGS: list[tuple[str, dict[str, Any], list[str]]] = [
    ("PATCH", {"tags": ["eu"]}, ["eu"]), ("PATCH", {"spec": {"tags": ["eu"]}}, ["eu"]), ("PATCH", {"tags": []}, []),
    ("PATCH", {"spec": {"tags": ["eu"]}, "tags": ["us"]}, ["eu"]), ("PATCH", {"spec": {}}, ["old"]),
    ("PUT", {"tags": ["eu"]}, ["eu"]), ("PUT", {"spec": {"tags": ["eu"]}, "tags": ["old"]}, ["eu"]),
    ("PUT", {"tags": []}, []), ("PUT", {}, []),
]  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize(("method", "said", "tags"), TAGS)
def test_tags_of_a_connection_are_those_of_its_document(
    api: Api, method: str, said: dict[str, Any], tags: list[str]
) -> None:
    ties = {"source": "db", "destination": "lake"}
    made = api.call("POST", "/connections", body={"name": "mine", "spec": ties, "tags": ["old"]})
    assert made.json()["object"]["tags"] == made.json()["object"]["spec"]["tags"] == ["old"]
    spec = {**(ties if method == "PUT" else {}), **said.get("spec", {})}
    found = api.call(method, "/connections/mine/settings", body={**said, "spec": spec})
    assert found.status_code == 200, found.text
    assert found.json()["object"]["tags"] == tags
    for tag in ("eu", "us", "old"):
        seen = api.client.get("/api/v1/connections", headers=api.key("viewer", tag)).json()["items"]
        assert [one["name"] for one in seen] == (["mine"] if tag in tags else []), "and of the keys that are for them"


# what a key for europe, an admin's, asks of objects; eu uses db and lake, theirs uses other and pond
WITHIN: list[tuple[str, str, Any, int]] = [
    ("GET", "/sources/db", None, 200), ("GET", "/destinations/lake", None, 200), ("GET", "/policies/strict", None, 200),
    ("GET", "/channels/ops", None, 200), ("GET", "/channels/theirs", None, 404), ("GET", "/policies/loose", None, 404),
    ("GET", "/destinations/pond", None, 404), ("GET", "/connections/theirs/settings", None, 404),
    ("PUT", "/sources/db", {"spec": {}}, 403), ("PATCH", "/destinations/lake", {"spec": {}}, 403),
    ("DELETE", "/policies/strict", None, 403), ("POST", "/channels", {"name": "x", "spec": {}}, 403),
    ("POST", "/connections", {"name": "x", "spec": {}}, 403), ("DELETE", "/connections/theirs", None, 404),
    ("PATCH", "/connections/ours/settings", {"spec": {"schedule": {"sync": "every 1h"}}}, 200),
    ("PATCH", "/connections/ours/settings", {"spec": {"namespace": "x"}}, 403),
    ("PATCH", "/connections/ours/settings", {"spec": {"destination": "pond"}}, 403),
    ("PATCH", "/connections/ours/settings", {"tags": ["america"]}, 403),
    ("PATCH", "/connections/ours/settings", {"spec": {"tags": None}}, 403),
    ("PUT", "/connections/ours/settings", {"spec": {"source": "db", "destination": "lake"}}, 403),
    ("PUT", "/connections/theirs/settings", {"spec": {"source": "db", "destination": "lake"}}, 404),
    ("PUT", "/connections/fresh/settings", {"spec": {"source": "db", "destination": "lake"}}, 404),
]  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize(("method", "path", "body", "status"), WITHIN)
def test_what_a_key_for_a_group_may_ask_of_objects(api: Api, method: str, path: str, body: Any, status: int) -> None:
    put(api, "/destinations/pond", {"type": "iceberg"})
    put(api, "/policies/loose", {"preset": "allow_all"})
    for name in ("ops", "theirs"):
        put(api, f"/channels/{name}", {"type": "slack", "url": "https://hooks.example.org/x"})
    told = {"on": ["paused"]}
    for name, spec in (
        ("ours", {"source": "db", "destination": "lake", "tags": ["europe"], "notify": [{**told, "to": "ops"}]}),
        ("theirs", {"source": "db", "destination": "pond", "policy": "loose", "notify": [{**told, "to": "theirs"}]}),
    ):
        assert api.call("POST", "/connections", body={"name": name, "spec": spec}).status_code == 201
    before = api.get("/connections/ours/settings")
    found = api.client.request(method, f"/api/v1{path}", json=body, headers=api.key("admin", "europe"))
    assert found.status_code == status, found.text
    assert (api.get("/connections/ours/settings") == before) == (method == "GET" or status != 200)
    assert api.call("GET", "/connections/fresh/settings").status_code == 404


MANY = [
    ("secrets", "destinations/lake2", {"type": "iceberg", "properties": {f"x{n}.password": "p" for n in range(101)}},
     "may hold 100 secrets, and has more"),
    ("values", "destinations/lake2", {"type": "iceberg", "properties": {f"x{n}": "1" for n in range(20_001)}},
     "holds 20002 values, and may hold 20000"),
    ("unknown keys", "destinations/lake2", {"type": "iceberg", **{f"x{n}": "1" for n in range(15_000)}},
     "has 14900 more problems"),
]  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize(("path", "spec", "said"), [m[1:] for m in MANY], ids=[m[0] for m in MANY])
@pytest.mark.parametrize("method", ["PUT", "POST"])
def test_documents_of_many_names_are_refused_shortly(
    api: Api, method: str, path: str, spec: dict[str, Any], said: str
) -> None:
    plural, _, name = path.partition("/")
    where, body = (f"/{path}", {"spec": spec}) if method == "PUT" else (f"/{plural}", {"name": name, "spec": spec})
    found = api.call(method, where, body=body)
    assert (found.status_code, said in found.text) == (422, True), found.text[:500]
    assert len(found.content) < 100_000
    assert api.store.objects.get("destination", name) is None


def test_a_document_is_looked_at_no_more_often_than_it_may_have_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A section tells of one property at a time, so that thousands of them would be thousands of looks at thousands."""
    looks = 0
    plain = documents._refused

    def counted(kind: ObjectKind, data: dict[str, Any]) -> list[documents.Path]:
        nonlocal looks
        looks += 1
        return plain(kind, data)

    monkeypatch.setattr(documents, "_refused", counted)
    properties = {f"x{n}.password": "p" for n in range(3_000)}
    with pytest.raises(documents.InvalidObject, match="may hold 100 secrets"):
        documents.plain_secrets("destination", "lake", {"type": "iceberg", "properties": properties})
    assert looks == documents.MOST_SECRETS + 1


def test_a_table_is_looked_up_among_thousands(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    plain = Pattern.matches
    monkeypatch.setattr(Pattern, "matches", lambda one, path: tried.append(one.text) or plain(one, path))
    keys = TableKeys(["main.*", *(f"main.t{n}" for n in range(5_000)), "re:.*t7", "[a]"])
    assert keys.fitting("main.t7") == ["main.*", "main.t7", "re:.*t7"]
    assert keys.fitting("[a]") == ["[a]"]
    assert len(tried) == 6


# who says it, what of a connection that was never synced, whether it is done
ENDS = [
    ("approver", {"source": "db2"}, False), ("approver", {"destination": "lake2"}, False),
    ("approver", {"namespace": "other"}, False), ("approver", {"namespace": "n", "shard": "x"}, False),
    ("approver", {"salt": "another"}, False), ("approver", {"salt": None}, False),
    ("approver", {"salt": "******", "policy": "approve"}, True), ("admin", {"source": "db2"}, True),
    ("admin", {"destination": "lake2"}, True), ("admin", {"salt": "another"}, True),
]  # fmt: skip


@pytest.mark.parametrize(("role", "patch", "done"), ENDS, ids=str)
def test_only_an_admin_changes_what_a_connection_reads_and_where_it_loads(
    api: Api, role: str, patch: dict[str, Any], done: bool
) -> None:
    put(api, "/sources/db2", {"type": "sqlite", "path": "shop.db"})
    put(api, "/destinations/lake2", {"type": "duckdb", "path": "lake.duckdb"})
    spec = {"source": "db", "destination": "lake", "salt": PASSWORD}
    assert api.call("POST", "/connections", body={"name": "mine", "spec": spec}).status_code == 201
    before = api.get("/connections/mine/settings")["spec"]
    for found in (
        api.call("PATCH", "/connections/mine/settings", role, body={"spec": patch}, params={"dry_run": "true"}),
        put(api, "/connections/mine/settings", merged(before, patch), role=role),
    ):
        assert (found.status_code == 200, "role approver" in found.text) == (done, not done), found.text
        assert done or found.status_code == 403
    assert done or api.get("/connections/mine/settings")["spec"] == before


def test_an_approver_gives_a_connection_its_first_salt(api: Api) -> None:
    spec = {"source": "db", "destination": "lake"}
    assert api.call("POST", "/connections", body={"name": "mine", "spec": spec}).status_code == 201
    for salt, status in ((PASSWORD, 200), ("another", 403)):
        assert (
            api.call("PATCH", "/connections/mine/settings", "approver", body={"spec": {"salt": salt}}).status_code
            == status
        )
