"""Upgrades of a connector: both versions side by side, the pin in instep.yml, the way back, deadlines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

import instep
from airbyte_wheels import INTEGER, TEXT, connector_wheel, stream, wheel
from command_runs import run
from instep.errors import Blocked, InstepError, ProjectError
from instep.operations.set_up.upgrade_source import UpgradeSourceRequest
from instep.store.catalogs.airbyte_states import rolled_back

PROJECT = """\
version: 1
engine: local
sources:
  shop:   # the team's shop
    type: airbyte
    package: airbyte-source-shop==1.0.0   # reviewed in March
    configuration: {{count: 3, region: eu}}
{metadata}
destinations:
  lake: {{type: duckdb, path: lake.duckdb}}
connections:
  shop: {{source: shop, destination: lake, policy: approve}}
"""
SPEC = {
    "type": "object",
    "required": ["count"],
    "properties": {"count": {"type": "integer"}, "region": {"type": "string"}},
}
NEEDS_KEY = {
    "type": "object",
    "required": ["count", "api_key"],
    "properties": {
        "count": {"type": "integer"},
        "api_key": {"type": "string", "airbyte_secret": True, "description": "The key of your account"},
    },
}
USERS = stream(name=TEXT, old=TEXT, at={"type": "string", "format": "date-time"})
ORDERS = stream("orders", total=INTEGER)
OTHER_USERS = stream(name=INTEGER, at={"type": "string", "format": "date-time"}, note=TEXT, key=("id", "name"))


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Versions of one connector; each environment is made once for all tests."""
    folder = tmp_path_factory.mktemp("packages")
    connector_wheel(folder, "1.0.0", specification=SPEC, streams=[USERS, ORDERS])
    connector_wheel(folder, "1.1.0", specification=SPEC, streams=[USERS, ORDERS])
    connector_wheel(
        folder, "2.0.0", specification=SPEC, streams=[{**OTHER_USERS, "supported_sync_modes": ["full_refresh"]}]
    )
    events = [stream("users", key=())]
    connector_wheel(folder, "1.2.0", specification=SPEC, streams=events)
    connector_wheel(folder, "1.3.0", specification=SPEC, streams=events)
    connector_wheel(folder, "3.0.0", specification=NEEDS_KEY, streams=[USERS])
    connector_wheel(folder, "4.0.0", specification=SPEC, exit={"discover": 1}, streams=[])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_NO_INDEX", "1")
        patch.setenv("PIP_FIND_LINKS", str(folder))
        patch.setenv("INSTEP_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield folder


@pytest.fixture
def folder(packages: Path, tmp_path: Path) -> Path:
    return project(tmp_path)


def project(place: Path, changes: dict[str, Any] | None = None) -> Path:
    metadata = ""
    if changes is not None:
        (place / "metadata.yaml").write_text(json.dumps({"data": {"releases": {"breakingChanges": changes}}}))
        metadata = "    metadata: metadata.yaml"
    (place / "instep.yml").write_text(PROJECT.format(metadata=metadata))
    return place


def kinds(document: Any) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for one in document["differences"]:
        found.setdefault(one["kind"], []).append(f"{one['stream']}: {one['text']}".removeprefix(": "))
    return found


def test_both_versions_are_compared_and_nothing_is_written(folder: Path) -> None:
    text = (folder / "instep.yml").read_text()
    with instep.open(folder) as opened:
        shop = opened.connection("shop")
        shop.sync()
        reviews = list(opened.changes())
        made = shop.preview(UpgradeSourceRequest(to="2.0.0"))
        assert kinds(made.document) == {
            "schema": ["users: column name: string becomes int64", "users: new column note (string)"],
            "removal": ["orders: the stream is no longer offered", "users: column old is no longer sent"],
            "format": ["users: key (id) becomes (id, name): rows are found by other columns, a full refresh is needed"],
            "state": ["users: can no longer be read incrementally: each sync reads all rows"],
        }
        [outlook] = made.document["connections"]
        planned = "\n".join(outlook["plan"])
        assert "users.old" in planned
        assert "orders" in planned
        assert list(opened.changes()) == reviews, "what was planned is not on record"
        assert shop.preview(UpgradeSourceRequest(to="1.1.0")).document["differences"] == []
        with pytest.raises(InstepError, match=r"uses airbyte-source-shop==1\.0\.0 already"):
            shop.preview(UpgradeSourceRequest(to="1.0.0"))
    assert (folder / "instep.yml").read_text() == text


def test_an_upgrade_keeps_the_states_and_a_rollback_brings_the_earlier_ones_back(folder: Path) -> None:
    text = (folder / "instep.yml").read_text()
    with instep.open(folder) as opened:
        shop = opened.connection("shop")
        shop.sync()
        done = shop.upgrade_source("1.1.0")
        assert (done["before"], done["after"]) == ("airbyte-source-shop==1.0.0", "airbyte-source-shop==1.1.0")
    assert (folder / "instep.yml").read_text() == text.replace("==1.0.0", "==1.1.0")
    with instep.open(folder) as opened:
        shop = opened.connection("shop")
        shop.sync()
        assert rows(opened) == [1, 2, 3, 4, 5, 6], "the state stayed"
        assert state_of(folder) == {"at": 6, "by": "1.1.0"}
        assert "goes back to its state" in "\n".join(shop.preview(UpgradeSourceRequest(rollback=True)).lines)
        shop.upgrade_source(rollback=True)
        assert state_of(folder) == {"at": 3, "by": "1.0.0"}
        with pytest.raises(InstepError, match="no upgrade to"):
            shop.upgrade_source(rollback=True)
    assert (folder / "instep.yml").read_text() == text
    with instep.open(folder) as opened:
        opened.connection("shop").sync()
        assert rows(opened) == [1, 2, 3, 4, 5, 6], "what came again was found by its key"


def test_a_rollback_doubles_and_leaves_no_row_without_a_key(packages: Path, tmp_path: Path) -> None:
    file = project(tmp_path) / "instep.yml"
    file.write_text(file.read_text().replace("==1.0.0", "==1.2.0"))
    with instep.open(tmp_path) as opened:
        shop = opened.connection("shop")
        shop.sync()
        shop.upgrade_source("1.3.0")
        shop.sync()
        assert state_of(tmp_path)["by"] == "1.3.0", "the project that is open runs it"
        shop.sync()
        shop.upgrade_source(rollback=True)
        shop.sync()
        assert rows(opened) == [1, 2, 3, 4, 5, 6], "what the earlier version has not sent again is not there"
        shop.upgrade_source("1.3.0")
        shop.sync(full=True)
        shop.sync()
        shop.sync()
        assert rows(opened) == list(range(1, 10))
        shop.upgrade_source(rollback=True)
        shop.sync()
        assert rows(opened) == [1, 2, 3], "the rows of the earlier state were replaced, so the stream begins again"


@pytest.mark.parametrize(
    ("earlier", "expected"),
    [
        ({"type": "STREAM", "streams": ["a", "b"]}, (["b"], ["a"])),
        ({"type": "GLOBAL", "shared": 1, "streams": ["a", "b"]}, (["b"], ["a"])),
        ({"type": "GLOBAL", "shared": 1, "streams": ["a"]}, ([], ["a", "b"])),
        ({"type": "GLOBAL", "shared": 1, "streams": []}, ([], ["a", "b"])),
        ({"type": "LEGACY", "legacy": {"at": 1}}, ([], ["a", "b"])),
    ],
)
def test_streams_begin_again_that_were_read_from_their_first_record_before_a_rollback(
    earlier: dict[str, Any], expected: tuple[list[str], list[str]]
) -> None:
    streams = [{"name": name, "state": {"at": 1}} for name in earlier.get("streams", ())]
    numbers = {"generations": [["", "a", 1], ["", "b", 1]], "records": [["", "a", 7, False], ["", "b", 7, False]]}
    old = {"airbyte": 1, **earlier, **({"streams": streams} if "streams" in earlier else {}), **numbers}
    now = {**old, "generations": [["", "a", 2], ["", "b", 1]], "ends": [["", "a", 99], ["", "b", 9]]}
    state = rolled_back(now, old)
    replaced = [name for _, name, _, replaces in state["records"] if replaces]
    assert ([one["name"] for one in state.get("streams", ())], replaced) == expected
    assert state["generations"] == now["generations"]
    assert rolled_back({**now, "generations": old["generations"]}, old) == {**old, "ends": now["ends"]}


def rows(opened: Any) -> list[int]:
    table = opened.query("select id from shop.users where not _instep_deleted order by id").to_arrow()
    return [int(one) for one in table.column("id").to_pylist()]


def state_of(folder: Path) -> Any:
    with instep.open(folder) as opened:
        document = opened._with_rows().store.connectors.get("shop").state
        return next(one["state"] for one in document["streams"] if one["name"] == "users")


def test_a_configuration_that_does_not_fit_blocks_the_upgrade_without_its_values(folder: Path) -> None:
    with instep.open(folder) as opened:
        shop = opened.connection("shop")
        made = shop.preview(UpgradeSourceRequest(to="3.0.0"))
        assert kinds(made.document)["spec"] == [
            "api_key: is required (The key of your account)",
            "region: is no longer known, and is set",
        ]
        with pytest.raises(Blocked, match="api_key: is required"):
            shop.run(made)
    assert "==1.0.0" in (folder / "instep.yml").read_text()


def test_a_version_that_fails_or_is_not_there_changes_nothing(folder: Path) -> None:
    with instep.open(folder) as opened:
        shop = opened.connection("shop")
        with pytest.raises(InstepError, match="`discover` gave no answer"):
            shop.preview(UpgradeSourceRequest(to="4.0.0"))
        with pytest.raises(InstepError, match=r"airbyte-source-shop==9\.9\.9"):
            shop.preview(UpgradeSourceRequest(to="9.9.9"))
        with pytest.raises(InstepError, match="rollback goes"):
            UpgradeSourceRequest(to="1.1.0", rollback=True)


def test_the_command_shows_asks_and_writes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--project", str(folder), "source", "upgrade", "shop")
    deadline = str(date.today() + timedelta(days=100))
    changes = {
        "1.1.0": {
            "message": "Names are trimmed",
            "upgradeDeadline": deadline,
            "migrationDocumentationUrl": "https://example.com/up",
        }
    }
    (folder / "more.yaml").write_text(json.dumps({"releases": {"breakingChanges": changes}}))
    said = run(capsys, *words, "--to", "1.1.0", "--metadata", str(folder / "more.yaml"), "--dry-run")
    assert said.code == 0
    assert f"version 1.1.0, by {deadline}: Names are trimmed (https://example.com/up)" in said.out
    assert "==1.0.0" in (folder / "instep.yml").read_text()
    said = run(capsys, *words, "--to", "1.1.0", "--output", "json")
    assert (said.code, said.json["applied"], said.json["after"]) == (0, True, "airbyte-source-shop==1.1.0")
    assert run(capsys, *words[:-1], "till", "--dry-run").code == 1
    said = run(capsys, *words, "--rollback")
    assert (said.code, "uses airbyte-source-shop==1.0.0 from now on" in said.out) == (0, True)


PASSED, AHEAD = "2020-01-31", "2999-01-31"
ORDERS_ONLY = [{"scopeType": "stream", "impactedScopes": ["orders"]}]


@pytest.mark.parametrize(
    ("change", "paused"),
    [
        ({"upgradeDeadline": PASSED}, True),
        ({"upgradeDeadline": AHEAD}, False),
        ({}, False),
        ({"upgradeDeadline": PASSED, "deadlineAction": "auto_upgrade"}, False),
        ({"upgradeDeadline": PASSED, "scopedImpact": [{"scopeType": "stream", "impactedScopes": ["users"]}]}, True),
        ({"upgradeDeadline": PASSED, "scopedImpact": [{"scopeType": "stream", "impactedScopes": ["gone"]}]}, False),
    ],
)
def test_a_version_whose_deadline_has_passed_pauses_its_connection(
    packages: Path, tmp_path: Path, change: dict[str, Any], paused: bool
) -> None:
    with instep.open(project(tmp_path)) as opened:
        opened.connection("shop").sync()
    project(tmp_path, {"1.1.0": {"message": "Names are trimmed", **change}, "0.9.0": {"upgradeDeadline": PASSED}})
    with instep.open(tmp_path) as opened:
        shop, store = opened.connection("shop"), opened._with_rows().store
        if not paused:
            assert any("Names are trimmed" in note for note in shop.sync().notes) == ("gone" not in str(change))
            assert store.pauses.connection("shop") is None
            return
        with pytest.raises(
            Blocked, match=r"could be used until 2020-01-31.*1\.1\.0 became necessary: Names"
        ) as blocked:
            shop.sync()
        assert "instep source upgrade shop" in blocked.value.hint
        assert store.pauses.connection("shop") is not None
        assert shop.upgrade_source("1.1.0")["resumed"] == ["shop"]
    with instep.open(tmp_path) as opened:
        opened.connection("shop").sync()


def test_a_pause_ends_once_its_reason_is_gone(packages: Path, tmp_path: Path) -> None:
    project(tmp_path, {"1.1.0": {"upgradeDeadline": PASSED}})
    with instep.open(tmp_path) as opened, pytest.raises(Blocked, match="is paused"):
        opened.connection("shop").sync()
    project(tmp_path, {})
    with instep.open(tmp_path) as opened:
        opened.connection("shop").sync()


def test_models_that_break_are_named(packages: Path, tmp_path: Path) -> None:
    project(tmp_path)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "old_names.sql").write_text("select old from shop.users")
    text = (
        (tmp_path / "instep.yml")
        .read_text()
        .replace("policy: approve}", "policy: propagate_all, downstream: {sql: [models]}}")
    )
    (tmp_path / "instep.yml").write_text(text)
    with instep.open(tmp_path) as opened:
        shop = opened.connection("shop")
        shop.sync()
        [outlook] = shop.preview(UpgradeSourceRequest(to="2.0.0")).document["connections"]
        assert outlook["trouble"] == ""
        assert "old_names" in outlook["models"]["breaks"]


@pytest.mark.parametrize(
    ("section", "why"),
    [
        ("package: airbyte-source-shop==1.0.0", ""),
        ("package: ${env:SHOP_PACKAGE}", "is a reference"),
        ("command: [cat]", "only the `package`"),
    ],
)
def test_what_cannot_be_written_is_said(
    packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, section: str, why: str
) -> None:
    monkeypatch.setenv("SHOP_PACKAGE", "airbyte-source-shop==1.0.0")
    text = (project(tmp_path) / "instep.yml").read_text().replace("package: airbyte-source-shop==1.0.0", section)
    (tmp_path / "instep.yml").write_text(text)
    with instep.open(tmp_path) as opened:
        shop = opened.connection("shop")
        if not why:
            shop.upgrade_source("1.1.0")
            return
        with pytest.raises(ProjectError, match=why):
            shop.upgrade_source("1.1.0")
    assert (tmp_path / "instep.yml").read_text() == text


def test_without_a_version_the_newest_of_the_index_is_taken(packages: Path, tmp_path: Path) -> None:
    wheel(packages, "airbyte-source-till", "1.0.0", {})
    connector_wheel(packages, "1.0.0", "airbyte-source-till", specification=SPEC)
    connector_wheel(packages, "1.2.0", "airbyte-source-till", specification=SPEC)
    connector_wheel(packages, "2.0.0rc1", "airbyte-source-till", specification=SPEC)
    file = project(tmp_path) / "instep.yml"
    file.write_text(file.read_text().replace("airbyte-source-shop", "airbyte-source-till"))
    with instep.open(tmp_path) as opened:
        made = opened.connection("shop").preview(UpgradeSourceRequest())
        assert made.document["after"] == "airbyte-source-till==1.2.0"
