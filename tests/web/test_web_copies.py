"""Every operation of the page can be copied as a command, as Python and with curl, and what is copied exists."""

from __future__ import annotations

import ast
import inspect
import json
import re
import shlex
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

import instep
from instep.cli.main import app, hoisted
from instep.errors import InstepError
from instep.operations.registry import immediate_specs
from instep.project.load import load
from instep.server.access import NEEDS
from instep.server.web.copies import COMMANDS, copies
from instep.server.web.forms import Action, ActionField, actions

ACTIONS = pytest.mark.parametrize("action", actions().values(), ids=actions())
SPECS = {
    "source": {"type": "postgres", "host": "db.example.org", "database": "d", "user": "u", "password": "s3cr3t-1"},
    "destination": {"type": "iceberg", "properties": {"s3.secret-access-key": "s3cr3t-1"}},
    "policy": {"preset": "approve", "rules": [{"on": ["column.added"], "decide": "apply"}]},
    "channel": {"type": "webhook", "url": "https://example.org/s3cr3t-1", "secret": "whsec_s3cr3t-1"},
    "connection": {"source": "db", "destination": "lake", "salt": "s3cr3t-1"},
    "settings": {"source": "db", "destination": "lake", "salt": "s3cr3t-1"},
}
DOCUMENTS: dict[str, Any] = {
    "group": {"tags": ["eu"], "matching": ["shard_*"], "connections": ["a"], "destinations": ["lake"]},
    "selection": [{"verb": "on", "object": "main.orders"}, {"verb": "hash", "object": "main.person.email"}],
    "change": None,
    "files": {"export.json": {"password": "s3cr3t-3"}},
    "values": {"frequency": 1800, "excluded": ["a", "b"], "enabled": True},
}
TEXTS = {
    "table": "main.orders",
    "old": "main.orders.a",
    "new": "main.orders.b",
    "change": "c-1a2b",
    "key": "k-1a2b",
    "plan": "j-1a2b",
    "job": "j-1a2b",
    "rollout": "w-1a2b",
    "what": "c-1a2b",
    "until": "2999-01-01",
    "duration": None,
    "name": "shop",
    "connection": "shop",
    "at": None,
    "snapshot": "77",
    "preset": None,
}
LINES = {"sizes": ["1", "10%", "rest"], "gates": ["failed=10%"], "objects": ["main.orders"], "ids": ["q-1a2b"]}


def sample(action: Action, one: ActionField) -> Any:
    """Return a value for a field of a form."""
    if one.name == "spec":
        return SPECS[action.name.rpartition("_")[2]]
    match one.control:
        case "flag":
            return True
        case "number":
            return 7
        case "choice":
            return one.choices[0]
        case "document":
            return DOCUMENTS[one.name]
        case "secret":
            return "s3cr3t-2 that is long"
        case "lines":
            return ["main", "orders"] if one.name == "table" else LINES.get(one.name, ["it's", "b"])
    return TEXTS.get(one.name, "it's one")


NEED_ONE_OF_TWO = {"discard_quarantine", "restore"}
"""What is refused without one of two fields, of which neither is required."""


def samples(action: Action) -> Iterator[dict[str, Any]]:
    """Yield values for all fields of a form, and for those alone that it cannot do without."""
    yield {one.name: sample(action, one) for one in action.fields}
    if action.name not in NEED_ONE_OF_TWO:
        yield {one.name: sample(action, one) for one in action.fields if one.required}


ROUTES = [re.sub(r"\{\w+\}", "[^/]+", route) for route in NEEDS]
OF_A_BROWSER = {"save_filter", "delete_filter"}
"""What belongs to the key of a session, which a command at the project does not have."""


def test_no_command_is_of_an_operation_that_is_gone() -> None:
    assert set(COMMANDS) == set(actions()) - OF_A_BROWSER


@ACTIONS
def test_its_command_is_one(action: Action) -> None:
    for values in samples(action):
        if action.name in OF_A_BROWSER:
            assert "CLI" not in copies(action, values, "http://127.0.0.1")
            continue
        lines = copies(action, values, "http://127.0.0.1")["CLI"].splitlines()
        commands = [line for line in lines if not line.startswith("#")]
        assert commands
        for line in commands:
            program, *words = shlex.split(line, comments=True)
            assert program == "instep"
            command: Any = typer.main.get_command(app)
            words = hoisted(words)
            while hasattr(command, "commands"):
                command = command.commands[words.pop(0)]
            command.make_context("instep", words)  # a word or an option that it does not have is an error


@ACTIONS
def test_its_python_calls_what_there_is(action: Action) -> None:
    for values in samples(action):
        tree = ast.parse(copies(action, values, "http://127.0.0.1")["Python"])
        [block] = [one for one in tree.body if isinstance(one, ast.With)]
        assert ast.unparse(block.items[0]) == "instep.open('.') as project"
        for statement in block.body:
            assert isinstance(statement, ast.Expr)
            assert kind_of(statement.value) is not None


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a connection that was synced once."""
    folder = tmp_path_factory.mktemp("copied")
    folder.joinpath("instep.yml").write_text(
        "engine: local\nsources: {db: {type: sqlite, path: shop.db}}\n"
        "destinations: {lake: {type: duckdb, path: lake.db}}\n"
        "connections: {shop: {source: db, destination: lake}}\n"
    )
    with closing(sqlite3.connect(folder / "shop.db")) as database:
        database.executescript(
            "create table orders (id integer primary key, a text); insert into orders values (1, 'x')"
        )
    with instep.open(folder) as opened:
        opened.connection("shop").sync()
    return folder


@ACTIONS
def test_its_python_runs(action: Action, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a project: it is done, or refused with a reason; never an error of Python itself."""
    monkeypatch.chdir(project)
    monkeypatch.setattr("getpass.getpass", lambda _: "typed at a terminal, and long")
    for values in samples(action):
        text = copies(action, values, "http://127.0.0.1").get("Python", "")
        with suppress(InstepError):
            exec(compile(text, action.name, "exec"), {})


def kind_of(node: ast.expr) -> Any:
    """Return the class of what an expression answers; AssertionError for a call that there is not."""
    if isinstance(node, ast.Name):
        return {"project": instep.Project}[node.id]
    if isinstance(node, ast.Attribute):
        found = inspect.getattr_static(kind_of(node.value), node.attr)
        return answer_of(found.fget) if isinstance(found, property) else found
    assert isinstance(node, ast.Call), ast.unparse(node)
    called = kind_of(node.func)
    names = [one.arg for one in node.keywords if one.arg]
    if node.func.attr == "perform":  # type: ignore[attr-defined]
        name = ast.literal_eval(node.args[0])
        fields = set(immediate_specs()[name].request.__dataclass_fields__)
        assert set(names) <= fields
    else:
        plain = [None for one in node.args if not isinstance(one, ast.Starred)]
        inspect.signature(called).bind(None, *plain, **dict.fromkeys(names))
    return answer_of(called)


def answer_of(called: Any) -> Any:
    """Return the class that a method says it answers, or the name of it."""
    name = str(called.__annotations__["return"])
    return getattr(instep, name, name)


@ACTIONS
def test_its_curl_is_the_request(action: Action) -> None:
    values = next(samples(action))
    text = copies(action, values, "http://127.0.0.1")["curl"].replace("\\\n", " ")
    words = shlex.split(text)
    assert words[:3] == ["curl", "-X", action.method]
    method, path = action.method, words[3].removeprefix("http://127.0.0.1/api/v1").partition("?")[0]
    assert any(re.fullmatch(route, f"{method} {path}") for route in ROUTES), path
    assert "$INSTEP_API_KEY" in text
    if "-d" in words:
        assert json.loads(words[words.index("-d") + 1]).keys() == action.body(values).keys()


@ACTIONS
def test_no_copy_tells_a_secret(action: Action) -> None:
    for values in samples(action):
        assert "s3cr3t" not in str(copies(action, values, "http://127.0.0.1"))


@ACTIONS
def test_its_yaml_is_a_part_of_a_project_file(action: Action, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    text = copies(action, next(samples(action)), "http://127.0.0.1").get("YAML", "")
    writes = any(one.name == "spec" for one in action.fields)
    assert bool(text) is (writes or action.name == "switch_selection")
    if not writes or action.name.startswith("patch"):
        return
    document = yaml.safe_load(text)
    document.setdefault("sources", {"db": {"type": "sqlite", "path": "x.db"}})
    document.setdefault("destinations", {"lake": {"type": "iceberg"}})
    tmp_path.joinpath("instep.yml").write_text(yaml.safe_dump(document))
    load(tmp_path / "instep.yml")
