"""Connectors as they are published, and low-code manifests against a server on this machine.

Their packages are installed once, into the cache that all runs share.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from loopback_shop import ITEMS, ORDERS, TOKEN, served

import instep
from instep.errors import ProjectError
from instep.sources.airbyte.config import AirbyteConfig
from instep.sources.airbyte.program import program
from postgres_server import Database

pytestmark = pytest.mark.slow

PROJECT = """\
version: 1
engine: local
sources:
  shop: {{type: airbyte, {source}}}
destinations:
  lake: {{type: duckdb, path: lake.duckdb}}
connections:
  shop: {{source: shop, destination: lake, policy: {policy}}}
"""


def project(folder: Path, source: str, policy: str = "propagate_all") -> Path:
    (folder / "instep.yml").write_text(PROJECT.format(source=source, policy=policy))
    return folder


def rows(opened: Any, sql: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = opened.query(sql).to_arrow().to_pylist()
    return found


@pytest.mark.parametrize(
    ("source", "tables"),
    [
        (
            "package: airbyte-source-hardcoded-records==0.0.48, configuration: {count: 250}",
            {"products": None, "customers": None, "dummy_fields": None},
        ),
        (
            "package: airbyte-source-faker==7.2.1, configuration: {count: 120, seed: 7}",
            {"users": 120, "products": 100, "purchases": None},
        ),
    ],
)
def test_a_published_connector_is_checked_and_read(tmp_path: Path, source: str, tables: dict[str, int | None]) -> None:
    with instep.open(project(tmp_path, source)) as opened:
        assert all(check.ok for check in opened._with_rows().source("shop").test())
        assert opened.connection("shop").sync().status == "done"
        for table, count in tables.items():
            [found] = rows(opened, f"select count(*) as n from shop.{table}")  # noqa: S608
            assert found["n"] == (found["n"] if count is None else count)
            assert found["n"] > 0
        if "faker" in source:
            [user] = rows(opened, "select created_at, age from shop.users where id = 1")
            assert (user["created_at"].year > 1990, isinstance(user["age"], int)) == (True, True)
            opened.connection("shop").sync()
            assert rows(opened, "select count(*) as n from shop.users") == [{"n": 120}]


def test_a_configuration_is_checked_by_the_connectors_own_schema(tmp_path: Path) -> None:
    source = "package: airbyte-source-faker==7.2.1, configuration: {count: none, always_updated: 3}"
    with instep.open(project(tmp_path, source)) as opened:
        with pytest.raises(ProjectError, match="always_updated: must be of type boolean") as raised:
            opened.connection("shop").sync()
        assert "count: must be of type integer" in raised.value.message


def test_a_manifest_reads_pages_and_follows_a_schema_that_drifts(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("SHOP_TOKEN", TOKEN)
    (tmp_path / "items.yaml").write_text(ITEMS)
    with served() as shop:
        shop.items = [{"id": number, "name": f"item {number}"} for number in range(1, 6)]
        source = f"manifest: items.yaml, configuration: {{port: {shop.port}, token: '${{env:SHOP_TOKEN}}'}}"
        with instep.open(project(tmp_path, source)) as opened:
            assert opened.connection("shop").sync().status == "done"
            assert rows(opened, "select id, name from shop.items order by id") == shop.items
            assert {"/items?limit=2", "/items?page=2&limit=2", "/items?page=3&limit=2"} & set(shop.requests)
            assert len(shop.requests) >= 3
            shop.items[0] |= {"color": "red"}
            shop.items.append({"id": 6, "name": None, "color": "blue"})
            assert opened.connection("shop").sync().status == "done"
            found = rows(opened, "select id, color from shop.items order by id")
            assert [found[0]["color"], found[5]["color"]] == ["red", "blue"]
            shop.items[1]["name"] = 17
            opened.connection("shop").sync()
            found = rows(opened, "select id, name from shop.items order by id")
            assert len(found) == 6
            assert str(found[1]["name"]) == "17", "a value of another type is not lost"


def test_a_manifest_reads_on_from_its_state(tmp_path: Path) -> None:
    (tmp_path / "orders.yaml").write_text(ORDERS)
    with served() as shop:
        shop.orders = [{"id": day, "at": f"2026-01-0{day}T00:00:00Z", "total": day} for day in (1, 2, 3)]
        source = f"manifest: orders.yaml, configuration: {{port: {shop.port}}}"
        with instep.open(project(tmp_path, source)) as opened:
            opened.connection("shop").sync()
            assert [one["id"] for one in rows(opened, "select id from shop.orders order by id")] == [1, 2, 3]
            shop.requests.clear()
            shop.orders += [{"id": 4, "at": "2026-01-04T00:00:00Z", "total": 4}]
            shop.orders[0] = {**shop.orders[0], "total": 99}
            opened.connection("shop").sync()
            assert shop.requests
            assert all("since=2026-01-03" in one for one in shop.requests), "not from the start"
            found = {one["id"]: one["total"] for one in rows(opened, "select id, total from shop.orders")}
            assert found == {1: 1, 2: 2, 3: 3, 4: 4}


def types_csv(folder: Path) -> list[dict[str, Any]]:
    """A file with 2,000 rows; the rows as the connector's types have them."""
    found = [
        {
            "id": float(number),
            "name": None if number % 17 == 0 else f'name {number}, "é" {"x" * (number % 40)}',
            "price": None if number % 13 == 0 else number / 8,
            "paid": number % 3 == 0,
        }
        for number in range(1, 2001)
    ]
    with (folder / "sales.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "name", "price", "paid"])
        writer.writerows([int(one["id"]), one["name"], one["price"], one["paid"]] for one in found)
    return found


INTO: dict[str, str] = {
    "iceberg": "{{type: iceberg, warehouse: lake}}",
    "postgres": "{{type: postgres, host: '{host}', port: {port}, database: {database}, user: {user}, "
    "password: '${{env:PG_PASSWORD}}'}}",
}


def opened_into(into: str, folder: Path, source: str, postgres: Database, patch: pytest.MonkeyPatch) -> Any:
    """Open a project whose connection loads into Iceberg or PostgreSQL."""
    c = postgres.config
    patch.setenv("PG_PASSWORD", c.password or "none")
    place = INTO[into].format(host=c.host, port=c.port, database=c.database, user=c.user)
    text = PROJECT.format(source=source, policy="propagate_all")
    (folder / "instep.yml").write_text(text.replace("{type: duckdb, path: lake.duckdb}", place))
    return instep.open(folder)


@pytest.mark.parametrize("into", INTO)
def test_a_local_file_arrives_row_by_row(
    into: str, tmp_path: Path, postgres: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = types_csv(tmp_path)
    file = f"{{dataset_name: sales, format: csv, url: '{tmp_path}/sales.csv', provider: {{storage: local}}}}"
    source = f"package: airbyte-source-file==0.5.38, configuration: {file}"
    with opened_into(into, tmp_path, source, postgres, monkeypatch) as opened:
        for _ in range(2):
            assert opened.connection("shop").sync().status == "done"
            query = "select id, name, price, paid from shop.sales where _instep_deleted is not true order by id"
            found = rows(opened, query)
            assert found == expected
            expected = expected[:1500]
            lines = (tmp_path / "sales.csv").read_text(encoding="utf-8").splitlines(keepends=True)
            (tmp_path / "sales.csv").write_text("".join(lines[:1501]), encoding="utf-8")


LISTENS = """\
#!/usr/bin/env bash
set -o pipefail
if [ "$1" = read ]; then {program} "$@" | tee "{folder}/$(date +%s%N).jsonl"; else exec {program} "$@"; fi
"""


def listened(folder: Path, package: str) -> str:
    """Return the command of a connector whose output is stored in the folder as well, a file for each read."""
    config = AirbyteConfig.resolved(package=package, configuration={}, name="shop", folder=str(folder))
    script = folder / "listens.sh"
    script.write_text(LISTENS.format(program=" ".join(program(config, lambda line: None).argv), folder=folder))
    script.chmod(0o700)
    return str(script)


def sent(folder: Path) -> list[dict[str, list[dict[str, Any]]]]:
    """Return the records of each read by stream."""
    found: list[dict[str, list[dict[str, Any]]]] = []
    for file in sorted(folder.glob("*.jsonl")):
        messages = map(json.loads, file.read_text(encoding="utf-8").splitlines())
        records = [one["record"] for one in messages if one["type"] == "RECORD"]
        found.append({})
        for record in records:
            found[-1].setdefault(record["stream"], []).append(record["data"])
    return found


def comparable(row: dict[str, Any]) -> str:
    """Return a row as a text that is equal for equal values; empty and absent ones are one."""
    return json.dumps({name: plain(value) for name, value in row.items() if value is not None}, sort_keys=True)


def plain(value: Any) -> Any:
    if isinstance(value, str) and value[:1] in ("{", "["):
        return json.loads(value)
    if isinstance(value, str) and re.match(r"\d{4}-\d\d-\d\dT", value):
        value = datetime.fromisoformat(value)
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC).isoformat()
    return float(value) if isinstance(value, int | Decimal) else value


@pytest.mark.parametrize("into", INTO)
@pytest.mark.parametrize(
    ("package", "settings", "key"),
    [
        ("airbyte-source-faker==7.2.1", "{count: 1200, seed: 7, records_per_slice: 100}", "id"),
        ("airbyte-source-hardcoded-records==0.0.48", "{count: 700}", ""),
    ],
    ids=["faker", "hardcoded-records"],
)
def test_the_records_of_a_published_connector_arrive_one_by_one(
    into: str,
    package: str,
    settings: str,
    key: str,
    tmp_path: Path,
    postgres: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Records without a key replace those of the read before, equal ones are as many as came."""
    source = f"command: ['{listened(tmp_path, package)}'], configuration: {settings}"
    with opened_into(into, tmp_path, source, postgres, monkeypatch) as opened:
        for number in (1, 2):
            assert opened.connection("shop").sync().status == "done"
            reads = sent(tmp_path)
            assert len(reads) == number
            expected = reads[-1]
            if key:
                each = {name: {one[key]: one for read in reads for one in read.get(name, ())} for name in reads[0]}
                expected = {name: list(found.values()) for name, found in each.items()}
            assert len(expected) == 3
            for name, records in expected.items():
                loaded = rows(opened, f"select * from shop.{name} where _instep_deleted is not true")  # noqa: S608
                found = [{c: value for c, value in row.items() if not c.startswith("_instep")} for row in loaded]
                assert Counter(map(comparable, found)) == Counter(map(comparable, records)), name
