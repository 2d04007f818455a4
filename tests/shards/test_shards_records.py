"""What properties of an Iceberg table say of its shards, and which snapshots may go: from metadata alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from instep.destinations.base import PartChange
from instep.destinations.iceberg.maintain.expire import expired_snapshots
from instep.destinations.iceberg.metadata.records import exact_rows, is_rolled_back
from instep.destinations.iceberg.metadata.shards import (
    as_shard,
    grown,
    own_name,
    part_properties,
    part_table,
    projected,
    shape_of,
    shard_key_of,
    shards_of,
    totals,
)
from instep.schema.maintenance import Maintenance
from lake import ORDERS

SHARD = "_instep_shard"
PART = PartChange("eu", SHARD, 7, ORDERS, 3)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("instep.fence", "instep.shard.eu.fence"),
        ("instep.state", "instep.shard.eu.state"),
        ("instep.columns", "instep.columns"),
        ("fence", "fence"),
        ("write.parquet.compression-codec", "write.parquet.compression-codec"),
    ],
)
def test_names(name: str, expected: str) -> None:
    assert own_name("eu", name) == expected


def test_a_shard_sees_what_is_its_own() -> None:
    made = part_properties({}, PART)
    made |= part_properties(made, PartChange("eu-2", SHARD, 9, ORDERS, 4))
    made |= {"instep.fence": "0", "instep.run": "r", "instep.table": "{}", own_name("eu", "instep.run"): "mine"}
    assert (shards_of(made), shape_of(made), shard_key_of(made)) == (["eu", "eu-2"], 5, None)
    found = [as_shard(made, (SHARD, name)) for name in ("eu", "eu-2", "eu-")]
    assert found[2] is None
    eu, other = (one or {} for one in found[:2])
    assert (eu["instep.fence"], eu["instep.run"], eu["instep.table"]) == ("7", "mine", "{}")
    assert (other["instep.fence"], "instep.run" in other) == ("9", False)
    assert (shard_key_of(eu), shard_key_of(other)) == ((SHARD, "eu"), (SHARD, "eu-2"))
    assert eu["instep.place"] != other["instep.place"]
    assert part_table(made, "eu", ORDERS) == ORDERS


def test_a_shard_that_begins_anew_keeps_its_place_and_has_no_load() -> None:
    before = part_properties({}, PART)
    anew = part_properties(before, PartChange("eu", SHARD, 8, ORDERS, 4, replaces_rows=True))
    assert anew[own_name("eu", "instep.state")] == "null"
    assert own_name("eu", "instep.place") not in anew


def test_totals_of_a_shard_are_those_of_its_commits() -> None:
    first = grown({}, [{"added-records": "5", "added-data-files": "2", "added-files-size": "100"}])
    then = grown(first, [{"added-position-deletes": "1", "added-delete-files": "1", "added-files-size": "7"},
                         {"deleted-records": "3", "deleted-data-files": "1", "removed-files-size": "50"}])  # fmt: skip
    assert first["records"] == 5
    assert then == {"records": 2, "files-size": 57, "data-files": 1, "delete-files": 1, "position-deletes": 1}
    table = metadata([1], eu=1) | {"snapshots": [{"snapshot-id": 1, "summary": {"total-records": "9", "x": "y"}}]}
    assert totals(table) == {"records": 9}
    assert totals(projected(table, (SHARD, "eu")) or {}) == {}


def metadata(line: list[int], tags: tuple[int, ...] = (), dead: tuple[int, ...] = (), **loads: int) -> dict[str, Any]:
    """Snapshots in a line, the first of which has a parent that has expired; `dead` ones are beside it. `loads`: of
    which snapshot a shard's last load is."""
    known = {**dict.fromkeys(line), **dict.fromkeys(dead)}
    parents = dict(zip(line, [0, *line], strict=False))
    snapshots = [
        {
            "snapshot-id": n,
            "sequence-number": n,
            "timestamp-ms": n,
            "parent-snapshot-id": parents.get(n, 0),
            "summary": {},
        }
        for n in sorted(known)
    ]
    properties = {f"instep.shard.{shard}.table": "{}" for shard in loads}
    for shard, at in loads.items():
        properties[own_name(shard, "instep.state")] = json.dumps({"snapshot": at, "rows": 10 * at})
    refs = {f"tag{n}": {"snapshot-id": n} for n in tags}
    return {"snapshots": snapshots, "current-snapshot-id": line[-1], "properties": properties, "refs": refs}


def orphaned(given: dict[str, Any]) -> dict[str, Any]:
    """Parents that are not there are forgotten, as pyiceberg does when it expires them."""
    there = {s["snapshot-id"] for s in given["snapshots"]}
    for one in given["snapshots"]:
        one["parent-snapshot-id"] = one["parent-snapshot-id"] if one["parent-snapshot-id"] in there else None
    return given


@pytest.mark.parametrize(
    ("what", "given", "gone"),
    [
        ("all but the newest", metadata([1, 2, 3, 4], eu=4, us=4), (1, 2, 3)),
        ("a load before which nothing is left goes, too", metadata([1, 2, 3, 4], eu=4, us=2), (1, 2, 3)),
        ("as long as a tag is older it stays", metadata([1, 2, 3, 4], (1,), eu=4, us=2), (3,)),
        ("a tag that is younger holds nothing", metadata([1, 2, 3, 4], (3,), eu=4, us=2), (1, 2)),
        ("nothing while a load is beside the line", metadata([1, 2], dead=(3,), eu=2, us=3), ()),
        ("one whose snapshot has expired", metadata([5, 6, 7], eu=7, us=2), (5, 6)),
    ],
)
def test_snapshots_that_may_go(what: str, given: dict[str, Any], gone: tuple[int, ...]) -> None:
    how = Maintenance(keep_snapshots=1, max_snapshot_age=0)
    assert sorted(expired_snapshots(given, how, 100)) == list(gone), what


@pytest.mark.parametrize(
    ("what", "given", "back"),
    [
        ("on the line", metadata([1, 2, 3], us=2), False),
        ("expired", metadata([4, 5], us=2), False),
        ("beside it, and younger than its begin", metadata([1, 2], dead=(3,), us=3), True),
        ("kept by a tag, what lies between has expired", metadata([4, 5], dead=(2,), us=2), False),
        ("the same, and nobody knows the parent any more", orphaned(metadata([4, 5], dead=(2,), us=2)), False),
        ("never loaded", metadata([1]), False),
    ],
)
def test_a_load_that_is_none_of_the_table_any_more(what: str, given: dict[str, Any], back: bool) -> None:
    assert is_rolled_back(given, "us") is back, what
    seen = projected(given, (SHARD, "us"))
    if seen is not None:
        known = None if back else int(json.loads(seen["properties"]["instep.state"])["rows"])
        assert exact_rows(seen, given["current-snapshot-id"]) == known
