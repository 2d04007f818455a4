"""The setup form of a connector, and what it does when it is started by itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sdk_world import World, written

from instep.errors import ReadError
from instep.sources.connector import child
from instep.sources.connector.child import answer
from instep.sources.connector.dialect import SdkDialect
from instep.sources.connector.segment import LogLine

FORM = """
from fivetran_connector_sdk import ConfigurationForm, Test, form_field
def update(configuration, state):
    pass
def reachable(configuration):
    log.info("testing")
    return Test.success() if configuration.get("url") else Test().failure("no url")
def breaks(configuration):
    raise ValueError("broken")
def configuration_form():
    form = ConfigurationForm()
    form.add_field(form_field.TextField("url", "URL", required=True, placeholder="https://"))
    form.add_field(form_field.TextField(name="key", label="Key", field_type=form_field.TextField.Password))
    form.add_field(form_field.DropdownField(name="size", label="Size", values=[10, 100], description="Rows"))
    modes = [form_field.DropdownFieldParam(value="a", label="A")]
    form.add_field(form_field.DropdownField("mode", "Mode", fields=modes))
    form.add_field(form_field.DescriptiveDropdownField(
        name="kind", label="Kind", values=[{"value": "x", "label": "X", "description": "why"}]))
    form.add_field(form_field.ToggleField(name="on", label="On"))
    return form.add_test(reachable, label="Reach it").add_test(breaks)
connector = Connector(update=update, configuration_form=configuration_form)
"""


def test_the_form(world: World) -> None:
    said = answer(SdkDialect(world.config(FORM)), "form", print)
    assert [(f["name"], f["kind"], f["required"]) for f in said["fields"]] == [
        ("url", "text", True), ("key", "password", False), ("size", "dropdown", False), ("mode", "dropdown", False),
        ("kind", "dropdown", False), ("on", "toggle", False),
    ]  # fmt: skip
    assert [v["value"] for v in said["fields"][2]["values"]] == ["10", "100"]
    assert said["fields"][4]["values"] == [{"value": "x", "label": "X", "description": "why"}]
    assert said["tests"] == ["Reach it", "breaks"]


@pytest.mark.parametrize(("configuration", "ok", "message"), [({"url": "x"}, True, ""), ({}, False, "no url")])
def test_its_tests(world: World, configuration: dict[str, str], ok: bool, message: str) -> None:
    lines: list[LogLine] = []
    said = answer(SdkDialect(world.config(FORM, configuration=configuration)), "test", lines.append)
    assert said == [
        {"label": "Reach it", "ok": ok, "message": message},
        {"label": "breaks", "ok": False, "message": "ValueError: broken"},
    ]
    assert [line.message for line in lines] == ["testing"]


def test_without_a_form(world: World) -> None:
    code = "def update(configuration, state):\n    pass"
    assert answer(SdkDialect(world.config(code)), "form", print) == {"fields": [], "tests": []}
    assert answer(SdkDialect(world.config(code)), "test", print) == []


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("return 7", "has to return a ConfigurationForm"),
        ("return ConfigurationForm().add_field('x')", "must be a form_field"),
        ("return ConfigurationForm().add_field(form_field.DropdownField('a', 'A'))", "needs values"),
        ("f = form_field.TextField('a', 'A'); return ConfigurationForm().add_field(f).add_field(f)", "two fields a"),
    ],
)
def test_a_form_that_is_none(world: World, wrong: str, words: str) -> None:
    code = FORM.replace("    form = ConfigurationForm()\n", f"    {wrong}\n")
    with pytest.raises(ReadError, match=words):
        answer(SdkDialect(world.config(code)), "form", print)


MAIN = """
import json
def schema(configuration):
    return [{"table": "t", "primary_key": ["id"]}]
def update(configuration, state):
    log.info("begins at " + str(state.get("at", 0)))
    op.upsert("t", {"id": configuration["id"]})
    op.delete("t", {"id": "2"})
    if configuration["id"] == "bad":
        raise ValueError("bad id")
    op.checkpoint({"at": state.get("at", 0) + 1})
connector = Connector(update=update, schema=schema)
if __name__ == "__main__":
    connector.CALL
"""


def alone(folder: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(Path(child.__file__).parent / "sdk")}
    return subprocess.run([sys.executable, str(folder / "connector.py")], env=env, capture_output=True, text=True)


@pytest.mark.parametrize("call", ["debug()", "run()", "debug(configuration=json.load(open('configuration.json')))"])
def test_started_by_itself(tmp_path: Path, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = written(tmp_path, MAIN.replace("CALL", call), configuration__json='{"id": "1"}')
    for at in (0, 1):
        done = alone(folder)
        assert done.returncode == 0, done.stderr
        assert f"INFO begins at {at}" in done.stdout
        assert "1 upserts, 1 deletes, 1 checkpoints" in done.stdout
        assert json.loads((folder / "files" / "state.json").read_text()) == {"at": at + 1}


def test_a_failure_by_itself_has_an_exit_code(tmp_path: Path) -> None:
    folder = written(tmp_path, MAIN.replace("CALL", "debug()"), configuration__json='{"id": "bad"}')
    done = alone(folder)
    assert (done.returncode, "ValueError: bad id" in done.stderr) == (1, True)
    assert not (folder / "files" / "state.json").exists()


@pytest.mark.parametrize("call", ["debug(configuration={'id': '5'})", "run()"])
def test_debug_does_nothing_in_a_sync(world: World, call: str) -> None:
    code = MAIN.replace('if __name__ == "__main__":\n    ', "").replace("CALL", call)
    sync = world.sync(code, configuration={"id": "1"})
    assert sync.error is None
    assert [r["id"] for r in sync.rows("t")] == ["1", "2"]


def test_operations_outside_of_a_sync_are_refused(tmp_path: Path) -> None:
    folder = written(
        tmp_path, "def update(c, s):\n    pass\nconnector = Connector(update=update)\nop.upsert('t', {})\n"
    )
    assert "only possible while update() runs" in alone(folder).stderr


def test_every_public_name_is_there(world: World) -> None:
    names: Any = ["Connector", "Operations", "Logging", "ConfigurationForm", "Test", "FileUpload", "form_field"]
    code = f"""
        import fivetran_connector_sdk, inspect
        def update(configuration, state):
            for name in {names!r}:
                op.upsert("names", {{"name": name, "there": hasattr(fivetran_connector_sdk, name)}})
            for name in ("upsert", "update", "delete", "truncate", "checkpoint", "warning", "error"):
                op.upsert("calls", {{"call": name + str(inspect.signature(getattr(op, name)))}})
    """
    sync = world.sync(code)
    assert all(r["there"] for r in sync.rows("names"))
    calls = {r["call"].partition("(")[0]: r["call"] for r in sync.rows("calls")}
    assert all("schema" in calls[name] for name in ("upsert", "update", "delete", "truncate"))
    assert all("file" in calls[name] for name in ("upsert", "update"))
    assert "modified" in calls["update"]
    assert "keys" in calls["delete"]
