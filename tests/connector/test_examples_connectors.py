"""The examples of examples/connectors, run as they are into DuckDB and Iceberg: every row of every table."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from trial_world import EXAMPLES, Trial, example

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")  # pyspark's, of finished jobs

Rows = list[tuple[Any, ...]]
WHERE = {"duckdb": ["debug"], "iceberg": ["run", "--destination", "LAKE"]}


@pytest.fixture(params=["duckdb", pytest.param("iceberg", marks=pytest.mark.slow)])
def into(request: pytest.FixtureRequest) -> list[str]:
    """The verb that runs a connector into DuckDB or Iceberg."""
    return WHERE[request.param]


def run(trial: Trial, into: list[str]) -> Any:
    verb, *words = (w.replace("LAKE", str(trial.folder / "files" / "lake")) for w in into)
    return trial.json(verb, *words)


def table(trial: Trial, columns: str, name: str, order: str = "1, 2") -> Rows:
    return trial.asked(f'select {columns} from main."{name}" order by {order}')  # noqa: S608


def as_json(rows: Iterable[tuple[Any, ...]], place: int) -> Rows:
    """With the JSON text at `place` read."""
    return [(*r[:place], json.loads(r[place]), *r[place + 1 :]) for r in rows]


def test_each_example_has_what_the_readme_says() -> None:
    folders = {p.name for p in EXAMPLES.iterdir() if p.is_dir()}
    listed = {
        line.split("[")[1].split("]")[0] for line in (EXAMPLES / "README.md").read_text().splitlines() if "| [" in line
    }
    assert folders == listed
    for name in folders:
        assert {"connector.py", "configuration.json", "README.md"} <= {p.name for p in (EXAMPLES / name).iterdir()}


@pytest.mark.sampled
@pytest.mark.parametrize("name", sorted(p.name for p in EXAMPLES.iterdir() if p.is_dir()))
def test_nothing_in_an_example_looks_wrong(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = example(name, tmp_path, capsys).json("check")["findings"]
    assert [f for f in found if f["severity"] == "warn"] == []


def test_static_schema(into: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trial = example("static_schema", tmp_path, capsys)
    first, second = run(trial, into)["operations"], run(trial, into)["operations"]
    assert (first["upserts"], first["checkpoints"], second["upserts"]) == (130, 3, 130)
    assert table(trial, "isbn, title, published, price, pages, in_print, subtitle", "book") == [
        (f"978-{n:04}", f"Volume {n}", date(1990, 1, 1) + timedelta(days=100 * n), n + Decimal("0.50"), 100 + n,
         n % 3 != 0, None)
        for n in range(10)
    ]  # fmt: skip
    start = datetime(2026, 1, 1, 9, 30, tzinfo=UTC)
    expected = [
        (n, f"978-{n % 10:04}", start + timedelta(hours=n), (start + timedelta(days=28, hours=n)).replace(tzinfo=None),
         n / 4, {"card": n * 7, "branch": "north" if n % 2 else "south"}, n.to_bytes(2, "big"))
        for n in range(1, 241)
    ]  # fmt: skip
    loans = table(trial, "id, isbn, lent_at, due_at, fee, reader, barcode", "loan")
    assert as_json(loans, 5) == expected


def test_parent_and_child_tables(into: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trial = example("parent_child", tmp_path, capsys)
    run(trial, into)
    assert table(trial, "company_id, name, founded, contact_email, contact_phone", "company") == [
        (1, "Fjord Foods", 1998, "post@fjord.example", None),
        (2, "Alp Tools", 2011, "hi@alp.example", "+41 1"),
        (3, "Solo", 2024, None, None),
    ]
    assert table(trial, "company_id, code, name, head", "department") == [
        (1, "HR", "People", "Ann"), (1, "RD", "Research", None), (2, "RD", "Design", None),
    ]  # fmt: skip
    file = trial.folder / "companies.json"
    file.write_text(file.read_text().replace(', {"city": "Bergen", "desks": 12}', ""))
    assert run(trial, into)["operations"]["deletes"] == 1
    assert table(trial, "company_id, position, city, desks, _instep_deleted", "office") == [
        (1, 0, "Oslo", 40, False), (1, 1, "Bergen", 12, True), (2, 0, "Bern", 8, False),
    ]  # fmt: skip


def test_dynamic_schema(into: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trial = example("dynamic_schema", tmp_path, capsys)
    run(trial, into)
    assert table(trial, "id, label", "empty_shelf") == []
    file = trial.folder / "garage.sql"
    more = "DELETE FROM repair WHERE number = 2; CREATE TABLE tool (name TEXT PRIMARY KEY);"
    file.write_text("\n".join([file.read_text(), more, "INSERT INTO tool VALUES ('jack');"]))
    assert run(trial, into)["schema"] == ["+ table tool added (1 column)", "    name string, key 1, not null"]
    assert table(trial, "plate, model, built, tank, sold, _instep_deleted", "car") == [
        ("AB 1", "Falcon", 2019, 47.5, date(2026, 2, 1), False), ("CD 2", "Heron", 2021, None, None, False),
    ]  # fmt: skip
    assert table(trial, "plate, number, cost, note, photo, _instep_deleted", "repair") == [
        ("AB 1", 1, Decimal("120.50"), "brakes", b"\x01\x02", False),
        ("AB 1", 2, Decimal("80.00"), None, None, True),
        ("CD 2", 1, Decimal("9.99"), "wiper", b"\xff", False),
    ]
    assert table(trial, "name, _instep_deleted", "tool") == [("jack", False)]


def test_inferred_schema(into: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trial = example("inferred_schema", tmp_path, capsys)
    run(trial, into)
    columns = "sensor, read_at, celsius, raining, humidity, tags, place"
    rows = table(trial, f"{columns}, length(_instep_id)", "reading", "sensor, read_at, humidity")
    assert [(*r[:5], r[5] and json.loads(r[5]), r[6] and json.loads(r[6]), r[7]) for r in rows] == [
        ("cellar", "2026-03-01T10:00:00Z", 11.0, None, 80, None, None, 64),
        ("cellar", "2026-03-01T11:00:00Z", 11.0, None, 81, ["damp", "dark"], {"floor": -1}, 64),
        ("roof", "2026-03-01T10:00:00Z", 4.5, True, None, None, None, 64),
        ("roof", "2026-03-01T11:00:00Z", 5.25, False, None, None, None, 64),
    ]
    assert "battery" not in trial.tables()["reading"]
    file = trial.folder / "readings.jsonl"
    file.write_text(
        file.read_text() + '{"sensor": "roof", "read_at": "2026-03-01T12:00:00Z", "celsius": 6, "battery": 0.5}\n'
    )
    assert run(trial, into)["operations"]["upserts"] == 1
    assert table(trial, "sensor, celsius, battery", "reading", "read_at desc limit 1") == [("roof", 6.0, 0.5)]


def test_composite_key(into: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trial = example("composite_key", tmp_path, capsys)
    run(trial, into)
    counts = run(trial, into)["operations"]
    assert (counts["upserts"], counts["updates"], counts["deletes"]) == (12, 2, 1)
    first = datetime(2026, 5, 1, tzinfo=UTC)
    assert table(trial, "station_id, measured_at, level, checked, _instep_deleted", "measurement") == [
        (s, first + timedelta(hours=h), s + h / 10, s > 1 and h == 3, (s, h) == (1, 3))
        for s in (1, 2, 3)
        for h in range(8)
    ]


def test_a_schema_that_changes(into: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trial = example("changing_schema", tmp_path, capsys)
    changes = []
    for version in ("1", "2", "3"):
        trial.configure(version=version)
        changes.append([line for line in run(trial, into)["schema"] if not line.startswith(" ")])
    assert changes == [
        ["+ table order added (3 columns)"],
        ["+ column order.gift added (boolean)", "+ table refund added (3 columns)"],
        ["~ column order.pieces widened from int32 to int64"],
    ]
    assert table(trial, "id, city, pieces, gift", "order") == [
        (1, "Oslo", 2, None), (2, "Bern", 1, True), (3, None, 5_000_000_000, False), (4, None, 1, True),
    ]  # fmt: skip
    assert table(trial, "id, order_id, reason", "refund") == [(1, 1, "late")]
    assert set(trial.tables()) == {"order", "refund"}
