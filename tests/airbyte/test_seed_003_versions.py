"""The five kinds of breaking changes of a connector's version: each is named before the version is used."""

from __future__ import annotations

from typing import Any

import pytest

from airbyte_wheels import INTEGER, TEXT, stream
from instep.sources.airbyte.requests import DiscoveredStreams
from instep.sources.airbyte.specification import Specification
from instep.sources.airbyte.upgrade import specification_differences, stream_differences

AT = stream(name=TEXT, at=INTEGER, default_cursor_field=["at"])
# row of the document | streams of the version before | of the other one | kind | what is shown of it
STREAMS = [
    ("schema change", [stream(name=TEXT)], [stream(name=INTEGER)], "schema", "column name: string becomes int64"),
    ("stream removal", [stream(), stream("orders")], [stream()], "removal", "the stream is no longer offered"),
    ("property removal", [stream(name=TEXT)], [stream()], "removal", "column name is no longer sent"),
    ("destination format", [stream()], [stream(key=())], "format", "a full refresh is needed"),
    ("state", [AT], [AT | {"default_cursor_field": ["id"]}], "state", "cursor at becomes id"),
]


@pytest.mark.parametrize(("row", "before", "after", "kind", "shown"), STREAMS, ids=[case[0] for case in STREAMS])
def test_a_row_about_streams(row: str, before: Any, after: Any, kind: str, shown: str) -> None:
    found = stream_differences(DiscoveredStreams(before), DiscoveredStreams(after))
    assert [(one.kind, one.breaking, shown in one.text) for one in found] == [(kind, True, True)], row


def test_the_row_about_the_configuration() -> None:
    needs = {"type": "object", "required": ["key"], "properties": {"key": {"type": "string"}}}
    found = specification_differences(None, Specification(needs), {})
    assert [(one.kind, one.breaking, "key: is required" in one.text) for one in found] == [("spec", True, True)]
