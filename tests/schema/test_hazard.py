"""What is dangerous, per kind and destination."""

from __future__ import annotations

from dataclasses import replace

import pytest
from world import ICEBERG, PLAIN, column, table

from instep.schema.catalog.types import parse
from instep.schema.changes.describe import (
    Change,
    ColumnAdded,
    ColumnComment,
    ColumnNarrowed,
    ColumnRemoved,
    ColumnRenamed,
    ColumnRetyped,
    ColumnWidened,
    CursorChanged,
    DestinationDrifted,
    KeyRemoved,
    NameCollided,
    SchemaRemoved,
    TableAdded,
    TableRemoved,
    TableRenamed,
    TableReplaced,
)
from instep.schema.planning.hazard import Capabilities, Hazard, hazards, worst

REF = ("s", "t")
T = table("t", "a")
DELTA = Capabilities("delta", frozenset({("decimal(p,s)", "decimal(p+,s+)"), ("int", "decimal(p,s)")}))


def typed(old: str, new: str, kind: type = ColumnRetyped) -> Change:
    made: Change = kind(REF, column(f"a:{old}"), column(f"a:{new}"))
    return made


CASES: list[tuple[str, Change, Capabilities, dict[str, str], str]] = [
    ("added", ColumnAdded(REF, column("a"), 0), ICEBERG, {"ColumnEmpty": "needs backfill"}, "needs backfill"),
    ("table added", TableAdded(T), ICEBERG, {}, "safe"),
    ("dropped", ColumnRemoved(REF, column("a"), 0), ICEBERG, {"ColumnDropped": "loses data"}, "loses data"),
    ("table dropped", TableRemoved(T), ICEBERG, {"TableDropped": "loses data"}, "loses data"),
    ("schema dropped", SchemaRemoved("s"), ICEBERG, {"SchemaDropped": "loses data"}, "loses data"),
    (
        "renamed",
        ColumnRenamed(REF, column("a"), column("b")),
        ICEBERG,
        {"NameChanged": "breaks readers"},
        "breaks readers",
    ),
    ("table renamed", TableRenamed(T, table("u", "a")), ICEBERG, {"NameChanged": "breaks readers"}, "breaks readers"),
    ("replaced", TableReplaced(T, T), ICEBERG, {"TableReloaded": "needs backfill"}, "needs backfill"),
    ("widened in place", typed("int32", "int64", ColumnWidened), ICEBERG, {}, "safe"),
    (
        "widened, not in place",
        typed("float32", "float64", ColumnWidened),
        PLAIN,
        {"Rewritten": "needs backfill"},
        "needs backfill",
    ),
    (
        "int to text",
        typed("int32", "string", ColumnWidened),
        ICEBERG,
        {"TypeChanged": "breaks readers", "Rewritten": "needs backfill"},
        "breaks readers",
    ),
    (
        "retyped",
        typed("date", "int32"),
        ICEBERG,
        {"TypeChanged": "breaks readers", "Rewritten": "needs backfill", "MayNotFit": "loses data"},
        "loses data",
    ),
    (
        "narrowed, no way back",
        typed("int64", "int32", ColumnNarrowed),
        PLAIN,
        {"Rewritten": "needs backfill", "MayNotFit": "loses data", "NoWayBack": "cannot be undone"},
        "cannot be undone",
    ),
    ("key", KeyRemoved(REF, ("a",)), ICEBERG, {"KeyMoved": "breaks readers"}, "breaks readers"),
    ("cursor", CursorChanged(REF, "a", "b"), ICEBERG, {"CursorMoved": "needs backfill"}, "needs backfill"),
    ("drift", DestinationDrifted(REF, "gone"), ICEBERG, {"Drifted": "breaks readers"}, "breaks readers"),
    ("collision", NameCollided(REF, ("a", "A"), "twins"), ICEBERG, {"NameTaken": "breaks readers"}, "breaks readers"),
    ("comment", ColumnComment(REF, column("a"), column("a")), ICEBERG, {}, "safe"),
]


@pytest.mark.parametrize(
    ("change", "capabilities", "codes", "shown"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_hazards(change: Change, capabilities: Capabilities, codes: dict[str, str], shown: str) -> None:
    found = hazards(change, capabilities)
    assert {h.code: h.level for h in found} == codes
    assert worst(found) == shown
    assert all(h.text for h in found)


def test_what_stays_behind_loses_nothing() -> None:
    (hazard,) = hazards(ColumnRemoved(REF, column("a"), 0), ICEBERG, removed="retain")
    assert (hazard.code, hazard.level) == ("ColumnLeft", "breaks readers")


@pytest.mark.parametrize(
    ("name", "taken", "code"),
    [("a", {"a"}, "NameTaken"), ("A", {"a"}, "CaseTwin"), ("b", {"a"}, None), ("é" * 130, set(), "NameTooLong")],
)
def test_names(name: str, taken: set[str], code: str | None) -> None:
    found = hazards(ColumnAdded(REF, column(name), 0), ICEBERG, used=taken)
    assert [h.code for h in found if h.code != "ColumnEmpty"] == ([code] if code else [])
    exact = replace(ICEBERG, case_sensitive=True)
    assert not any(h.code == "CaseTwin" for h in hazards(ColumnAdded(REF, column(name), 0), exact, used=taken))


@pytest.mark.parametrize(
    ("old", "new", "capabilities", "legal"),
    [
        ("int32", "int32", PLAIN, True),
        ("int32", "int64", ICEBERG, True),
        ("int64", "int32", ICEBERG, False),
        ("int32", "string", ICEBERG, False),
        ("float32", "float64", ICEBERG, True),
        ("float64", "float32", ICEBERG, False),
        ("decimal(10,2)", "decimal(12,2)", ICEBERG, True),
        ("decimal(10,2)", "decimal(8,2)", ICEBERG, False),
        ("decimal(10,2)", "decimal(12,4)", ICEBERG, False),
        ("decimal(10,2)", "decimal(12,4)", DELTA, True),
        ("decimal(10,2)", "decimal(11,4)", DELTA, False),
        ("int32", "decimal(10,0)", DELTA, True),
        ("int64", "decimal(10,0)", DELTA, False),
        ("string", "binary", ICEBERG, False),
        ("string(10)", "string(20)", ICEBERG, True),
        ("string(10)", "string", ICEBERG, True),
        ("string", "string(10)", ICEBERG, False),
        ("string(20)", "string(10)", ICEBERG, False),
        ("date", "timestamp", ICEBERG, False),
        ("timestamp", "timestamptz", ICEBERG, False),
        ("array(int32)", "array(int64)", ICEBERG, True),
        ("array(int32)", "array(int64)", PLAIN, False),
        ('struct("a" int32)', 'struct("a" int64, "b" string)', ICEBERG, True),
        ('struct("a" int32, "b" string)', 'struct("a" int32)', ICEBERG, False),
    ],
)
def test_in_place_promotions(old: str, new: str, capabilities: Capabilities, legal: bool) -> None:
    assert capabilities.promotes_in_place(parse(old), parse(new)) is legal


def test_the_worst_class_is_shown() -> None:
    one, two = Hazard("A", "needs backfill", ""), Hazard("B", "loses data", "")
    assert worst([]) == "safe"
    assert worst([two, one]) == "loses data"
