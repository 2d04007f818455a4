"""Laws of the log and of the columns: what is written is what is read, whatever the names, texts and types."""

from __future__ import annotations

import datetime as dt
import json
import tempfile
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from instep.destinations.delta.files import statistics
from instep.destinations.delta.protocol.log import DeltaLog, encoded
from instep.destinations.delta.protocol.snapshot import DeltaSnapshot, rows_of
from instep.destinations.delta.shape import (
    ID,
    PHYSICAL,
    DeltaField,
    arrow_field,
    arrow_of,
    arrow_schema,
    bare,
    data_type,
    features,
    fields_of,
    file_schema,
    first_fields,
    from_json,
    new_field,
    promoted,
    schema_string,
    stored_type,
)
from instep.destinations.delta.warehouse import Folders, folder_name, local_root
from instep.errors import DestinationError, SchemaError
from instep.schema.catalog.catalog import Column, Table
from instep.schema.catalog.types import Array, Boolean, DataType, Decimal, Field, Int, Json, String, Struct, parse
from instep.stage.files.names import STORED

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NAMES = TEXT.filter(bool)
ODD = "a\u2028b\u2029c\x85d\x0be\x1cf\rg\nh\ti\\\"' é \U0001f600"
PATHS = st.sampled_from(["data/a.parquet", "data/b c.parquet", "data/50%.parquet", "data/é/x=1/f.parquet"])


def add(path: str, rows: int, **more: Any) -> dict[str, Any]:
    stats = json.dumps({"numRecords": rows})
    return {"add": {"path": encoded(path), "partitionValues": {}, "size": rows, "modificationTime": 1,
                    "dataChange": True, "stats": stats, **more}}  # fmt: skip


def remove(path: str, at: int = 0) -> dict[str, Any]:
    return {"remove": {"path": encoded(path), "deletionTimestamp": at, "dataChange": True, "partitionValues": {},
                       "size": 1, "extendedFileMetadata": True}}  # fmt: skip


def metadata(name: str = "t", **more: Any) -> dict[str, Any]:
    return {"metaData": {"id": "0", "name": name, "format": {"provider": "parquet", "options": {}},
                         "schemaString": "{}", "partitionColumns": [], "createdTime": 1, "configuration": {},
                         **more}}  # fmt: skip


def protocol(*readers: str) -> dict[str, Any]:
    known = [*readers]
    return {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": known,
                         "writerFeatures": known}}  # fmt: skip


def domain(name: str, text: str, removed: bool = False) -> dict[str, Any]:
    return {"domainMetadata": {"domain": name, "configuration": text, "removed": removed}}


ACTIONS = st.one_of(
    st.builds(add, PATHS, st.integers(0, 9)),
    st.builds(remove, PATHS, st.integers(0, 99)),
    st.builds(metadata, NAMES, description=TEXT.filter(bool), configuration=st.dictionaries(NAMES, TEXT, max_size=2)),
    st.builds(protocol, st.sampled_from(["columnMapping", "timestampNtz", "typeWidening"])),
    st.builds(domain, st.sampled_from(["instep", "other"]), TEXT.filter(bool), st.booleans()),
    st.builds(lambda a, v: {"txn": {"appId": a, "version": v}}, NAMES, st.integers(0, 2**60)),
    st.builds(lambda t: {"commitInfo": {"operation": t}}, TEXT),
)
VERSIONS = st.lists(st.lists(ACTIONS, max_size=5), max_size=6)


def log_of(folder: Path, versions: Sequence[Sequence[Any]] = ()) -> DeltaLog:
    log = DeltaLog(folder)
    log.folder.mkdir()
    for number, actions in enumerate([[protocol("columnMapping"), metadata()], *versions]):
        assert log.put(number, actions)
    return log


def known(snapshot: DeltaSnapshot | None) -> Any:
    """A snapshot; a domain that was removed is as one that never was."""
    assert snapshot is not None
    domains = {k: v for k, v in snapshot.domains.items() if v}
    return (snapshot.version, snapshot.metadata, snapshot.protocol, snapshot.files, snapshot.tombstones, domains,
            snapshot.txns)  # fmt: skip


@settings(max_examples=25)
@given(VERSIONS)
def test_what_is_put_is_what_is_read(versions: list[list[Any]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        log = log_of(Path(name), versions)
        for number, actions in enumerate(versions, 1):
            assert list(log.actions(number)) == actions
        assert log.versions() == list(range(len(versions) + 1))
        assert [p for p in log.folder.iterdir() if p.suffix != ".json"] == []


@settings(max_examples=25)
@given(VERSIONS, st.data())
def test_a_checkpoint_anywhere_changes_no_version(versions: list[list[Any]], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(versions)))
    with tempfile.TemporaryDirectory() as name:
        log = log_of(Path(name), versions)
        told = [known(log.snapshot(v)) for v in range(len(versions) + 1)]
        here = log.snapshot(at)
        assert here is not None
        log.checkpoint(here, keep_after=0)
        assert [known(log.snapshot(v)) for v in range(len(versions) + 1)] == told
        log.clean(at)
        assert log.versions() == list(range(at, len(versions) + 1))
        assert [known(log.snapshot(v)) for v in log.versions()] == told[at:]
        if at:
            with pytest.raises(DestinationError, match="lacks version"):
                log.snapshot(at - 1)


@settings(max_examples=25)
@given(VERSIONS)
def test_files_of_a_version_are_those_that_nothing_removed_since(versions: list[list[Any]]) -> None:
    there, gone = dict[str, int](), set[str]()
    for actions in versions:
        # the order within a commit says nothing: what it adds is there
        for path in (unquote(a["remove"]["path"]) for a in actions if "remove" in a):
            there.pop(path, None)
            gone.add(path)
        for file in (a["add"] for a in actions if "add" in a):
            there[unquote(file["path"])] = file["size"]
            gone.discard(unquote(file["path"]))
    with tempfile.TemporaryDirectory() as name:
        found = log_of(Path(name), versions).snapshot()
        assert found is not None
        assert {p: rows_of(f) for p, f in found.files.items()} == there
        assert set(found.tombstones) == gone
        assert found.bytes == sum(there.values())


def test_texts_that_are_lines_elsewhere_are_one_line_here(tmp_path: Path) -> None:
    log = log_of(tmp_path, [[metadata(ODD, description=ODD), domain("instep", ODD)]])
    found = log.snapshot()
    assert found is not None
    assert (found.metadata["name"], found.metadata["description"], found.domains) == (ODD, ODD, {"instep": ODD})
    lines = log.folder.joinpath(f"{1:020}.json").read_bytes().split(b"\n")
    assert [bool(line) for line in lines] == [True, True, False]


def test_old_tombstones_stay_out_of_a_checkpoint(tmp_path: Path) -> None:
    log = log_of(tmp_path, [[remove("data/a.parquet", 5), remove("data/b.parquet", 6)]])
    snapshot = log.snapshot()
    assert snapshot is not None
    log.checkpoint(snapshot, keep_after=6)
    again = DeltaLog(tmp_path).snapshot()
    assert again is not None
    assert list(again.tombstones) == ["data/b.parquet"]
    assert json.loads(log.folder.joinpath("_last_checkpoint").read_text()) == {"version": 1, "size": 3}


PARTS: list[tuple[str, list[str], int]] = [
    ("whole", ["checkpoint"], 2),
    ("both parts", ["checkpoint.0000000001.0000000002", "checkpoint.0000000002.0000000002"], 2),
    ("one part of two", ["checkpoint.0000000001.0000000002"], 0),
    ("another thing", ["checkpoint.crc"], 0),
]


@pytest.mark.parametrize(("names", "first"), [c[1:] for c in PARTS], ids=[c[0] for c in PARTS])
def test_a_checkpoint_counts_once_it_is_whole(tmp_path: Path, names: list[str], first: int) -> None:
    log = log_of(tmp_path, [[add("data/a.parquet", 3)], [domain("instep", "{}")]])
    told = log.snapshot()
    assert told is not None
    log.checkpoint(told, 0)
    whole = log.folder / f"{2:020}.checkpoint.parquet"
    rows = pq.read_table(whole)
    whole.unlink()
    for number, name in enumerate(names):
        part = rows.slice(0, 2) if number else rows.slice(2) if len(names) > 1 else rows
        pq.write_table(part, log.folder / f"{2:020}.{name}.parquet")
    assert known(DeltaLog(tmp_path).snapshot()) == known(told)
    log.clean(2)
    assert log.versions()[0] == first


BROKEN: list[tuple[str, list[Any], str]] = [
    ("no metadata", [protocol()], "does not say what the table is"),
    ("no protocol", [metadata()], "does not say what the table is"),
    ("an unknown feature", [protocol("mystery", "columnMapping"), metadata()], "uses mystery that"),
    ("two", [protocol("mystery", "clustering"), metadata()], "uses clustering, mystery that"),
]


@pytest.mark.parametrize(("actions", "text"), [c[1:] for c in BROKEN], ids=[c[0] for c in BROKEN])
def test_a_log_that_is_not_understood_is_named(tmp_path: Path, actions: list[Any], text: str) -> None:
    log = DeltaLog(tmp_path)
    log.folder.mkdir()
    log.put(0, actions)
    with pytest.raises(DestinationError, match=text) as caught:
        log.snapshot()
    assert str(tmp_path) in caught.value.message


def test_nothing_is_no_table(tmp_path: Path) -> None:
    assert DeltaLog(tmp_path / "none").snapshot() is None
    assert DeltaLog(tmp_path / "none").versions() == []
    (tmp_path / "file").write_text("")
    assert DeltaLog(tmp_path / "file").snapshot() is None


PLAIN = [
    parse(t)
    for t in (
        "boolean", "int8", "int16", "int32", "int64", "float32", "float64", "string", "string(5)",
        "binary", "date", "time", "timestamp", "timestamptz", "uuid", "json", "unknown",
    )
]  # fmt: skip
decimals = st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: Decimal(p, s)))


def _struct(found: list[tuple[str, DataType]]) -> DataType:
    return Struct(tuple(Field(name, kind) for name, kind in found))


def _unlike(pair: Any) -> Any:
    return (pair[0] if isinstance(pair, tuple) else pair.name).casefold()


kinds: st.SearchStrategy[DataType] = st.recursive(
    st.sampled_from(PLAIN) | decimals,
    lambda inner: (
        inner.map(Array)
        | st.lists(st.tuples(NAMES, inner), min_size=1, max_size=3, unique_by=_unlike).map(_struct)
    ),
    max_leaves=5,
)  # fmt: skip
COLUMNS = st.lists(
    st.builds(Column, NAMES, kinds, nullable=st.booleans(), comment=TEXT.filter(bool) | st.none()),
    min_size=1, max_size=5, unique_by=_unlike,
)  # fmt: skip


@settings(max_examples=40)
@given(COLUMNS)
def test_columns_are_read_back_from_the_schema(columns: list[Column]) -> None:
    fields = first_fields(Table("s", "t", tuple(columns)), count(1))
    again = fields_of({"schemaString": schema_string(fields)})
    assert again == fields
    assert [(f.name, f.physical, f.nullable, f.comment) for f in again] == [
        (c.name, c.name, c.nullable, c.comment) for c in columns
    ]
    ids = [i for f in fields for i in ids_of(f)]
    assert sorted(ids) == list(range(1, len(ids) + 1))
    assert arrow_schema(fields).names == [c.name for c in columns]
    assert file_schema(fields).types == arrow_schema(fields).types


def ids_of(made: DeltaField) -> list[int]:
    return [made.id, *_inner(made.type)]


def _inner(stored: Any) -> list[int]:
    if isinstance(stored, str):
        return []
    if stored["type"] == "array":
        return _inner(stored["elementType"])
    return [i for f in stored["fields"] for i in ids_of(from_json(f))]


@settings(max_examples=40)
@given(kinds)
def test_a_type_is_stored_as_itself(kind: DataType) -> None:
    stored = stored_type(kind, count(7))
    read = data_type(stored)
    assert bare(stored_type(read, count(99))) == bare(stored), "what it is read as is stored alike"
    assert data_type(stored_type(read, count(1))) == read
    assert arrow_of(read) == arrow_of(kind)
    assert json.loads(json.dumps(stored)) == stored
    field = DeltaField(1, "c", "c", stored)
    assert promoted(field, kind) is field


STORED_TYPES: list[tuple[Any, DataType]] = [
    ("varchar(7)", String(7)),
    ("decimal(5, 2)", Decimal(5, 2)),
    ("interval year", Json()),
    ({"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True}, Json()),
    ({"type": "array", "elementType": "boolean", "containsNull": False}, Array(Boolean())),
    ({"type": "struct", "fields": [{"name": "a", "type": "long"}]}, Struct((Field("a", Int(64)),))),
]


@pytest.mark.parametrize(("stored", "kind"), STORED_TYPES, ids=[str(k) for _, k in STORED_TYPES])
def test_what_others_store_is_read(stored: Any, kind: DataType) -> None:
    assert data_type(stored) == kind


def test_a_field_of_others_needs_no_metadata() -> None:
    assert from_json({"name": "a", "type": "long"}) == DeltaField(0, "a", "a", "long")
    kept = {"name": "a", "type": "long", "nullable": False, "metadata": {"theirs": 1, ID: 4, PHYSICAL: "p"}}
    assert from_json(kept).to_json() == kept


TWINS: list[tuple[str, list[str], str]] = [
    ("case", ["Name", "name"], "differ in case only"),
    ("case of others", ["ÉTÉ", "été"], "differ in case only"),
    ("no name", ["a", ""], "has no name"),
]


@pytest.mark.parametrize(("names", "text"), [c[1:] for c in TWINS], ids=[c[0] for c in TWINS])
@pytest.mark.parametrize("inside", [False, True])
def test_names_that_readers_hold_for_one_are_refused(names: list[str], text: str, inside: bool) -> None:
    struct = Struct(tuple(Field(n, Int(32)) for n in names))
    fields = [DeltaField(i, n, n, "long") for i, n in enumerate(names)]
    with pytest.raises(SchemaError, match=text) as caught:
        stored_type(Array(struct), count(1)) if inside else schema_string(fields)
    assert "alias" in caught.value.hint


@given(st.lists(st.sampled_from(["a", "A", "a-1", "a-2", "A-3", "a-4", "b"]), min_size=1, max_size=9))
def test_a_physical_name_is_never_used_twice(names: list[str]) -> None:
    """Columns come and go; files know all of them."""
    ids = count(1)
    used = [new_field(Column(name, Int(64)), ids).physical for name in names]
    assert len({u.casefold() for u in used}) == len(used)


def test_tasks_are_told_where_a_name_is_not_the_one_in_files() -> None:
    plain, moved = DeltaField(3, "a", "a", "long"), DeltaField(3, "a", "b", "long")
    assert STORED.encode() not in arrow_field(plain).metadata
    assert arrow_field(moved).metadata[STORED.encode()] == b"a"


FEATURES: list[tuple[str, list[str]]] = [
    ("int64", ["columnMapping"]),
    ("timestamptz", ["columnMapping"]),
    ("timestamp", ["columnMapping", "timestampNtz"]),
    ("array(timestamp)", ["columnMapping", "timestampNtz"]),
    ('struct("a" timestamp)', ["columnMapping", "timestampNtz"]),
]


@pytest.mark.parametrize(("kind", "wanted"), FEATURES)
def test_readers_are_told_what_they_must_know(kind: str, wanted: list[str]) -> None:
    made = first_fields(Table("s", "t", (Column("v", parse(kind)),)), count(1))
    assert features(made) == wanted
    wide = promoted(DeltaField(9, "w", "w", "short"), Int(64))
    assert features([*made, wide]) == [*wanted, "typeWidening"]
    assert promoted(DeltaField(9, "w", "w", "byte"), Int(16)).facts["delta.typeChanges"] == [
        {"fromType": "byte", "toType": "short"}
    ]


def told(schema: Sequence[tuple[str, str]], rows: list[dict[str, Any]], folder: Path) -> dict[str, Any]:
    """The statistics of a file with these rows."""
    fields = first_fields(Table("s", "t", tuple(Column(n, parse(k)) for n, k in schema)), count(1))
    footers: list[Any] = []
    pq.write_table(pa.Table.from_pylist(rows, arrow_schema(fields)), folder / "f", metadata_collector=footers)
    return json.loads(json.dumps(statistics(footers[0], fields)))  # type: ignore[no-any-return]


LAST = dt.datetime(9999, 12, 31, 23, 59, 59, 999_999)


def test_the_last_moment_is_not_told_as_an_earlier_one(tmp_path: Path) -> None:
    found = told([("v", "timestamp")], [{"v": LAST}, {"v": dt.datetime(2020, 1, 1)}], tmp_path)
    assert found["maxValues"].get("v") is None, "no greater millisecond can be told"
    assert found["nullCount"] == {"v": 0}


@pytest.mark.parametrize("turned", [False, True])
def test_a_field_of_a_struct_is_not_taken_for_a_column(tmp_path: Path, turned: bool) -> None:
    schema = [("a.b", "int32"), ("a", 'struct("b" int32)')]
    rows: list[dict[str, Any]] = [{"a.b": 5, "a": {"b": 1}}, {"a.b": 7, "a": None}]
    found = told(schema[::-1] if turned else schema, rows, tmp_path)
    assert (found["minValues"], found["maxValues"]) == ({"a.b": 5}, {"a.b": 7})
    assert found["nullCount"]["a.b"] == 0


@settings(max_examples=30)
@given(st.lists(st.datetimes() | st.none(), min_size=1, max_size=4), st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_statistics_enclose_all_values(times: list[Any], numbers: list[int]) -> None:
    rows: list[dict[str, Any]] = [{"t": t, "n": n} for t, n in zip(times, [*numbers, *[None] * 4], strict=False)]
    with tempfile.TemporaryDirectory() as name:
        found = told([("t", "timestamp"), ("n", "int64")], rows, Path(name))
    low, high = found["minValues"], found["maxValues"]
    for row in rows:
        if row["t"] is not None and "t" in high:
            assert dt.datetime.fromisoformat(low["t"]) <= row["t"] <= dt.datetime.fromisoformat(high["t"])
        if row["n"] is not None:
            assert low["n"] <= row["n"] <= high["n"]
    assert found["nullCount"] == {k: sum(r[k] is None for r in rows) for k in ("t", "n")}


@given(NAMES)
def test_a_name_is_one_part_of_a_path(name: str) -> None:
    made = folder_name(name)
    assert unquote(made) == name
    assert made not in (".", "..")
    assert not set(made) & set('/\\:*?"<>|\0')
    assert not made.startswith((".", "_"))
    assert unquote(encoded(f"data/{name}")) == f"data/{name}"


@pytest.mark.parametrize("name", ["/" * 90, "é" * 128, ":" * 240])
def test_a_name_that_no_folder_can_have_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SchemaError, match="too long") as caught:
        Folders(tmp_path).folder(("shop", name))
    assert "alias" in caught.value.hint


def test_a_folder_may_be_named_as_a_url(tmp_path: Path) -> None:
    odd = tmp_path / "my lake é"
    assert local_root(odd.as_uri()) == odd
    assert local_root(str(odd)) == odd
