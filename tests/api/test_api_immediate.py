"""Every operation that is done at once: its specification holds together, and its route does what a project does."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import yaml
from api_world import PROJECT, Api, project, recorded, serve
from sqlalchemy import insert

from instep.backends.decode import record
from instep.bootstrap.app import App, open_project, open_server, opens
from instep.control import detector
from instep.control.immediate import govern
from instep.control.resources import api_keys
from instep.control.resources.api_keys import ROLES
from instep.errors import Blocked, Conflict
from instep.operations.immediate.objects import CreateObjectRequest, PutObjectRequest
from instep.operations.registry import immediate_for, immediate_specs, result_of, spec_of, work_of
from instep.operations.spec import ImmediateSpec, ImmediateWork
from instep.operations.values import ObjectKind, leads_to
from instep.project.served import ServedProject, served
from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import parse
from instep.server.access import NEEDS
from instep.server.immediate_routes import AS_READ, body_of
from instep.server.requests import texts_of
from instep.store.catalogs.discoveries import CachedDiscovery
from instep.store.tables.queue import deliveries

SPECS = pytest.mark.parametrize("spec", immediate_specs().values(), ids=immediate_specs())


@SPECS
def test_its_path_names_fields_and_each_field_has_a_text(spec: ImmediateSpec) -> None:
    names, texts = {one.name for one in fields(spec.request)}, texts_of(spec.request)
    target = {spec.target} if " " not in spec.target else set()  # a text
    assert {*re.findall(r"{(\w+)}", spec.path), *target} <= names
    assert spec.match in {"", *AS_READ}
    assert NEEDS[spec.route] == spec.role
    hints = get_type_hints(spec.request, include_extras=True)
    for name in names:
        assert leads_to(hints[name])
        assert texts.get(name), f"{spec.request.__name__}.{name}"


@SPECS
def test_its_work_and_its_answer_are_there(spec: ImmediateSpec) -> None:
    assert issubclass(work_of(spec), ImmediateWork)
    assert fields(result_of(spec))
    assert spec.request.__name__.endswith("Request")
    with pytest.raises(Exception, match="there is no operation"):
        spec_of(spec.name)  # the queue has no job of it


@dataclass(frozen=True)
class Case:
    """A request that is carried out: the fields of its record, and what the audit log keeps of it."""

    spec: str
    values: Mapping[str, Any]
    action: str
    target: str
    detail: Mapping[str, Any] = field(default_factory=dict)
    before: Callable[[Api], object] = lambda _: None


def a_change(api: Api) -> str:
    """Return the id of an open change."""
    return (api.store.reviews.find("eu") or recorded(api.store, "eu", "note"))[0].id


def a_rejected_change(api: Api) -> str:
    """Return the id of a change that was rejected."""
    return api.store.reviews.decide(a_change(api), "rejected", "test").id


def a_saved_filter(api: Api) -> None:
    """Save a filter for the key of an admin, and for the project."""
    assert api.call("PUT", "/filters/mine", body={"search": "note"}).status_code == 200
    api.store.filters.save("", "mine", {"search": "note"})


def a_job(api: Api, *, over: bool = False) -> str:
    """Return the id of a detection that waits, or that was cancelled."""
    found = api.store.jobs.enqueue("eu", "detect", why="a test")[0].id
    return api.store.jobs.cancel(found, "test").id if over else found


def a_backfill(api: Api) -> None:
    """Let a column of an accepted table wait for its values."""
    item = Table("main", "item", (Column("id", parse("int64"), nullable=False, key=1), Column("note", parse("string"))))
    api.store.accepted.add("eu", Catalog.of([item]), who="test", why="first")
    api.store.backfills.request("eu", item.ref, column="note", why="a test")


ROLLOUT = {"selection": [{"verb": "off", "object": "main.orders"}], "group": {"matching": ["*"]}}


def a_served_connection(api: Api) -> str:
    """Return the name of a connection that the server keeps."""
    spec = {"source": "db", "destination": "lake", "tags": ["europe"]}
    api.app.objects.put("connection", "served", spec, who="test")
    if not isinstance(api.app.project, ServedProject):
        api.app.project = served(api.app.project, api.store.objects, opens(api.store.secrets))
    return "served"


def a_dead_delivery(api: Api) -> int:
    """Return the number of a delivery that was given up."""
    with api.store._db.write() as transaction:
        now = api.store.api_keys.now()
        row = {"channel": "ops", "notices": 1, "status": "dead", "created": now, "due": now, "ended": now}
        row |= {"id": "m-1", "batch": "", "urgent": False}
        made = transaction.execute(insert(deliveries).values(**row))
    return int(made.inserted_primary_key[0])


def known_tables(api: Api) -> None:
    """Let all connections have a table."""
    for name in ("eu", "us"):
        orders = Table("main", "orders", (Column("id", parse("int64"), nullable=False, key=1),))
        api.store.accepted.add(name, Catalog.of([orders]), who="test", why="first")
        api.store.discoveries.save(name, CachedDiscovery(Catalog.of([orders]), "f"))


def a_rollout(api: Api, *steps: str) -> str:
    """Return the id of a rollout over all connections, after these steps."""
    known_tables(api)
    id = str(api.call("POST", "/rollouts", body=ROLLOUT).json()["rollout"]["id"])
    for step in steps:
        assert api.call("POST", f"/rollouts/{id}/{step}", body={}).status_code == 200
    return id


def an_applied_rollout(api: Api) -> str:
    """Return the id of a rollout whose first wave is done."""
    id = a_rollout(api)
    held = api.store.rollouts.claim(id, ("ready",))
    api.store.rollouts.begin_wave(held, 1)
    api.store.rollouts.move(id, "eu", ("waiting",), "done", before={"switches": []})
    api.store.rollouts.release(held, "ready")
    return id


def a_key(api: Api) -> str:
    """Return the id of a key that may be revoked."""
    return api_keys.create(api.store, "other", "viewer", "test").key.id


KEPT: dict[ObjectKind, tuple[str, dict[str, Any]]] = {
    "source": ("sources", {"type": "postgres", "host": "db.example.org", "database": "d", "user": "u"}),
    "destination": ("destinations", {"type": "iceberg"}),
    "policy": ("policies", {"preset": "approve"}),
    "channel": ("channels", {"type": "email", "to": ["a@example.org"], "sender": "b@example.org"}),
}
"""A document of each kind of object, and the word for many of them."""


def kept(kind: ObjectKind) -> Callable[[Api], object]:
    """Return what lets the server keep an object."""
    return lambda api: api.app.objects.put(kind, "kept", KEPT[kind][1], who="test")


CASES = [
    *(Case(f"create_{kind}", {"name": "kept", "spec": spec}, f"{kind}.create", "kept", {"version": 1})
      for kind, (_, spec) in KEPT.items()),
    *(Case(f"put_{kind}", {"name": "kept", "spec": spec}, f"{kind}.replace", "kept", {"version": 1})
      for kind, (_, spec) in KEPT.items()),
    *(Case(f"patch_{kind}", {"name": "kept", "spec": {}}, f"{kind}.change", "kept", {"version": 2}, before=kept(kind))
      for kind in KEPT),
    *(Case(f"delete_{kind}", {"name": "kept"}, f"{kind}.delete", "kept", {"version": 1}, before=kept(kind))
      for kind in KEPT),
    Case("create_connection", {"name": "new", "spec": {"source": "db", "destination": "lake"}}, "connection.create",
         "new", {"version": 1}),
    Case("put_settings", {"connection": a_served_connection, "spec": {"source": "db", "destination": "lake"}},
         "connection.replace", "connection", {"version": 2}),
    Case("patch_settings", {"connection": a_served_connection, "spec": {"tags": ["asia"]}}, "connection.change",
         "connection", {"version": 2}),
    Case("pause", {"connection": "eu", "reason": "a test"}, "connection.pause", "eu",
         {"reason": "a test", "table": None}),
    Case("pause", {"connection": "eu", "reason": "a test", "table": ["main", "item"]}, "connection.pause", "eu",
         {"reason": "a test", "table": ["main", "item"]}),
    *(Case(f"{verb}_change", {"change": a_change}, f"change.{said}", "change",
           {"connection": "eu", "summary": "main.item.note is new"})
      for verb, said in (("approve", "approved"), ("reject", "rejected"), ("ignore", "ignored"))),
    Case("snooze_change", {"change": a_change, "until": "2999-01-01"}, "change.snoozed", "change",
         {"until": "2999-01-01T00:00:00+00:00"}),
    Case("reopen_change", {"change": a_rejected_change}, "change.reopened", "change",
         {"connection": "eu", "summary": "main.item.note is new"}),
    Case("reopen_changes", {"ids": [], "connection": "eu", "kinds": ["column"], "view": "rejected"}, "changes.reopened",
         "connection", before=lambda api: a_rejected_change(api)),
    Case("answer_changes", {"answer": "rejected", "patterns": ["*note"]}, "changes.rejected", "all connections",
         {"answer": "rejected", "hash": False}, before=lambda api: a_change(api)),
    Case("answer_changes", {"answer": "ignored", "ids": [], "connection": "eu", "kinds": ["column"]},
         "changes.ignored", "connection", {"answer": "ignored", "hash": False}, before=lambda api: a_change(api)),
    Case("answer_changes", {"answer": "approved", "view": "review", "search": "NOTE", "tag": "europe"},
         "changes.approved", "all connections", {"answer": "approved"}, before=lambda api: a_change(api)),
    Case("snooze_changes", {"patterns": ["*note"], "duration": "2d"}, "changes.snoozed", "all connections",
         {"duration": "2d", "until": None}, before=lambda api: a_change(api)),
    Case("assign_changes", {"view": "review", "search": "NOTE", "assignee": "ann"}, "changes.assigned",
         "all connections", {"assignee": "ann"}, before=lambda api: a_change(api)),
    Case("comment_change", {"change": a_change, "text": "wait for Monday"}, "change.commented", "change",
         {"connection": "eu"}),
    Case("assign_change", {"change": a_change, "assignee": "ann"}, "change.assigned", "change",
         {"connection": "eu", "assignee": "ann"}),
    Case("save_filter", {"name": "mine", "search": "note", "view": "review"}, "filter.save", "name",
         {"filter": {"search": "note", "view": "review"}}),
    Case("delete_filter", {"name": "mine"}, "filter.delete", "name", before=lambda api: a_saved_filter(api)),
    Case("cancel_job", {"job": a_job}, "job.cancel", "job", {"connection": "eu", "kind": "detect"}),
    Case("retry_job", {"job": lambda api: a_job(api, over=True)}, "job.retry", "job",
         {"connection": "eu", "kind": "detect"}),
    Case("cancel_backfill", {"connection": "eu", "table": "main.item", "columns": ["note"]},
         "connection.backfill_cancel", "connection", {"table": "main.item", "columns": ["note"], "jobs": []},
         before=a_backfill),
    Case("create_key", {"name": "new", "role": "viewer", "groups": ["europe"]}, "key.create", "name",
         {"name": "new", "role": "viewer", "groups": ["europe"]}),
    Case("rotate_key", {"key": a_key, "days": 3}, "key.rotate", "key", {"name": "other", "role": "viewer"}),
    Case("set_password", {"key": a_key, "password": "correct horse battery"}, "key.password", "key"),
    Case("make_sign_in_link", {"key": a_key}, "key.link", "key"),
    Case("test_source", {"name": "db"}, "source.test", "name"),
    Case("test_destination", {"name": "lake"}, "destination.test", "name"),
    Case("discover_source", {"name": "db", "matching": ["main.*"]}, "source.discover", "name"),
    Case("create_demo", {}, "demo.create", "the demo"),
    Case("revoke_key", {"key": a_key}, "key.revoke", "key", {"name": "other"}),
    Case("switch_selection", {"connection": "eu", "verb": "off", "objects": ["main.orders"]}, "connection.selection",
         "eu", {"verb": "off", "objects": ["main.orders"], "matching": [], "turned": ["main.orders"]},
         before=known_tables),
    Case("test_channel", {"name": "ops"}, "channel.test", "name", {"code": 204}),
    Case("open_channel", {"name": "ops"}, "channel.open", "name",
         before=lambda api: api.store.outbox.close("ops", "x")),
    Case("retry_delivery", {"delivery": a_dead_delivery}, "delivery.retry", "delivery", {"channel": "ops"}),
    Case("enable_detector", {"connection": "eu", "why": "resolved"}, "detector.enable", "eu", {"why": "resolved"},
         before=lambda api: detector.switch_off(api.store, "eu", "a test")),
    Case("set_detector_options", {"connection": a_served_connection, "values": {"frequency": 1800}}, "detector.set",
         "connection", {"options": ["frequency"], "table": ""}),
    Case("create_rollout", ROLLOUT, "rollout.create", "a new rollout", {"group": {"matching": ["*"]}},
         before=known_tables),
    Case("advance_rollout", {"rollout": a_rollout, "every": True}, "rollout.advance", "rollout", {"every": True}),
    Case("resume_rollout", {"rollout": lambda api: a_rollout(api, "stop"), "accept": "x"}, "rollout.resume", "rollout",
         {"every": False, "accept": "x"}),
    Case("roll_back_rollout", {"rollout": an_applied_rollout, "wave": 1}, "rollout.rollback", "rollout",
         {"wave": 1, "connections": []}),
    Case("stop_rollout", {"rollout": a_rollout, "reason": "lunch"}, "rollout.stop", "rollout", {"reason": "lunch"}),
    Case("skip_connections", {"rollout": a_rollout, "connections": ["us"], "reason": "it moves"}, "rollout.skip",
         "rollout", {"connections": ["us"], "reason": "it moves"}),
    Case("resume", {"connection": "eu"}, "connection.resume", "eu", {"table": None},
         before=lambda api: api.store.pauses.pause("eu", "a test")),
]  # fmt: skip
ONE_EACH = {one.spec: one for one in CASES}.values()
EACH = pytest.mark.parametrize("case", ONE_EACH, ids=[one.spec for one in ONE_EACH])
ALL = pytest.mark.parametrize("case", CASES, ids=[f"{one.spec}-{n}" for n, one in enumerate(CASES)])


WITH_CHANNEL = PROJECT + "channels: {ops: {type: webhook, url: '${env:OPS_URL}', secret: '${env:OPS}'}}\n"


@pytest.fixture(autouse=True)
def receiver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each channel answer without a request."""
    monkeypatch.setenv("OPS", "whsec_" + "x" * 32)
    monkeypatch.setenv("OPS_URL", "https://example.com/x")
    monkeypatch.setattr(govern, "try_channel", lambda *given: 204)


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    tmp_path.joinpath("instep.yml").write_text(WITH_CHANNEL)
    with open_server(tmp_path, insecure_dev=True) as app:
        yield serve(app)


def test_each_has_a_case() -> None:
    """One changes the password of who asks, for which a project has no key: see test_api_people.py. For imports, with
    secrets to look for, see test_api_import.py."""
    assert {one.spec for one in CASES} == set(immediate_specs()) - {"change_password", "import_configuration"}


def values_of(api: Api, case: Case) -> dict[str, Any]:
    """Return the values of a request, with the ids of what is there."""
    case.before(api)
    return {name: value(api) if callable(value) else value for name, value in case.values.items()}


def send(api: Api, case: Case, values: Mapping[str, Any], role: str = "admin", **more: Any) -> Any:
    spec = immediate_specs()[case.spec]
    in_path = {name: values[name] for name in re.findall(r"{(\w+)}", spec.path)}
    body = {name: value for name, value in values.items() if name not in in_path}
    method = spec.route.partition(" ")[0]
    added = more.pop("added", {})
    asked = {**body, **added} if body_of(spec) or added else None
    return api.call(method, spec.path.format(**in_path), role, asked, **more)


def entries(api: Api, case: Case) -> list[Any]:
    return [one for one in api.store.audit.page() if one.action == case.action]


@ALL
def test_it_is_done_once_and_noted(api: Api, case: Case) -> None:
    values, spec = values_of(api, case), immediate_specs()[case.spec]
    rehearsed = send(api, case, values, params={"dry_run": "true"})
    assert (rehearsed.status_code, rehearsed.json()["dry_run"], entries(api, case)) == (200, True, [])
    told = [send(api, case, values, headers={"Idempotency-Key": "k"}) for _ in range(2)]
    assert [one.status_code for one in told] == [told[0].status_code] * 2
    assert told[0].status_code in (200, 201, 202), told[0].text
    assert set(told[0].json()) == {one.name for one in fields(result_of(spec))}
    assert record(result_of(spec), told[0].json())
    [entry] = entries(api, case)
    assert (entry.target, {k: v for k, v in entry.detail.items() if k in case.detail}) == (
        str(values.get(case.target, case.target)), dict(case.detail),
    )  # fmt: skip


SECRETS = [one for one in ONE_EACH if immediate_specs()[one.spec].secret_field]


@pytest.mark.parametrize("case", SECRETS, ids=[one.spec for one in SECRETS])
def test_a_secret_is_told_once_and_noted_nowhere(api: Api, case: Case) -> None:
    values, name = values_of(api, case), immediate_specs()[case.spec].secret_field
    rehearsed = send(api, case, values, params={"dry_run": "true"}).json()
    told, again = (send(api, case, values, headers={"Idempotency-Key": "k"}).json() for _ in range(2))
    assert (rehearsed[name], again[name], len(told[name])) == (None, None, 53 if name == "secret" else 43)
    assert {**told, name: None} == again
    assert told[name] not in repr([(one.target, one.detail) for one in api.store.audit.page()])


@EACH
def test_its_role_is_enforced(api: Api, case: Case) -> None:
    values = values_of(api, case)
    for role in ROLES:
        found = send(api, case, values, role, params={"dry_run": "true"})
        allowed = ROLES.index(role) >= ROLES.index(immediate_specs()[case.spec].role)
        assert (found.status_code != 403) == allowed, (role, found.text)


@EACH
def test_an_unknown_field_and_a_missing_one_are_refused(api: Api, case: Case) -> None:
    values, spec = values_of(api, case), immediate_specs()[case.spec]
    if (body := body_of(spec)) is None:
        return
    unknown = send(api, case, values, added={"colour": "red"})
    assert (unknown.status_code, unknown.json()["errors"][0]["at"]) == (422, "body.colour")
    for needed in (
        one.name
        for one in fields(spec.request)
        if one.default is one.default_factory is MISSING and one.name in body.model_fields
    ):
        found = send(api, case, {name: value for name, value in values.items() if name != needed})
        assert (found.status_code, found.json()["errors"][0]["at"]) == (422, f"body.{needed}")
    assert entries(api, case) == []


@EACH
def test_if_match_is_checked_where_there_is_something_to_compare_it_with(api: Api, case: Case) -> None:
    found = send(api, case, values_of(api, case), headers={"If-Match": '"stale"'})
    assert found.status_code == (412 if immediate_specs()[case.spec].match else 400), found.text
    assert entries(api, case) == []


AT_PROJECT = [one for one in ONE_EACH if one.spec != "create_demo"]
"""Cases of what a project can do without a server."""


@pytest.fixture
def of_file(tmp_path: Path) -> Iterator[App]:
    """A project that is read from its file alone."""
    tmp_path.joinpath("instep.yml").write_text(WITH_CHANNEL)
    with open_project(tmp_path) as app:
        yield app


def test_the_demo_of_a_page_needs_a_server(of_file: App) -> None:
    from instep.backends.local import LocalBackend

    with pytest.raises(Blocked) as error:
        LocalBackend(of_file, None, print).operations.perform(record(immediate_specs()["create_demo"].request, {}))
    assert "instep init --demo" in error.value.hint
    assert not of_file.store.objects.names("source")


MAKING = [
    name for name, spec in immediate_specs().items() if issubclass(spec.request, CreateObjectRequest | PutObjectRequest)
]
"""Operations that make an object, which a project that is read from its file alone would not see."""


@pytest.mark.parametrize("name", MAKING)
def test_what_a_project_would_not_see_is_not_made_but_shown_as_yaml(of_file: App, name: str) -> None:
    """Here and over HTTP; a name of the file is refused as before, and what is pasted is a project file."""
    from instep.backends.local import LocalBackend

    kind, request = name.partition("_")[2], immediate_specs()[name].request
    spec = KEPT[kind][1] if kind in KEPT else {"source": "db", "destination": "lake"}
    with pytest.raises(Blocked) as error:
        LocalBackend(of_file, None, print).operations.perform(record(request, {"name": "made", "spec": spec}))
    assert "instep.yml" in error.value.message
    text = error.value.hint.partition("\n")[2]
    [(plural, section)] = yaml.safe_load(text).items()
    assert section["made"] == spec
    file = yaml.safe_load(WITH_CHANNEL)
    for connection in file["connections"].values():
        connection |= {"source": "db", "destination": "lake"}
    file.setdefault(plural, {})["made"] = section["made"]
    of_file.project.file.write_text(yaml.safe_dump(file))
    assert of_file.refresh() == ""
    assert of_file.objects.get(kind, "made").by == "file"  # type: ignore[arg-type]
    with pytest.raises(Conflict, match="is managed by"):
        LocalBackend(of_file, None, print).operations.perform(record(request, {"name": "made", "spec": spec}))
    method, _, path = immediate_specs()[name].route.partition(" ")
    body = {"spec": spec} if "{name}" in path else {"name": "other", "spec": spec}
    found = serve(of_file).call(method, path.replace("{name}", "other"), body=body)
    assert (found.status_code, "instep.yml" in found.json()["detail"]) == (409, True), found.text
    assert not of_file.store.objects.names(kind)  # type: ignore[arg-type]


@pytest.mark.parametrize("case", AT_PROJECT, ids=[one.spec for one in AT_PROJECT])
def test_a_server_answers_and_notes_what_the_project_does(case: Case, tmp_path: Path) -> None:
    from instep.backends.local import LocalBackend

    answers, noted = [], []
    for at in ("here", "there"):
        (tmp_path / at).mkdir()
        with project(tmp_path / at, WITH_CHANNEL) as app:
            api = serve(app)
            values, spec = values_of(api, case), immediate_specs()[case.spec]
            if at == "here":
                request = record(spec.request, values)
                assert immediate_for(request) is spec
                answers.append(LocalBackend(app, None, print).operations.perform(request))  # type: ignore[arg-type]
            else:
                answers.append(record(result_of(spec), send(api, case, values).json()))
            noted += [(one.action, steady(one.target), steady(one.detail)) for one in entries(api, case)]
    assert noted[0] == noted[1], "what is done at the project is audited, too"
    assert type(answers[0]) is type(answers[1])
    assert steady(answers[0]) == steady(answers[1])


def steady(answer: Any) -> str:
    """Return an answer without its times, its ids and who has asked."""
    text = re.sub(r"datetime\.datetime\([^()]*\([^()]*\)\)|datetime\.datetime\([^()]*\)", "T", repr(answer))
    return re.sub(r"\b[ckjw]-[\w-]+|(who|\w+_by|stop|error|why|prefix|id)='[^']*'|'id': '[^']*'", "-", text)


@pytest.mark.parametrize("spec", [one for one in immediate_specs().values() if "{connection}" in one.route])
def test_a_hidden_connection_is_unknown(api: Api, spec: ImmediateSpec) -> None:
    [case] = [one for one in ONE_EACH if one.spec == spec.name]
    values = {**values_of(api, case), "connection": "us"}
    headers = api.key("admin", "europe")
    found = send(api, case, values, headers=headers)
    assert (found.status_code, found.json()["code"]) == (404, "not_found"), found.text
