"""Manifests of any content, operations that are kept apart, counts, limits, and the configuration in the project."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from instep.errors import ProjectError, StageError
from instep.project.sections.connector import ConnectorLimits, ConnectorServer, size
from instep.schema.catalog.types import Int, String, parse
from instep.sources.connector.lint import SegmentTotals, SentColumn
from instep.sources.connector.run import opened, pending_table, seal_pending
from instep.sources.connector.segment import (
    DELETE,
    GIVEN,
    MANIFEST,
    OP,
    SEQ,
    UPDATE,
    UPSERT,
    LogLine,
    OperationCounts,
    Segment,
    SegmentColumn,
    SegmentFile,
    SegmentTable,
    read_manifest,
    segment_folder,
    write_manifest,
)
from instep.sources.connector.spool import MOST_A_MINUTE, LogThrottle

KEY = bytes(range(32))
any_text = st.text(st.characters(exclude_categories=()), max_size=8)
kinds = st.sampled_from([*map(parse, ("int64", "decimal(12,2)", "json", "unknown", "timestamptz"))])
columns = st.builds(
    SegmentColumn, any_text, kinds, st.booleans(), st.booleans(), st.booleans(), st.integers(0, 2),
    st.lists(kinds, max_size=2).map(tuple),
)  # fmt: skip
files = st.builds(SegmentFile, any_text, st.integers(0, 9), st.integers(0, 9))
counts = st.integers(0, 2**40)
tables = st.builds(
    SegmentTable, any_text, any_text, st.booleans(), st.lists(any_text, max_size=2).map(tuple),
    st.lists(columns, max_size=3).map(tuple), st.lists(files, max_size=2).map(tuple), counts, counts, counts,
    st.lists(counts, max_size=3).map(tuple),
)  # fmt: skip
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | any_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text, inner, max_size=3), max_leaves=6,
)  # fmt: skip
states = st.none() | st.dictionaries(any_text, json_values, max_size=3)


@given(states, st.booleans(), st.lists(tables, max_size=2), st.lists(any_text, max_size=2))
def test_a_manifest_of_anything_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, state: Any, ends: bool, held: list[SegmentTable], warnings: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("segment")
    segment = Segment(3, str(folder), state, ends, tuple(held), tuple(warnings))
    written = write_manifest(segment)
    assert read_manifest(folder) == written
    assert replace(written, digest="") == segment
    assert [p.name for p in folder.iterdir()] == [MANIFEST]


@pytest.mark.parametrize("text", ["[]", "null", '"text"', "7", "{}", "", "\xff", '{"version": 1}', "[" * 100_000])
def test_what_is_no_manifest_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / MANIFEST).write_text(text, encoding="latin-1")
    with pytest.raises(StageError, match=MANIFEST) as refused:
        read_manifest(tmp_path)
    assert refused.value.hint == "run the sync again"


@given(st.lists(tables, max_size=4), st.booleans())
def test_counts_are_those_of_all_tables(held: list[SegmentTable], saved: bool) -> None:
    found = Segment(1, "x", {} if saved else None, False, tuple(held)).counts
    assert found.upserts + found.updates + found.deletes == sum(t.rows for t in held)
    assert (found.truncates, found.checkpoints) == (sum(len(t.truncates) for t in held), int(saved))
    assert found + OperationCounts() == found


def test_folders_of_segments_are_in_their_order(tmp_path: Path) -> None:
    names = [segment_folder(tmp_path, n).name for n in (1, 9, 10, 99999)]
    assert names == sorted(names)
    assert names[0] == "segment-00001"


def written(folder: Path, name: str, rows: list[tuple[int, int | None]]) -> SegmentFile:
    """A file of (operation, value of a)."""
    ops, values = [r[0] for r in rows], [r[1] for r in rows]
    table = pa.table({
        OP: pa.array(ops, pa.int8()), SEQ: pa.array(range(len(rows)), pa.int64()),
        GIVEN: pa.nulls(len(rows), pa.string()), "id": pa.array(range(len(rows)), pa.int64()),
        "a": pa.array(values, pa.int64()),
    })  # fmt: skip
    pq.write_table(table, folder / name)
    return SegmentFile(name, len(rows), (folder / name).stat().st_size)


def segment(folder: Path, number: int = 1, **changes: Any) -> Segment:
    folder.mkdir()
    rows = [(UPSERT, 1), (UPSERT, None), (UPDATE, 5), (DELETE, None), (UPSERT, 2)]
    found = SegmentTable(
        "s", "t", True, ("id",), (SegmentColumn("id", Int(64), key=True), SegmentColumn("a", Int(64))),
        (written(folder, "t-1.parquet", rows),), upserts=3, updates=1, deletes=1, truncates=(0,),
    )  # fmt: skip
    return write_manifest(
        Segment(number, str(folder), {"token": "x"}, True, (replace(found, **changes),), ("careful",))
    )


def test_what_was_sent_is_counted_over_segments(tmp_path: Path) -> None:
    sent = SegmentTotals()
    sent.add(segment(tmp_path / "1"))
    met = (SegmentColumn("id", Int(64), key=True), SegmentColumn("a", String(), met=(Int(64), String())))
    sent.add(segment(tmp_path / "2", 2, declared=False, columns=(*met, SegmentColumn("b", parse("unknown")))))
    (found,) = sent.tables()
    assert (found.path, found.declared, found.rows, found.operations) == ("s.t", False, 6, 12)
    assert found.columns == (
        SentColumn("id", (Int(64),), values=6, key=True), SentColumn("a", (Int(64), String()), values=4),
        SentColumn("b"),
    )  # fmt: skip


def test_operations_that_wait_outlive_their_segment(tmp_path: Path) -> None:
    first = segment(tmp_path / "1")
    place = tmp_path / "held" / "deep"
    seal_pending(first, first.tables[0], place, KEY)
    (tmp_path / "1" / "t-1.parquet").unlink()
    assert pending_table(str(place)) == first.tables[0]
    opened(str(place), KEY, tmp_path / "open")
    assert pq.read_table(tmp_path / "open" / "t-1.parquet").num_rows == 5
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    found = read_manifest(place)
    assert (found.state, found.ends, found.warnings) == (None, False, ())
    with pytest.raises(StageError, match="run the sync again"):
        pending_table(str(tmp_path / "nowhere"))


def test_a_loop_that_logs_fills_nothing_and_warnings_still_come() -> None:
    lines: list[LogLine] = []
    paced = LogThrottle(lines.append)
    for _ in range(MOST_A_MINUTE + 5):
        paced(LogLine("info", "x"))
    paced(LogLine("error", "broken"))
    paced.close()
    assert [line.message for line in lines[MOST_A_MINUTE:]] == [
        "broken", f"5 log lines were left out: more than {MOST_A_MINUTE:,} came in a minute",
    ]  # fmt: skip
    assert (lines[-1].level, lines[-1].origin) == ("warning", "instep")
    paced.close()
    assert len(lines) == MOST_A_MINUTE + 2


SIZES = [("0", 0), ("1KB", 1024), ("500MB", 500 << 20), ("2 GB", 2 << 30), ("3gb", 3 << 30), ("007kB", 7168)]
NO_SIZES = ["", "1", "MB", "-1MB", "1.5GB", "1TB", "1 B", "1  MB", " 1MB", "1MB ", "1MB\n", "²MB", "0 "]


@pytest.mark.parametrize(("text", "bytes"), SIZES)
def test_sizes(text: str, bytes: int) -> None:
    assert ConnectorLimits.model_validate({"memory": text}).memory_bytes == size(text) == bytes


@pytest.mark.parametrize("text", NO_SIZES)
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValidationError, match="memory"):
        ConnectorLimits.model_validate({"memory": text})


def whole(tmp_path: Path, text: str | bytes | None = None, **given: Any) -> ConnectorServer:
    file = tmp_path / "configuration.json"
    if text is not None:
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        given["configuration_file"] = str(file)
    said = {"path": str(tmp_path), "configuration": given.pop("configuration", {}), **given}
    return ConnectorServer.model_validate(said).whole()


def test_a_connector_is_given_texts(tmp_path: Path) -> None:
    found = whole(tmp_path, '{"a": "1", "b": "file"}', configuration={"b": True, "c": 7, "d": 0.5, "e": "text"})
    assert found.configuration == {"a": "1", "b": "true", "c": "7", "d": "0.5", "e": "text"}
    assert (found.configuration_file, found.limits) == ("", ConnectorLimits())


FILES = [
    ("torn", '{"a": ', "is not JSON"), ("no text", b"\xff", "is not JSON"), ("a list", "[]", "not an object of texts"),
    ("a number in it", '{"a": 1}', "not an object of texts"), ("nested", '{"a": {}}', "not an object of texts"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "why"), [c[1:] for c in FILES], ids=[c[0] for c in FILES])
def test_a_configuration_file_that_is_none(tmp_path: Path, text: str | bytes, why: str) -> None:
    with pytest.raises(ProjectError, match=why):
        whole(tmp_path, text)
    with pytest.raises(ProjectError, match="cannot be read"):
        whole(tmp_path, configuration_file=str(tmp_path / "nowhere.json"))


@pytest.mark.parametrize("where", ["configuration", "environment"])
def test_a_secret_in_clear_is_refused_and_not_repeated(tmp_path: Path, where: str) -> None:
    with pytest.raises(ValidationError) as refused:
        whole(tmp_path, **{where: {"api_password": "hunter2"}})
    assert "hunter2" not in str(refused.value.errors(include_input=False, include_context=False))
    resolved = {"path": str(tmp_path), where: {"api_password": "hunter2"}}
    found = ConnectorServer.resolved(**resolved)
    assert getattr(found, where) == {"api_password": "hunter2"}
