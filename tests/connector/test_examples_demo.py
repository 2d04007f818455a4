"""`instep connector demo`: five days of a connector, as `make connector-demo` plays them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from instep.bootstrap import open_project
from instep.cli.main import main
from instep.project.connector_demo.days import begin_day, days, make
from instep.sync.query import ask


def test_every_day_changes_the_shape_of_some_records() -> None:
    shapes = [
        {
            "declared": day["tables"],
            "sent": {(t, n) for t, records in day["records"].items() for r in records for n in r},
        }
        for day in days()
    ]
    assert [day["day"] for day in days()] == [1, 2, 3, 4, 5]
    assert all(a != b for a, b in pairwise(shapes))


@pytest.mark.slow
def test_the_demo_plays_to_its_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "demo"
    assert main(["connector", "demo", "--project", str(folder)]) == 0
    told = "".join(capsys.readouterr())
    for line in (
        "table shop.refund added", "~ column order.id widened from int32 to int64", "half a dozen",
        "order: 1 replayed", "customer.mail is read from email and keeps its values",
        "primary key of order changed from (id) to (shop, id)",
    ):  # fmt: skip
        assert line in told
    with open_project(folder) as app:
        lake = app.destination()
        orders = ask(lake, 'select shop, id, pieces from shop."order" order by shop').rows
        customers = ask(lake, "select id, email from shop.customer order by id").rows
    assert orders == [("app", 15, "2"), ("web", 15, "1")]
    assert customers == [(n, f"{who}@example.org") for n, who in enumerate(("ann", "bo", "cy", "di"), 1)]


def test_an_earlier_demo_is_replaced(tmp_path: Path) -> None:
    make(tmp_path / "demo")
    begin_day(tmp_path / "demo", days()[2])
    make(tmp_path / "demo")
    assert [p.name for p in (tmp_path / "demo" / "shop").iterdir()] == ["connector.py"]


def test_the_demo_never_replaces_another_project(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "instep.yml").write_text("version: 1\n")
    assert main(["connector", "demo", "--project", str(tmp_path)]) == 1
    assert "not the demo" in capsys.readouterr().err
    assert (tmp_path / "instep.yml").read_text() == "version: 1\n"
