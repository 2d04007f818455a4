# ruff: noqa: F811 - the imported `spark` is a fixture
"""What is made of files: columns, rows, records that are none, and what is refused."""

from __future__ import annotations

import bz2
import gzip
import os
import random
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from files_world import new_store, touch, write, write_parquet
from instep.errors import ConnectError, ReadError, SourceLost
from instep.sources.base import CursorRange
from instep.sources.files import formats, listing
from instep.sources.files.config import FilesConfig
from instep.sources.files.source import FilesSource
from instep.sources.files.table_glob import FileGlob
from instep.stage.conform import origins, refused
from instep.store.store import Store
from lake import spark, with_spark  # noqa: F401
from source_reads import EVERYTHING, accept, batches, find, staged, values


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "drop").mkdir()
    return tmp_path / "drop"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with new_store(tmp_path / "state.db") as opened:
        yield opened


class Drop:
    """A source over the folder."""

    def __init__(self, folder: Path, store: Store) -> None:
        self.folder, self.store = folder, store

    def __call__(self, options: dict[str, Any] | None = None, **config: Any) -> FilesSource:
        return FilesSource(
            FilesConfig.resolved(path=str(self.folder), **(options or {}), **config), self.store.source_files
        )

    def types(self, table: str = "t", **options: Any) -> dict[str, str]:
        return {c.name: str(c.type) for c in find(self(options), table).columns}

    def values(self, table: str = "t", **options: Any) -> dict[str, list[Any]]:
        return values(self(options), table)


@pytest.fixture
def drop(folder: Path, store: Store) -> Drop:
    return Drop(folder, store)


PLACES = [
    ("a folder", "", "orders/a.csv", "orders"),
    ("deep in a folder", "", "orders/2024/01/a.csv", "orders"),
    ("a file", "", "orders.csv", "orders"),
    ("compressed", "", "orders.v2.csv.gz", "orders.v2"),
    ("another ending", "", "orders/a.txt", None),
    ("no ending", "", "orders/a", None),
    ("a glob", "in/{table}-*.csv", "in/orders-1.csv", "orders"),
    ("not of the glob", "in/{table}-*.csv", "orders-1.csv", None),
    ("no deeper", "{table}/*.csv", "orders/x/a.csv", None),
    ("deeper", "{table}/**/*.csv", "orders/x/y/a.csv", "orders"),
    ("deeper or not", "{table}/**/*.csv", "orders/a.csv", "orders"),
    ("one letter", "{table}?.csv", "orders1.csv", "orders"),
]


@pytest.mark.parametrize(("pattern", "name", "table"), [p[1:] for p in PLACES], ids=[p[0] for p in PLACES])
def test_the_table_of_a_file(pattern: str, name: str, table: str | None) -> None:
    assert listing.table_of(FilesConfig.resolved(path="x", tables=pattern), listing.FileState(name, 1, "1")) == table


GLOBS = st.lists(st.sampled_from(["*", "**", "**/", "?", "a", "b", "/", "-", ".csv"]), max_size=6)


@given(GLOBS, GLOBS, st.text("ab/-.\n", max_size=9))
def test_a_glob_with_many_wildcards_finds_the_same_table(before: list[str], after: list[str], name: str) -> None:
    glob = FileGlob("".join([*before, "{table}", *after]))
    found = glob._expression.fullmatch(name)
    assert glob._walked(name) == (found["table"] if found else None)


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("**/" * 12 + "{table}.csv", "a/" * 100 + "x"),
        ("**/*a*/**/*b*/**/{table}*x*.csv", "ab/" * 100 + "x"),
        ("{table}" + "*-" * 12 + ".csv", "-" * 200),
        ("**a" * 12 + "{table}.csv", "a" * 200),
    ],
)
def test_a_glob_with_many_wildcards_ends_soon(pattern: str, name: str) -> None:
    """Whoever writes a glob, and whoever names files, must keep no worker busy for ever."""
    assert FileGlob(pattern).table_of(name) is None


def test_hidden_files_and_those_of_unfinished_jobs_are_none(drop: Drop, folder: Path) -> None:
    for name in ("t/_SUCCESS.csv", "t/.a.csv", "_temporary/0/a.csv", "t/a.csv"):
        write(folder / name, "a\n1\n")
    assert drop.values() == {"a": [1]}


def test_a_file_that_is_being_written_waits(drop: Drop, folder: Path) -> None:
    write(folder / "t/a.csv", "a\n1\n")
    (folder / "t/b.csv").write_text("a\n2\n")
    source = drop(settle=60)
    assert values(source, "t") == {"a": [1]}
    (check, *_) = source.test()
    assert check.ok
    assert "t/b.csv is being written" in check.detail
    (folder / "t/a.csv").write_text("a\n1\n3\n")
    found = source.discover()
    assert "t/a.csv is being written" in found.denied["files", "t"]
    touch(folder / "t/a.csv")
    assert values(source, "t") == {"a": [1, 3]}


def test_a_file_is_looked_at_once(drop: Drop, folder: Path, store: Store) -> None:
    path = write(folder / "t/a.csv", "a\n1\n")
    state = path.stat()
    assert drop.types() == {"a": "int64"}
    path.write_text("a\nx\n")
    os.utime(path, ns=(state.st_mtime_ns, state.st_mtime_ns))
    assert drop.types() == {"a": "int64"}
    assert drop.types(delimiter=";") == {"a": "string"}
    touch(path)
    assert drop.types() == {"a": "string"}
    assert [f.path for f in store.source_files.of("files")] == ["t/a.csv", "t/a.csv"]


CSV = [
    ("plain", b"a,b\n1,x\n2,\n", {}, {"a": [1, 2], "b": ["x", None]}),
    ("a byte order mark", b"\xef\xbb\xbfa\n1\n", {}, {"a": [1]}),
    ("carriage returns", b"a,b\r\n1,2\r\n", {}, {"a": [1], "b": [2]}),
    ("NULL and an empty text", b'a,b\n"",1\n,2\n', {}, {"a": ["", None], "b": [1, 2]}),
    ("other texts for NULL", b'a,b\nNA,"NA"\n,1\n', {"nulls": ("NA",)}, {"a": [None, ""], "b": ["NA", "1"]}),
    ("lines in texts", b'a,b\n"x\ny",1\n', {}, {"a": ["x\ny"], "b": [1]}),
    ("quotes in texts", b'a\n"say ""hi"""\n', {}, {"a": ['say "hi"']}),
    ("another delimiter and quote", b"a;b\n'1;2';3\n", {"delimiter": ";", "quote": "'"}, {"a": ["1;2"], "b": [3]}),
    ("no quotes", b'a\n5" disk\n', {"quote": ""}, {"a": ['5" disk']}),
    ("escapes", b'a,b\nx\\,y,1\n', {"escape": "\\"}, {"a": ["x,y"], "b": [1]}),
    ("no header", b"1,x\n", {"header": False}, {"column_1": [1], "column_2": ["x"]}),
    ("latin-1", "a\nä\n".encode("latin-1"), {"encoding": "latin-1"}, {"a": ["ä"]}),
    ("utf-16", "a,b\nä,1\n".encode("utf-16"), {"encoding": "utf-16"}, {"a": ["ä"], "b": [1]}),
    ("the same header twice", b"a,a,,a_2\n1,2,3,4\n", {}, {"a": [1], "a_3": [2], "column_3": [3], "a_2": [4]}),
    ("a header only", b"a,b\n", {}, {"a": [], "b": []}),
    ("blank lines", b"a,b\n1,2\n\n\n3,4\n", {}, {"a": [1, 3], "b": [2, 4]}),
    ("leading zeros", b"a\n007\n", {}, {"a": ["007"]}),
    ("no line end behind the last text", b'a,b\n1,"x"', {}, {"a": [1], "b": ["x"]}),
    ("a quote within a text", b'a\n5" disk\n6\n', {}, {"a": ['5" disk', "6"]}),
    ("carriage returns alone", b"a\r1\r2\r", {}, {"a": [1, 2]}),
]  # fmt: skip


@pytest.mark.parametrize(("content", "options", "expected"), [c[1:] for c in CSV], ids=[c[0] for c in CSV])
def test_csv(drop: Drop, folder: Path, content: bytes, options: dict[str, Any], expected: dict[str, list[Any]]) -> None:
    write(folder / "t/a.csv", content)
    assert drop.values(**options) == expected


def test_tabs_and_compression(drop: Drop, folder: Path) -> None:
    write(folder / "t/a.tsv", "a\tb\n1\t2\n")
    write(folder / "t/b.csv.gz", gzip.compress(b"a,b\n3,4\n"))
    write(folder / "t/c.csv.bz2", bz2.compress(b"a,b\n5,6\n"))
    write(folder / "t/d.csv.zst", pa.compress(b"a,b\n7,8\n", "zstd", asbytes=True))
    assert drop.values() == {"a": [1, 3, 5, 7], "b": [2, 4, 6, 8]}


def held(source: FilesSource, name: str) -> tuple[list[Any], list[tuple[str, int, str, str]]]:
    """(the places of the rows, the records that are none)."""
    read = accept(find(source, name))
    with source.snapshot() as snapshot:
        found = batches(snapshot, snapshot.chunks(read, name, EVERYTHING))
    return (
        [origins(b)(at) for b in found for at in range(len(b))],
        [(file, *record) for b in found for file, record in refused(b)],
    )


def test_records_with_too_many_or_too_few_values(drop: Drop, folder: Path) -> None:
    write(folder / "t/a.csv", "a,b\n1,2\n3\n4,5\n6,7,8\n9,10\n11\n")
    source = drop()
    rows, none = held(source, "t")
    assert rows == ["t/a.csv:2", "t/a.csv:4", "t/a.csv:6"]
    why = "{} values where 2 columns are"
    assert none == [
        ("t/a.csv", 3, "3", why.format(1)), ("t/a.csv", 5, "6,7,8", why.format(3)), ("t/a.csv", 7, "11", why.format(1))
    ]  # fmt: skip
    with source.snapshot() as snapshot:
        assert snapshot.count(accept(find(source, "t"))) == 3


def test_bytes_that_are_no_text_are_invalid_values(drop: Drop, folder: Path) -> None:
    write(folder / "t/a.csv", b"a,b\nx,1\n\xff\xfe,2\n")
    rows, originals = staged(drop(), "t")
    assert rows == [{"a": "x", "b": 1}, {"a": None, "b": 2}]
    assert list(originals.values()) == ["\\xfffe"]


def test_a_ragged_record_with_bytes_that_are_no_text_is_held(
    drop: Drop, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write(folder / "t/a.csv", "a,b\n1,é\né,2,3\n4,x\n5\n".encode("latin-1"))
    source = drop()
    places, none = held(source, "t")
    assert places == ["t/a.csv:2", "t/a.csv:4"]
    why = "{} values where 2 columns are"
    assert none == [("t/a.csv", 3, "\\xe9,2,3", why.format(3)), ("t/a.csv", 5, "5", why.format(1))]
    rows, originals = staged(source, "t")
    assert rows == [{"a": 1, "b": None}, {"a": 4, "b": "x"}]
    assert list(originals.values()) == ["\\xe9"]
    assert capfd.readouterr().err == ""


JSON = [
    ("plain", '{"a":1,"b":"x"}\n{"b":"y","a":2}\n', {"a": [1, 2], "b": ["x", "y"]}, "int64"),
    ("absent and null", '{"a":1}\n{"b":2}\n{"a":null}\n', {"a": [1, None, None], "b": [None, 2, None]}, "int64"),
    ("numbers as they are written", '{"a":1.50}\n{"a":2}\n', {"a": ["1.50", "2"]}, "float64"),
    ("large integers", '{"a":123456789012345678901}\n', {"a": ["123456789012345678901"]}, "decimal(21,0)"),
    ("a number in quotes", '{"a":"1"}\n', {"a": ["1"]}, "string"),
    ("days", '{"a":"2024-02-29"}\n', {"a": ["2024-02-29"]}, "date"),
    ("truth", '{"a":true}\n', {"a": ["true"]}, "boolean"),
    ("nested", '{"a":{"x":[1.50,null,"ä"]}}\n{"a":[]}\n', {"a": ['{"x":[1.50,null,"ä"]}', "[]"]}, "json"),
    ("mixed", '{"a":1}\n{"a":"x"}\n{"a":[1]}\n', {"a": ["1", "x", "[1]"]}, "string"),
    ("NaN", '{"a":NaN}\n{"a":1.5}\n', {"a": ["NaN", "1.5"]}, "string"),
    ("a byte order mark", '\ufeff{"a":1}', {"a": [1]}, "int64"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "expected", "kind"), [c[1:] for c in JSON], ids=[c[0] for c in JSON])
def test_json_lines(drop: Drop, folder: Path, content: str, expected: dict[str, list[Any]], kind: str) -> None:
    write(folder / "t/a.jsonl", content)
    assert (drop.values(), drop.types()["a"]) == (expected, kind)


def test_lines_that_are_no_objects(drop: Drop, folder: Path) -> None:
    write(folder / "t/a.jsonl", b'{"a":1}\n\n[1]\n{"a":\n{"a":"\xff"}\n{"a":"\\ud800"}\n{"a":2}\n')
    rows, none = held(drop(), "t")
    assert rows == ["t/a.jsonl:1", "t/a.jsonl:7"]
    assert [(line, why.partition(":")[0]) for _, line, _, why in none] == [
        (3, "a JSON list and no object"), (4, "not JSON"), (5, "bytes or characters that are no text"),
        (6, "bytes or characters that are no text"),
    ]  # fmt: skip


def test_parquet_types(drop: Drop, folder: Path) -> None:
    arrays = {
        "small": pa.array([1], pa.int8()), "u16": pa.array([1], pa.uint16()),
        "unsigned": pa.array([2**40], pa.uint64()),
        "price": pa.array([1], pa.decimal128(12, 2)), "half": pa.array([1.5], pa.float32()),
        "label": pa.array(["x"]).dictionary_encode(), "at": pa.array([0], pa.timestamp("ns", "UTC")),
        "local": pa.array([0], pa.timestamp("ms")), "day": pa.array([0], pa.date32()), "raw": pa.array([b"x"]),
        "list": pa.array([[1, 2]]), "nested": pa.array([{"x": 1, "y": "z"}]), "none": pa.nulls(1),
        "map": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
    }  # fmt: skip
    write_parquet(folder / "t/a.parquet", pa.table(arrays))
    assert drop.types() == {
        "small": "int8", "u16": "int32", "unsigned": "decimal(20,0)", "price": "decimal(12,2)", "half": "float32",
        "label": "string", "at": "timestamptz", "local": "timestamp", "day": "date", "raw": "binary",
        "list": "array(int64)", "nested": 'struct("x" int64, "y" string)', "none": "unknown", "map": "json",
    }  # fmt: skip


def test_files_of_a_table_are_joined(drop: Drop, folder: Path) -> None:
    write_parquet(folder / "t/a.parquet", pa.table({"n": pa.array([1], pa.int32()), "s": ["x"]}))
    write_parquet(folder / "t/b.parquet", pa.table({"s": ["y"], "more": [True], "n": pa.array([2**40])}))
    write(folder / "t/c.csv", "n,late\n3,2024-01-01\n")
    assert drop.types() == {"n": "int64", "s": "string", "more": "boolean", "late": "date"}
    assert staged(drop(), "t")[0] == [
        {"n": 1, "s": "x", "more": None, "late": None}, {"n": 2**40, "s": "y", "more": True, "late": None},
        {"n": 3, "s": None, "more": None, "late": date(2024, 1, 1)},
    ]  # fmt: skip


def test_a_file_with_another_type_is_named(drop: Drop, folder: Path) -> None:
    write(folder / "t/a.csv", "n\n1\n")
    write(folder / "t/b.csv", "n\nx\n")
    (column,) = find(drop(), "t").columns
    assert (str(column.type), column.note) == ("string", "int64 before t/b.csv")


def test_declared_types_and_keys(drop: Drop, folder: Path) -> None:
    write(folder / "t/a.csv", "id,n\n1,1.50\n2,2\n1,3\n")
    write(folder / "t/b.csv", "id,n\n2,7\n3,8\n,9\n")
    source = drop({"types": {"n": "decimal(12,2)"}, "key": ("id",)})
    table = find(source, "t")
    assert (table.key, str(table.by_name["n"].type), table.by_name["id"].nullable) == (("id",), "decimal(12,2)", False)
    assert sorted(zip(*values(source, "t").values(), strict=True), key=str) == [
        (1, "3"), (2, "7"), (3, "8"), (None, "9")
    ]  # fmt: skip
    with source.snapshot() as snapshot:
        assert snapshot.count(accept(table)) == 4


@pytest.mark.parametrize("rows_at_once", [250_000, 7])
def test_of_each_key_the_newest_row_counts(
    drop: Drop, folder: Path, monkeypatch: pytest.MonkeyPatch, rows_at_once: int
) -> None:
    """That of the file that came last, and of that its last one; however many files and rows there are."""
    monkeypatch.setattr("instep.stage.fold.slices.__defaults__", (rows_at_once, 1 << 20))
    monkeypatch.setattr("instep.sources.files.read.CHUNK_ROWS", 40)
    at, expected, keyless = random.Random(5), dict[tuple[Any, ...], int](), list[int]()
    source = drop({"key": ("id", "part")})
    for number in range(6):
        rows = [(at.choice([None, *range(15)]), at.choice("abc"), number * 100 + n) for n in range(30)]
        columns = dict(zip(("id", "part", "v"), map(list, zip(*rows, strict=True)), strict=True))
        write_parquet(folder / f"t/{number}.parquet", columns)
        source.discover()  # so that files are numbered as they come
        expected |= {(i, p): v for i, p, v in rows if i is not None}
        keyless += [v for i, _, v in rows if i is None]
    assert sorted(values(source, "t")["v"]) == sorted([*expected.values(), *keyless])
    with source.snapshot() as snapshot:
        assert snapshot.count(accept(find(source, "t"))) == len(expected) + len(keyless)


@with_spark
def test_keys_of_large_tables_are_read_by_tasks_and_rows_by_several(
    drop: Drop, folder: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "PART_BYTES", 300)
    monkeypatch.setattr(formats, "_BLOCK", 100)
    monkeypatch.setattr("instep.sources.files.read.CHUNK_ROWS", 40)
    at, expected = random.Random(7), dict[tuple[str, str], str]()
    for number in range(3):
        rows = [(str(at.randrange(60)), at.choice("abc"), str(number * 1_000 + n)) for n in range(200)]
        write(folder / f"t/{number}.csv", "id,part,v\n" + "".join(f"{','.join(row)}\n" for row in rows))
        drop({"key": ("id", "part")}).discover()
        expected |= {(i, p): v for i, p, v in rows}
    source, started = drop({"key": ("id", "part")}), list[Any]()
    here = sorted(values(source, "t")["v"])
    assert here == sorted(map(int, expected.values()))
    source.start = lambda: started.append(spark) or spark
    assert sorted(values(source, "t")["v"]) == here
    assert not started, "they are small"
    monkeypatch.setattr("instep.sources.files.source.INSPECT_BYTES", 0)
    with source.snapshot() as snapshot:
        read = accept(find(source, "t"))
        chunks = snapshot.chunks(read, "t", CursorRange())
        assert len(chunks) > 3, "files are read in parts"
        assert not any(chunk.lane for chunk in chunks)
        assert snapshot.count(read) == len(expected)
    assert len(started) == 1, "keys are read once"
    assert sorted(values(source, "t")["v"]) == here


@with_spark
def test_tasks_look_at_new_files_as_threads_do(
    drop: Drop, folder: Path, store: Store, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        write(folder / f"t/{number}.csv", "id,n\n" + "".join(f"{i},{i / (number + 1)}\n" for i in range(50)))
        write(folder / f"u/{number}.json", '{"a": 1, "b": "2026-01-01"}\n')
    write(folder / "x/a.csv", 'a,b\n1,"x\n2,y\n')
    started = list[Any]()

    def start() -> Any:
        started.append(spark)
        return spark

    with new_store(folder.parent / "other.db") as other:
        config = FilesConfig.resolved(path=str(folder))
        expected = drop().discover()
        assert FilesSource(config, other.source_files, start).discover() == expected
        assert not started, "they are small"
    monkeypatch.setattr("instep.sources.files.read.INSPECT_BYTES", 0)
    with new_store(folder.parent / "third.db") as third:
        source = FilesSource(config, third.source_files, start)
        assert source.discover() == expected
        assert "in the middle of a quoted" in expected.denied["files", "x"]
        assert source.discover() == expected
    assert len(started) == 2, "a file that cannot be read is looked at again"


def test_metadata_columns(drop: Drop, folder: Path) -> None:
    write(folder / "t/a.csv", "_file,n\nx,1\n")
    write_parquet(folder / "t/b.parquet", {"n": [2, 3]})
    source = drop(metadata=("_file", "_line", "_file_number"))
    found = values(source, "t")
    assert found["_file"] == ["t/a.csv", "t/b.parquet", "t/b.parquet"]
    assert (found["_line"], found["src__file"]) == ([2, 1, 2], ["x", None, None])
    assert found["_file_number"] == sorted(found["_file_number"])


def test_columns_that_are_called_like_metadata_are_the_files_own(drop: Drop, folder: Path) -> None:
    write(folder / "t/a.csv", "_line,_file,_file_number\n7,x,100\n8,y,200\n")
    assert drop.values() == {"_line": [7, 8], "_file": ["x", "y"], "_file_number": [100, 200]}
    read = accept(find(drop(), "t"))
    with drop().snapshot() as snapshot:
        found = batches(snapshot, snapshot.chunks(read, "t", CursorRange("_file_number", "150", "200")))
    assert [v for b in found for v in b.column(0).to_pylist()] == [8]


NO_ROWS = [
    ("one JSON array", "a.json", '[{"a":1},{"a":2}]\n'),
    ("JSON over several lines", "a.json", '{\n"a":1\n}\n'),
]


@pytest.mark.parametrize(("name", "content"), [n[1:] for n in NO_ROWS], ids=[n[0] for n in NO_ROWS])
def test_files_of_records_that_are_all_none_are_told(drop: Drop, folder: Path, name: str, content: str) -> None:
    write(folder / "t" / name, content)
    assert f"t/{name} is a row: each has to be one JSON object" in drop().discover().denied["files", "t"]


BROKEN = [
    ("an empty Parquet file", "a.parquet", b"", "t/a.parquet cannot be read"),
    ("no Parquet file", "a.parquet", b"x" * 100, "t/a.parquet cannot be read"),
    ("no gzip", "a.csv.gz", b"plain", "t/a.csv.gz cannot be read"),
    ("cut off", "a.csv.gz", gzip.compress(b"a\n" * 1000)[:20], "t/a.csv.gz cannot be read"),
    (
        "cut off in a quoted text",
        "a.csv",
        b'a,b\n1,"x\n2,y\n',
        "t/a.csv ends in the middle of a quoted",
    ),
    ("a quoted text without its second quote", "a.csv", b'a,b\n1,"x""\n2,z', "t/a.csv ends in the middle of"),
    ("one column, cut off", "a.csv", b'a\n"x', "t/a.csv ends in the middle of"),
    ("cut off json", "a.json.gz", gzip.compress(b"{}\n" * 1000)[:20], "t/a.json.gz cannot be read"),
]


@pytest.mark.parametrize(("name", "content", "said"), [b[1:] for b in BROKEN], ids=[b[0] for b in BROKEN])
def test_a_broken_file_fails_its_table_alone(drop: Drop, folder: Path, name: str, content: bytes, said: str) -> None:
    write(folder / "t" / name, content)
    write(folder / "u.csv", "a\n1\n")
    found = drop().discover()
    assert [t.name for t in found.catalog.tables] == ["u"]
    assert said in found.denied["files", "t"]
    (failed,) = [c for c in drop().test() if not c.ok]
    assert said in failed.detail


def test_empty_files_have_nothing(drop: Drop, folder: Path) -> None:
    write(folder / "t/a.csv", "")
    write(folder / "t/b.csv", "\n\n")
    assert drop().discover().catalog.tables == ()
    write(folder / "t/c.csv", "a\n1\n")
    assert drop.values() == {"a": [1]}


def test_a_wrong_encoding_is_told(drop: Drop, folder: Path) -> None:
    write(folder / "t/a.csv", b"a\n\xff\n")
    found = drop({"encoding": "ascii"}).discover()
    assert "t/a.csv cannot be read as CSV" in found.denied["files", "t"]


def test_another_encoding_than_the_one_that_is_said(drop: Drop, folder: Path) -> None:
    write(folder / "t/a.csv", "a,b\n1,é\n".encode("utf-16"))
    denied = drop().discover().denied
    assert denied["files", "t"] == "t/a.csv is UTF-16, its first bytes say (set `encoding: utf-16` for its table)"


def test_a_key_that_is_no_column(drop: Drop, folder: Path) -> None:
    write(folder / "t/a.csv", "a\n1\n")
    assert "its key id is not a column of its files" in drop({"key": ("id",)}).discover().denied["files", "t"]


def test_a_file_that_changes_after_it_was_listed(drop: Drop, folder: Path) -> None:
    path = write(folder / "t/a.csv", "a\n1\n")
    source = drop()
    read = accept(find(source, "t"))
    with source.snapshot() as snapshot:
        chunks = snapshot.chunks(read, "t", EVERYTHING)
        write(folder / "t/b.csv", "a\n2\n")
        assert [b.num_rows for b in batches(snapshot, chunks)] == [1]
        assert snapshot.changed_tables(snapshot.discover().catalog) == frozenset()
        write(path, "a,b\n1,2\n")
        assert snapshot.changed_tables(snapshot.discover().catalog) == {("files", "t")}
        with pytest.raises(ReadError, match="was changed or taken away"):
            batches(snapshot, chunks)


class CountedSchema:
    """A file's schema that counts how often all of its names are listed."""

    def __init__(self, schema: pa.Schema, listed: list[int]) -> None:
        self.schema, self.listed = schema, listed

    @property
    def names(self) -> list[str]:
        self.listed.append(len(self.schema.names))
        return list(self.schema.names)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.schema, name)


@pytest.mark.parametrize("width", [3, 300])
def test_the_names_of_a_wide_file_are_listed_once(
    drop: Drop, folder: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    """Arrow makes a new list of all of them each time."""
    write_parquet(folder / "t.parquet", {f"c{n}": [n] for n in range(width)})
    listed: list[int] = []

    class Opened(pq.ParquetFile):  # type: ignore[misc]
        @property
        def schema_arrow(self) -> Any:
            return CountedSchema(super().schema_arrow, listed)

    read = accept(find(drop(), "t"))
    monkeypatch.setattr("instep.sources.files.parquet.pq.ParquetFile", Opened)
    with drop().snapshot() as snapshot:
        [batch] = batches(snapshot, snapshot.chunks(read, "t", EVERYTHING))
    assert batch.num_columns == width
    assert listed == [width]


def test_a_folder_that_is_lost_while_it_is_read(drop: Drop, folder: Path) -> None:
    """As a server that is lost: a file that was taken away alone is a ReadError, after which other tables go on."""
    write(folder / "t" / "a.csv", "a\n1\n")
    with drop().snapshot() as snapshot:
        [table] = snapshot.discover().catalog.tables
        chunks = snapshot.chunks(accept(table), "t", EVERYTHING)
        folder.rename(folder.parent / "elsewhere")
        with pytest.raises(SourceLost, match=r"(?s)^t: .*is not a folder.*`instep sync` again"):
            batches(snapshot, chunks)


def test_a_folder_that_is_none(tmp_path: Path, store: Store) -> None:
    with pytest.raises(ConnectError, match="is not a folder"):
        FilesSource(FilesConfig.resolved(path=str(tmp_path / "none")), store.source_files).discover()


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_big_files_are_divided(drop: Drop, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(formats, "PART_BYTES", 5_000)
    monkeypatch.setattr(formats, "_BLOCK", 2_000)
    line = "{},x{}\n" if name == "a.csv" else '{{"n":{},"s":"x{}"}}\n'
    write(folder / "t" / name, ("n,s\n" if name == "a.csv" else "") + "".join(line.format(i, i) for i in range(2_000)))
    source = drop(metadata=("_line",))
    read = accept(find(source, "t"))
    with source.snapshot() as snapshot:
        (file,) = snapshot.seen.tables["t"]
        found = batches(snapshot, snapshot.chunks(read, "t", EVERYTHING))
    assert len(file.shape.parts) > 2
    rows = [r for b in found for r in zip(*(c.to_pylist() for c in b.columns), strict=True)]
    header = name == "a.csv"
    assert rows == [(i, f"x{i}", i + 1 + header) for i in range(2_000)]
    write(folder / "t" / name, 'n,s\n1,"x"\n' + "2,y\n" * 4_000)
    with drop().snapshot() as snapshot:
        assert name == "a.jsonl" or snapshot.seen.tables["t"][0].shape.parts == ()


def _link(place: Path, target: Path) -> None:
    """Put a link in the place of what is there, with nothing for a listing to notice."""
    place.rename(place.with_name("_away"))
    place.symlink_to(target)


def _chain(folder: Path, outside: Path) -> None:
    (folder / "t/_first").symlink_to(outside / "t/a.csv")
    _link(folder / "t/a.csv", folder / "t/_first")


def _pipe(folder: Path, outside: Path) -> None:
    (folder / "t/a.csv").unlink()
    os.mkfifo(folder / "t/a.csv")


def _inner(folder: Path, outside: Path) -> None:
    (folder / "t/a.csv").rename(folder / "t/_b")
    (folder / "t/a.csv").symlink_to("_b")


# what comes into the place of a file after it was listed, and what is read of it then
SWAPPED: dict[str, tuple[Callable[[Path, Path], None], list[str] | None]] = {
    "nothing": (lambda folder, outside: None, ["1"]),
    "a link within the folder": (_inner, ["1"]),
    "a link to a file elsewhere": (lambda folder, outside: _link(folder / "t/a.csv", outside / "t/a.csv"), None),
    "a link to one": (_chain, None),
    "a folder that is a link": (lambda folder, outside: _link(folder / "t", outside / "t"), None),
    "a link to itself": (lambda folder, outside: _link(folder / "t/a.csv", folder / "t/a.csv"), None),
    "a link to a folder": (lambda folder, outside: _link(folder / "t/a.csv", folder / "t"), None),
    "a pipe": (_pipe, None),
}


@pytest.mark.parametrize(("swap", "read"), SWAPPED.values(), ids=SWAPPED)
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_file_that_is_swapped_after_its_listing_leads_nowhere(
    folder: Path, tmp_path: Path, swap: Callable[[Path, Path], None], read: list[str] | None, form: str
) -> None:
    """Of a source of an API: whoever writes into its folder could have the worker read what only the worker may."""
    outside = tmp_path / "outside"
    for place, value in ((folder, "1"), (outside, "2")):
        (place / "t").mkdir(parents=True)
        if form == "csv":
            (place / "t/a.csv").write_text(f"id\n{value}\n")
        else:
            pq.write_table(pa.table({"id": [value]}), place / "t/a.csv")
    config = FilesConfig.resolved(path=str(folder), settle=0, links=False, format=form)
    options = config.options_of("t")
    [state] = listing.listing(config).files["t"]
    shape = formats.inspect(config, options, state)
    swap(folder, outside)
    if read is None:
        for look in (
            lambda: formats.inspect(config, options, state),
            lambda: list(formats.pieces(config, options, state, shape, None, ["id"])),
        ):
            with pytest.raises(ReadError, match=r"t/a\.csv (leads out of|cannot be read)"):
                look()
        return
    found = formats.pieces(config, options, state, shape, None, ["id"])
    assert [str(one) for piece in found for one in piece.arrays["id"].to_pylist()] == read
