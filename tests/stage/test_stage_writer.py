"""Files are exactly what was promised: every fault that would be silent later is refused here."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from stage_world import SYSTEM, batch, column, rows_of, spec_of, with_ids

from instep.errors import StageError
from instep.stage.conform import conform
from instep.stage.files.names import file_name
from instep.stage.files.writer import ChunkWriter, assert_written
from instep.stage.spec import StagedFile, StageSpec

KINDS = [
    "boolean",
    "int32",
    "int64",
    "decimal(12,2)",
    "float64",
    "string",
    "binary",
    "date",
    "timestamp",
    "timestamptz",
    "uuid",
    "json",
    "time",
    "array(int32)",
    'struct("x" string, "y" array(int64))',
]


def write(spec: StageSpec, *batches: pa.RecordBatch, chunk: int = 3) -> tuple[StagedFile, ...]:
    writer = ChunkWriter(spec, chunk, 1)
    for item in batches:
        writer.write(item)
    return writer.close()


def typed(spec: StageSpec, **columns: Any) -> pa.RecordBatch:
    arrays = [pa.array(columns[f.name], f.type) for f in spec.schema]
    return pa.RecordBatch.from_arrays(arrays, schema=spec.schema)


def numbers(folder: Path, **more: Any) -> StageSpec:
    return spec_of([column("id", "int64", key=1)], folder, **more)


def test_a_file_carries_names_types_ids_and_nothing_else(tmp_path: Path) -> None:
    spec = spec_of([column(f"c{at}", kind) for at, kind in enumerate(KINDS)], tmp_path, system=SYSTEM)
    nested = pa.struct(
        [
            pa.field("x", pa.large_string(), metadata={"PARQUET:field_id": "101"}),
            pa.field(
                "y",
                pa.large_list(pa.field("element", pa.int64(), metadata={"PARQUET:field_id": "103"})),
                metadata={"PARQUET:field_id": "102"},
            ),
        ]
    )
    element = pa.large_list(pa.field("element", pa.int32(), metadata={"PARQUET:field_id": "104"}))
    fields = [f.with_type({"c14": nested, "c13": element}.get(f.name, f.type)) for f in spec.schema]
    spec = replace(spec, schema=pa.schema(fields))
    rows = pa.RecordBatch.from_arrays([pa.nulls(2, f.type) for f in fields], schema=spec.schema)
    (file,) = write(spec, rows)
    metadata = pq.read_metadata(file.path)
    assert metadata.schema.column(0).name == "c0"
    assert b"ARROW:schema" not in (metadata.metadata or {})
    found = metadata.schema.to_arrow_schema()
    assert [f.metadata[b"PARQUET:field_id"] for f in found] == [str(at + 1).encode() for at in range(len(fields))]
    assert found.field("c14").type.field("y").type.value_field.metadata[b"PARQUET:field_id"] == b"103"
    assert found.field("c9").type == pa.timestamp("us", "UTC")


def test_the_manifest_tells_rows_bytes_and_footer(tmp_path: Path) -> None:
    spec = numbers(tmp_path)
    (file,) = write(spec, typed(spec, id=[1, 2]), typed(spec, id=[3]))
    assert (file.table, file.chunk, file.rows) == ("public.things", 3, 3)
    assert file.bytes == Path(file.path).stat().st_size
    assert file.path.startswith(f"{tmp_path}/data/run-1-00003-1-0-")
    footer = pq.read_metadata(pa.BufferReader(file.footer))
    assert footer.num_rows == 3
    assert footer.row_group(0).column(0).statistics.max == 3
    assert "footer" not in repr(file)


def test_no_rows_no_file(tmp_path: Path) -> None:
    spec = numbers(tmp_path)
    assert write(spec, typed(spec, id=[])) == ()
    assert not (tmp_path / "data").exists()


def test_a_file_is_closed_once_it_is_large_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("instep.stage.files.writer.GROUP_ROWS", 1000)
    spec = numbers(tmp_path, file_bytes=10_000)
    files = write(spec, *[typed(spec, id=list(range(at, at + 1000))) for at in range(0, 10_000, 1000)])
    assert len(files) > 1
    assert [r["id"] for r in rows_of([f.path for f in files])] == list(range(10_000))
    assert len({f.path for f in files}) == len(files)


def test_one_row_group_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("instep.stage.files.writer.GROUP_BYTES", 8000)
    spec = numbers(tmp_path)
    writer = ChunkWriter(spec, 0, 0)
    for _ in range(10):
        writer.write(typed(spec, id=list(range(500))))
        assert writer._bytes < 8000
    assert writer.bytes > 0
    (file,) = writer.close()
    assert pq.read_metadata(file.path).num_row_groups == 5


SILENT = [
    (
        "timestamp units",
        [pa.field("at", pa.timestamp("us", "UTC"))],
        [pa.field("at", pa.timestamp("ms", "UTC"))],
        "timestamp",
    ),
    ("a lost zone", [pa.field("at", pa.timestamp("us", "UTC"))], [pa.field("at", pa.timestamp("us"))], "timestamp"),
    (
        "decimal scale",
        [pa.field("n", pa.decimal128(12, 2))],
        [pa.field("n", pa.decimal128(12, 4))],
        r"decimal128\(12, 4\)",
    ),
    ("unsigned", [pa.field("n", pa.int32())], [pa.field("n", pa.uint16())], "uint16"),
    ("another name", [pa.field("a", pa.int32())], [pa.field("b", pa.int32())], "would hold b int32"),
    ("one more", [pa.field("a", pa.int32())], [pa.field("a", pa.int32()), pa.field("b", pa.int32())], "2 fields"),
    ("nested type", [pa.field("l", pa.list_(pa.int64()))], [pa.field("l", pa.list_(pa.int32()))], "l.item int32"),
    (
        "map",
        [pa.field("m", pa.map_(pa.string(), pa.int64()))],
        [pa.field("m", pa.map_(pa.string(), pa.int32()))],
        "int32",
    ),
]


@pytest.mark.parametrize(("table", "found", "message"), [s[1:] for s in SILENT], ids=[s[0] for s in SILENT])
def test_another_schema_is_refused(table: list[Any], found: list[Any], message: str, tmp_path: Path) -> None:
    spec = spec_of([], tmp_path, schema=pa.schema(with_ids(table)))
    schema = pa.schema(with_ids(found))
    rows = pa.RecordBatch.from_arrays([pa.nulls(1, f.type) for f in schema], schema=schema)
    with pytest.raises(StageError, match=message) as caught:
        ChunkWriter(spec, 0, 0).write(rows)
    assert "public.things: a staged file would hold" in str(caught.value)


@pytest.mark.parametrize("ids", [["2", "1"], ["1", "1"], [None, "2"]])
def test_permuted_or_missing_ids_are_refused(ids: list[str | None], tmp_path: Path) -> None:
    fields = [pa.field("a", pa.int32()), pa.field("b", pa.int32())]
    spec = spec_of([], tmp_path, schema=pa.schema(with_ids(fields)))
    wrong = [f.with_metadata({"PARQUET:field_id": i} if i else {}) for f, i in zip(fields, ids, strict=True)]
    rows = pa.RecordBatch.from_arrays([pa.nulls(1, pa.int32())] * 2, schema=pa.schema(wrong))
    with pytest.raises(StageError, match="field id"):
        ChunkWriter(spec, 0, 0).write(rows)


def test_offset_sizes_may_differ(tmp_path: Path) -> None:
    spec = spec_of([column("s", "string")], tmp_path)
    small = pa.schema([spec.schema.field("s").with_type(pa.string())])
    with pytest.raises(pa.ArrowInvalid):  # the table is made from batches of one schema
        write(spec, pa.RecordBatch.from_arrays([pa.array(["x"])], schema=small))
    assert conform(batch(s=pa.array(["x"])), spec).batch.schema == spec.schema


def test_the_finished_file_is_compared_too(tmp_path: Path) -> None:
    spec = numbers(tmp_path)
    (file,) = write(spec, typed(spec, id=[1]))
    other = replace(spec, schema=pa.schema(with_ids([pa.field("id", pa.int64())], start=7)))
    with pytest.raises(StageError, match=r"id int64 \(field id 1\) where the table has id int64 \(field id 7\)"):
        assert_written(pq.read_metadata(file.path), other)


def test_abort_leaves_no_open_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("instep.stage.files.writer.GROUP_ROWS", 1)
    spec = numbers(tmp_path)
    writer = ChunkWriter(spec, 0, 0)
    writer.write(typed(spec, id=[1]))
    assert len(list((tmp_path / "data").iterdir())) == 1
    writer.abort()
    assert list((tmp_path / "data").iterdir()) == []
    writer.abort()


@pytest.mark.parametrize("compression", ["zstd", "snappy", "none"])
def test_compressions(compression: str, tmp_path: Path) -> None:
    spec = numbers(tmp_path, compression=compression)
    (file,) = write(spec, typed(spec, id=[1]))
    expected = {"none": "UNCOMPRESSED"}.get(compression, compression.upper())
    assert pq.read_metadata(file.path).row_group(0).column(0).compression == expected


@pytest.mark.parametrize("room", [0, 1 << 20], ids=["not a byte is free", "a megabyte is free"])
def test_a_full_disk_says_where_and_leaves_nothing(tmp_path: Path, room: int) -> None:
    """A file size limit acts as a full disk does, without one: in a process of its own."""
    script = textwrap.dedent(
        """
        import sys
        import pyarrow as pa
        from stage_world import column, spec_of
        from instep.errors import StageError
        from instep.stage.files.writer import ChunkWriter
        spec = spec_of([column("id", "int64", key=1)], sys.argv[1], compression="none")
        writer = ChunkWriter(spec, 0, 0)
        rows = pa.RecordBatch.from_arrays([pa.array(range(200_000), pa.int64())], schema=spec.schema)
        try:
            for _ in range(5):
                writer.write(rows)
            writer.close()
        except StageError as error:
            print(error)
            sys.exit(7)
        """
    )

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, env=env, preexec_fn=limit
    )
    assert done.returncode == 7, done.stderr
    assert f"cannot write {tmp_path}/data/run-1-00000-0-0-" in done.stdout
    assert "File too large\n  the file size limit is reached" in done.stdout
    assert list((tmp_path / "data").iterdir()) == []


@pytest.mark.parametrize(
    ("run", "start"),
    [
        ("2026-11-21T10:00:00Z", "2026-11-21T10-00-00Z-00007-2-1-"),
        ("../é'\"", "-00007-2-1-"),
        ("r" * 99, "r" * 64 + "-00007"),
    ],
)
def test_file_names(run: str, start: str) -> None:
    name = file_name(run, 7, 2, 1)
    assert name.lstrip("-").startswith(start.lstrip("-"))
    assert "/" not in name
    assert name != file_name(run, 7, 2, 1)
