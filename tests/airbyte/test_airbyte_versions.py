"""Versions: their order, what is announced about them, and what two of them do differently."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from airbyte_wheels import INTEGER, TEXT, stream
from instep.errors import ProjectError
from instep.sources.airbyte.requests import DiscoveredStreams
from instep.sources.airbyte.specification import Specification
from instep.sources.airbyte.upgrade import specification_differences, stream_differences
from instep.sources.versions import BreakingChange, breaking_changes_between, due, parse_breaking_changes, version_order

ORDERED = ["0.9", "1.0.0.dev3", "1.0.0rc1", "1.0", "1.0.1", "1.2", "1.10", "2.0.0-alpha", "2.0.0", "10.0"]


def test_versions_are_ordered_by_their_numbers() -> None:
    assert sorted(set(ORDERED), key=version_order) == ORDERED
    assert version_order("1.0") == version_order("1.0.0") == version_order("v1.0.0+build")


CHANGES = parse_breaking_changes(
    """
data:
  dockerImageTag: 3.0.0
  releases:
    breakingChanges:
      3.0.0: {message: "All of it\\n is new", upgradeDeadline: "2026-06-30"}
      1.0.0: {message: old, upgradeDeadline: 2020-01-01}
      2.0.0:
        upgradeDeadline: 2026-03-01
        migrationDocumentationUrl: https://example.com/2
        deadlineAction: auto_upgrade
        scopedImpact: [{scopeType: stream, impactedScopes: [Users, carts]}]
"""
)


def test_metadata_is_read_as_makers_write_it() -> None:
    assert [one.version for one in CHANGES] == ["1.0.0", "2.0.0", "3.0.0"]
    two, three = CHANGES[1:]
    assert two == BreakingChange(
        "2.0.0", "", date(2026, 3, 1), "auto_upgrade", ("Users", "carts"), "https://example.com/2"
    )
    assert (three.message, three.action) == ("All of it is new", "disable")
    assert [one.version for one in breaking_changes_between(CHANGES, "1.0.0", "2.5")] == ["2.0.0"]
    assert [one.version for one in breaking_changes_between(CHANGES, "2.0.0.dev1", "")] == ["2.0.0", "3.0.0"]


@pytest.mark.parametrize(
    ("version", "today", "streams", "expected"),
    [
        ("1.5", date(2026, 2, 28), [], []),
        ("1.5", date(2026, 3, 1), [], ["2.0.0"]),
        ("1.5", date(2026, 3, 1), ["users"], ["2.0.0"]),
        ("1.5", date(2026, 3, 1), ["orders"], []),
        ("1.5", date(2026, 6, 30), ["orders"], ["3.0.0"]),
        ("2.0.0", date(2027, 1, 1), ["users"], ["3.0.0"]),
        ("3.0.0", date(2027, 1, 1), ["users"], []),
        ("0.1", date(2027, 1, 1), [], ["1.0.0", "2.0.0", "3.0.0"]),
    ],
)
def test_a_change_is_due_from_its_day_on_for_the_streams_it_is_about(
    version: str, today: date, streams: list[str], expected: list[str]
) -> None:
    assert [one.version for one in due(CHANGES, version, streams, today)] == expected


@pytest.mark.parametrize(
    "text",
    [
        "[",
        "3",
        "releases: {breakingChanges: [1]}",
        "breakingChanges: {next: {message: x}}",
        "breakingChanges: {1.0.0: soon}",
        "breakingChanges: {1.0.0: {upgradeDeadline: soon}}",
        "breakingChanges: {1.0.0: {deadlineAction: explode}}",
        "breakingChanges: {1.0.0: {scopedImpact: [{scopeType: column}]}}",
    ],
)
def test_metadata_that_is_none_is_an_error(text: str) -> None:
    with pytest.raises(ProjectError) as raised:
        parse_breaking_changes(text)
    assert raised.value.hint


def named(**kinds: Any) -> Any:
    return [{"streams": 1, **kinds}]


DATE = {"type": "string", "format": "date"}
NESTED = {"type": "object", "properties": {"a": TEXT}}
OTHER = {"type": "object", "properties": {"b": TEXT}}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([stream(a=TEXT)], [stream(a={**TEXT, "description": "b"})], []),
        ([stream(a=TEXT)], [stream(a=INTEGER)], [("schema", "users", "column a: string becomes int64", True)]),
        ([stream(a=TEXT)], [stream(a=DATE)], [("schema", "users", "column a: string becomes date", True)]),
        ([stream()], [stream(a=TEXT)], [("schema", "users", "new column a (string)", False)]),
        ([stream(a=TEXT)], [stream()], [("removal", "users", "column a is no longer sent", True)]),
        ([stream()], [], [("removal", "users", "the stream is no longer offered", True)]),
        ([], [stream(a=TEXT)], [("schema", "users", "new stream with 2 columns", False)]),
        ([stream(a=NESTED)], [stream(a=OTHER)], [("format", "users", "column a: its JSON has another form", False)]),
        (
            [stream()],
            [stream(key=())],
            [
                (
                    "format",
                    "users",
                    "key (id) becomes (none): rows are found by other columns, a full refresh is needed",
                    True,
                )
            ],
        ),
        ([stream(key=("a", "b"))], [stream(key=("b", "a"))], []),
        (
            [stream(namespace="eu")],
            [stream(namespace="us")],
            [
                (
                    "format",
                    "eu.users",
                    "its namespace changes: it becomes us.users, another table of the destination",
                    True,
                )
            ],
        ),
        (
            [stream()],
            [stream(incremental=False)],
            [("state", "users", "can no longer be read incrementally: each sync reads all rows", True)],
        ),
        ([stream(incremental=False)], [stream()], [("state", "users", "can be read incrementally now", False)]),
        (
            [stream(default_cursor_field=["a"])],
            [stream(default_cursor_field=["b"])],
            [
                (
                    "state",
                    "users",
                    "cursor a becomes b: its state may not be understood, and all be read again",
                    True,
                )
            ],
        ),
    ],
)
def test_streams_of_two_versions(before: list[Any], after: list[Any], expected: list[Any]) -> None:
    found = stream_differences(DiscoveredStreams(tuple(before)), DiscoveredStreams(tuple(after)))
    assert [(d.kind, d.stream, d.text, d.breaking) for d in found] == expected


def schema(*needed: str, **properties: Any) -> Specification:
    return Specification({"type": "object", "required": list(needed), "properties": properties})


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (schema(a=TEXT), schema(a=TEXT), []),
        (schema(a=TEXT), schema(a=TEXT, b=INTEGER), [("b: is new (integer)", False)]),
        (schema(a=TEXT), schema("b", a=TEXT, b=INTEGER), [("b: is required", True)]),
        (schema(a=TEXT, b=TEXT), schema(a=TEXT), [("b: is no longer known", False)]),
        (schema(a=TEXT, b=TEXT), schema(b=TEXT), [("a: is no longer known, and is set", False)]),
        (schema(a=TEXT), schema(a=INTEGER), [("a: must be of type integer", True)]),
        (schema(a=TEXT, b=TEXT), schema(a=TEXT, b=INTEGER), [("b: was string, is integer", False)]),
        (schema(a=TEXT), schema("a", a=TEXT), [("a: was string, is string, required", False)]),
        (None, schema("b", a=TEXT, b=TEXT), [("b: is required", True)]),
    ],
)
def test_specifications_of_two_versions(
    before: Specification | None, after: Specification, expected: list[tuple[str, bool]]
) -> None:
    found = specification_differences(before, after, {"a": "x"})
    assert [(d.text, d.breaking) for d in found] == expected
