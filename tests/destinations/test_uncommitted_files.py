"""What lands in a table's folders between their listing and the deleting is never deleted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import delta_world
import duckdb_world
import pytest

from instep.destinations.delta import retention
from instep.destinations.iceberg.destination import IcebergConfig, IcebergDestination
from instep.destinations.iceberg.maintain import expire
from instep.destinations.sql import staged
from lake import REF, create

DEAD, LIVE = "r-20260101-000000-aaaaaa", "r-20260101-000001-bbbbbb"


def iceberg(folder: Path) -> IcebergDestination:
    lake = IcebergDestination(IcebergConfig.resolved(name="lake", warehouse=str(folder / "lake")))
    create(lake)
    return lake


# the destination, the module that lists its folders, a file of a dead run with fence 7
KINDS: list[tuple[Callable[[Path], Any], Any, str]] = [
    (iceberg, expire, "upsert-7-abc.parquet"),
    (lambda folder: delta_world.Warehouse(folder).to, retention, f"{DEAD}-00000.parquet"),
    (lambda folder: duckdb_world.Warehouse(folder).to, staged, f"{DEAD}/part.parquet"),
]


def put(file: Path) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"PAR1")
    return file


@pytest.mark.parametrize(("make", "module", "name"), KINDS, ids=["iceberg", "delta", "duckdb"])
@pytest.mark.parametrize("place", ["location", "quarantine"])
def test_a_file_that_lands_after_the_listing_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], Any], module: Any, name: str, place: str
) -> None:
    to = make(tmp_path)
    folder = Path(getattr(to.write.target(REF), place).removeprefix("file://"))
    dead = put(folder / (name if place == "location" else f"{DEAD}-00000-0.parquet"))
    landed, listed = list[Path](), module.children

    def children(uri: str, io: Any) -> Any:
        names = listed(uri, io)
        if Path(uri.removeprefix("file://")) == folder:
            landed.append(put(folder / f"{LIVE}-{len(landed)}.parquet"))
        return names

    monkeypatch.setattr(module, "children", children)
    to.lifecycle.remove_uncommitted_files(REF, {DEAD: 7})
    assert landed
    assert all(file.exists() for file in landed)
    assert not dead.exists()
