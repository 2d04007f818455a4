"""Places: local paths, file URIs and object stores; a failure to write says where and what to do."""

from __future__ import annotations

import errno
import http.server
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from stage_world import column, rows_of, spec_of

from instep.errors import StageError
from instep.stage.conform import QuarantinedValue
from instep.stage.files.place import StorageFolder, clear_errors
from instep.stage.quarantine import SCHEMA, QuarantineFile


@pytest.mark.parametrize(
    ("uri", "local"),
    [
        ("/lake/t", Path("/lake/t")),
        ("file:///lake/a%20b", Path("/lake/a b")),
        ("file:/lake", Path("/lake")),
        ("relative/t", Path("relative/t")),
        ("s3://bucket/t", None),
        ("gs://bucket/t", None),
    ],
)
def test_local(uri: str, local: Path | None) -> None:
    assert StorageFolder(uri).local == local


def test_children_keep_the_form_of_the_uri() -> None:
    assert StorageFolder("s3://b/t/").child("f") == "s3://b/t/f"
    assert StorageFolder("file:///t").child("f") == "file:///t/f"


@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_a_new_file_is_finished_or_dropped(form: str, tmp_path: Path) -> None:
    place = StorageFolder(form.format(tmp_path / "deep" / "er"))
    kept = place.create("kept")
    kept.sink.write(b"1234")
    assert kept.finish() == 4
    dropped = place.create("dropped")
    dropped.sink.write(b"1234")
    dropped.drop()
    dropped.drop()
    assert [f.name for f in (tmp_path / "deep" / "er").iterdir()] == ["kept"]


def test_a_place_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    with pytest.raises(StageError, match=f"cannot write {tmp_path}/f/x: (File exists|Not a directory)"):
        StorageFolder(f"{tmp_path}/f").create("x")


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        (errno.ENOSPC, "free space there"),
        (errno.EDQUOT, "quota"),
        (errno.EACCES, "give this user the right"),
        (errno.EROFS, "read-only"),
        (errno.EIO, "check that the place exists"),
    ],
)
def test_hints(code: int, hint: str) -> None:
    with pytest.raises(StageError) as caught, clear_errors("/lake/t"):
        raise OSError(code, "whatever Arrow says")
    assert "cannot write /lake/t: " in str(caught.value)
    assert hint in caught.value.hint


def test_a_device_that_is_full() -> None:
    file = StorageFolder("/dev").create("full")

    def fill() -> None:
        with clear_errors(file.uri):
            file.sink.write(b"x" * 10_000_000)

    with pytest.raises(StageError, match="cannot write /dev/full: No space left on device"):
        fill()


class _Store(http.server.BaseHTTPRequestHandler):
    """Enough of an object store to take a PUT and refuse everything else."""

    objects: dict[str, bytes] = {}  # noqa: RUF012 - one server per test module

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers.get("x-amz-decoded-content-length", self.headers["Content-Length"])))
        self.objects[self.path.split("?")[0]] = data
        self._answer(200)

    def do_POST(self) -> None:
        self._answer(403)

    def do_HEAD(self) -> None:
        self._answer(404)

    def _answer(self, code: int) -> None:
        self.send_response(code)
        self.send_header("Content-Length", "0")
        self.send_header("ETag", '"x"')
        self.end_headers()

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def store() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Store)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_an_object_store_by_pyiceberg_properties(store: str) -> None:
    io = {"s3.endpoint": store, "s3.access-key-id": "key", "s3.secret-access-key": "hush", "s3.region": "x"}
    place = StorageFolder("s3://bucket/t", io)
    assert "hush" not in repr(place)
    filesystem, path = place.resolve("f.parquet")
    assert path == "bucket/t/f.parquet"
    assert filesystem.type_name == "s3"


class TestQuarantine:
    def test_held_values_are_kept_with_where_and_why(self, tmp_path: Path) -> None:
        spec = spec_of([column("id", "int64", key=1)], tmp_path, run="r-9")
        quarantine = QuarantineFile(spec, 4, 0)
        quarantine.add(
            [
                QuarantinedValue('{"id":"1"}', "amount", "n/a", "not a number"),
                QuarantinedValue("{}", "", None, "NULL in the key"),
            ]
        )
        path = quarantine.close()
        assert path.startswith(f"{tmp_path}/held/r-9-00004-0-0-")
        assert pq.read_schema(path).equals(SCHEMA)
        first, second = rows_of([path])
        assert {name: first[name] for name in ("table", "key", "column", "original", "reason", "run", "chunk")} == {
            "table": "public.things", "key": '{"id":"1"}', "column": "amount", "original": "n/a",
            "reason": "not a number", "run": "r-9", "chunk": 4,
        }  # fmt: skip
        assert (first["status"], first["change"], first["fields"]) == ("held", "", '{"id": 1}')
        assert second["original"] is None

    def test_the_same_value_has_the_same_id_and_names_its_held_change(self, tmp_path: Path) -> None:
        holds = {"amount": ("c-1", "rule 2")}
        ids = set()
        for run in ("r-1", "r-2"):
            spec = spec_of([column("amount", "int64")], tmp_path, run=run, table="0", path="public.a", holds=holds)
            quarantine = QuarantineFile(spec, 0, 0)
            quarantine.add(
                [
                    QuarantinedValue('{"id":"1"}', "amount", "x", "why"),
                    QuarantinedValue('{"id":"2"}', "amount", "x", "why"),
                ]
            )
            rows = rows_of([quarantine.close()])
            assert {(r["table"], r["change"], r["rule"]) for r in rows} == {("public.a", "c-1", "rule 2")}
            ids |= {r["id"] for r in rows}
        assert len(ids) == 2

    def test_without_a_place_nothing_is_held(self, tmp_path: Path) -> None:
        quarantine = QuarantineFile(replace(spec_of([], tmp_path), quarantine=""), 0, 0)
        quarantine.add([QuarantinedValue("{}", "c", "x", "why")])
        assert quarantine.close() == ""

    def test_nothing_held_no_file(self, tmp_path: Path) -> None:
        quarantine = QuarantineFile(spec_of([], tmp_path), 0, 0)
        quarantine.add([])
        assert quarantine.close() == ""
        assert not (tmp_path / "held").exists()

    def test_many_are_written_as_they_come(self, tmp_path: Path) -> None:
        quarantine = QuarantineFile(spec_of([], tmp_path), 0, 0)
        for _ in range(3):
            quarantine.add([QuarantinedValue("{}", "c", str(n), "why") for n in range(6_000)])
        path = quarantine.close()
        assert pq.read_metadata(path).num_rows == 18_000
        assert pq.read_metadata(path).num_row_groups == 2

    def test_abort_drops_the_file(self, tmp_path: Path) -> None:
        quarantine = QuarantineFile(spec_of([], tmp_path), 0, 0)
        quarantine.add([QuarantinedValue("{}", "c", "x", "why")] * 10_000)
        assert len(list((tmp_path / "held").iterdir())) == 1
        quarantine.abort()
        quarantine.abort()
        assert list((tmp_path / "held").iterdir()) == []


def test_quarantine_schema_is_fixed() -> None:
    first = ["id", "table", "key", "column", "original", "reason", "change", "rule"]
    assert SCHEMA.names == [
        *first,
        "name",
        "fields",
        "run",
        "chunk",
        "since",
        "at",
        "status",
        "place",
        "digest",
        "hashed",
    ]
    assert SCHEMA.field("chunk").type == pa.int32()
