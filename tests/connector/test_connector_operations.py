"""Operations of a connector, from its code to the rows of its segments."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from sdk_world import World, types

from instep.errors import ReadError
from instep.sources.connector.output import level_of
from instep.sources.connector.segment import OperationCounts

KEYED = """
def schema(configuration):
    return [{"table": "item", "primary_key": ["id"], "columns": {"id": "LONG", "price":
             {"type": "DECIMAL", "precision": 6, "scale": 2}, "short": "SHORT"}}]
"""
PLAIN = """
def update(configuration, state):
    op.upsert("item", {"id": 1, "name": "a"})
    op.update("item", {"id": 1, "price": "2.50"})
    op.delete("item", {"id": 1, "name": "ignored"})
    op.truncate("item")
    op.upsert(table="item", data={"id": 2})
    op.checkpoint({"at": 2})
"""


def yielded(code: str) -> str:
    return code.replace("    op.", "    yield op.")


@pytest.mark.parametrize("style", [PLAIN, yielded(PLAIN)], ids=["plain", "generator"])
def test_both_styles(world: World, style: str) -> None:
    sync = world.sync(KEYED + style)
    assert sync.error is None
    (segment,) = sync.segments
    assert (segment.state, segment.ends) == ({"at": 2}, False)
    table = segment.table("item")
    assert table is not None
    assert (table.upserts, table.updates, table.deletes, table.truncates) == (2, 1, 1, (4,))
    assert [(r["__op"], r["__seq"], r["__given"], r["id"], r["name"]) for r in sync.rows("item")] == [
        (0, 1, None, 1, "a"), (1, 2, '["id", "price"]', 1, None), (2, 3, None, 1, None), (0, 5, None, 2, None)
    ]  # fmt: skip
    assert sync.counts == segment.counts == OperationCounts(2, 1, 1, 1, 1) == sync.told[-1]


def test_a_key_changes_nothing_about_undeclared_columns(world: World) -> None:
    sync = world.sync(
        KEYED + "def update(configuration, state):\n    op.upsert('item', {'id': 1, 'a': [1], 'b': None})"
    )
    (segment,) = sync.segments
    assert types(segment.table("item")) == {
        "id": "int64", "price": "decimal(6,2)", "short": "int16", "a": "json"
    }  # fmt: skip
    assert segment.ends


FILE = "FileUpload('a.pdf', io.BytesIO(b'x'))"
REFUSED: list[tuple[str, str, str, str]] = [
    ("no key", "op.upsert('item', {'name': 'a'})", "ValueError", "table item: the row has no 'id'"),
    ("a null key", "op.upsert('item', {'id': None})", "ValueError", "'id' is null"),
    ("no key in an update", "op.update('item', {'name': 'a'})", "ValueError", "no 'id'"),
    ("no key in a delete", "op.delete('item', {'name': 'a'})", "ValueError", "no 'id'"),
    ("an update without a key", "op.update('other', {'a': 1})", "ValueError", "needs a primary key"),
    ("a delete without a key", "op.delete('other', {'a': 1})", "ValueError", "needs a primary key"),
    ("an empty column name", "op.upsert('item', {'id': 1, '': 1})", "ValueError", "a column without a name"),
    ("a column name that is no text", "op.upsert('item', {'id': 1, 7: 1})", "TypeError", "7 is not a text"),
    ("half a column name", "op.upsert('item', {'id': 1, '\\ud800': 1})", "ValueError", "not Unicode text"),
    ("a column of ours", "op.upsert('item', {'id': 1, '__op': 1})", "ValueError", "'__op'"),
    ("another type", "op.upsert('item', {'id': 'x'})", "ValueError", "column id, key id='x': 'x' is not a valid LONG"),
    ("a decimal that overflows", "op.upsert('item', {'id': 7, 'price': '12345.6'})", "ValueError",
     "table item, column price, key id=7: '12345.6' does not fit DECIMAL(6,2)"),
    ("a short that overflows", "op.upsert('item', {'id': 7, 'short': 40000})", "ValueError", "40000 is out of range"),
    ("an empty table name", "op.upsert('', {'id': 1})", "ValueError", "cannot be empty"),
    ("a table name that is no text", "op.upsert(None, {'id': 1})", "TypeError", "has to be a text, not None"),
    ("a row that is no dict", "op.upsert('item', [1])", "TypeError", "data has to be a dict, not list"),
    ("a state that is no dict", "op.checkpoint([1])", "ValueError", "state has to be a dict"),
    ("a state that is no JSON", "op.checkpoint({'a': {1}})", "TypeError", "state['a'] is of the type set"),
    ("a set inside JSON", "op.upsert('item', {'id': 1, 'a': [{1}]})", "TypeError", "column a, key id=1"),
    ("half a character", "op.upsert('item', {'id': 1, 'a': '\\ud800'}); op.checkpoint({})", "ValueError", "surrogate"),
    ("no file", "op.upsert('item', {'id': 1}, file='a.pdf')", "TypeError", "`file` has to be a FileUpload, not str"),
    ("a file of a refused row", f"op.upsert('item', {{}}, file={FILE})", "ValueError", "the row has no 'id'"),
    ("another size", f"op.upsert('item', {{'id': 1}}, file={FILE[:-1]}, 2))", "ValueError",
     "table item, file a.pdf: its stream gave 1 bytes, expected_bytes says 2"),
    ("no bytes", "op.upsert('item', {'id': 1}, file=FileUpload('a', io.StringIO('x')))", "TypeError", "gave str"),
    ("a stream that breaks", "op.update('item', {'id': 1}, file=FileUpload('a', Broken()))", "OSError", "cut off"),
    ("no stream", "FileUpload('a', b'x')", "TypeError", "`stream` has to have read(size)"),
    ("no path", "FileUpload('', io.BytesIO())", "ValueError", "`path` has to be a text"),
    ("no size", "FileUpload('a', io.BytesIO(), '7')", "TypeError", "has to be a whole number, not '7'"),
    ("a path out", "FileUpload('a/../../b', io.BytesIO())", "ValueError", "'a/../../b' leads to no file below"),
    ("a path to nowhere", "FileUpload('/./', io.BytesIO())", "ValueError", "leads to no file below"),
    ("a path that no system takes", "FileUpload('a\\0b', io.BytesIO())", "ValueError", "leads to no file below"),
    ("a path of two lines", "FileUpload('a\\x85b', io.BytesIO())", "ValueError", "leads to no file below"),
    ("a path with half a pair", "FileUpload('a\\ud800b', io.BytesIO())", "ValueError", "leads to no file below"),
    ("a name that is too long", "FileUpload('a/' + 'é' * 128, io.BytesIO())", "ValueError", "more than 255 bytes"),
]  # fmt: skip


def test_every_refusal_is_raised_where_the_operation_was_called(world: World) -> None:
    calls = [call for _, call, _, _ in REFUSED]
    sync = world.sync(
        KEYED
        + f"import io\nfrom fivetran_connector_sdk import FileUpload\nCALLS = {calls!r}\n"
        + """
class Broken:
    def read(self, size):
        raise OSError("cut off")
def update(configuration, state):
    for call in CALLS:
        try:
            exec(call)
        except Exception as error:
            log.info(f"{type(error).__name__}: {error}")
        else:
            log.info("taken: " + call)
    op.upsert("item", {"id": 99})
    """
    )
    assert sync.error is None
    for (name, _, kind, words), line in zip(REFUSED, sync.logs, strict=True):
        assert line.message.startswith(kind), name
        assert words in line.message, name
    assert [r["id"] for r in sync.records("item")] == [99]
    assert list((world.folder / "spool").rglob("upload-*")) == []


@pytest.mark.parametrize("case", [c for c in REFUSED if "overflows" in c[0]], ids=lambda c: c[0])
def test_a_refusal_that_is_not_caught_fails_the_sync(world: World, case: tuple[str, ...]) -> None:
    sync = world.sync(KEYED + f"def update(configuration, state):\n    op.upsert('item', {{'id': 1}})\n    {case[1]}")
    assert isinstance(sync.error, ReadError)
    assert case[3] in str(sync.error)
    assert sync.segments == []
    assert list((world.folder / "spool").iterdir()) == []


def test_invalid_values_are_kept_where_the_table_says_so(world: World) -> None:
    code = (
        KEYED
        + """
def update(configuration, state):
    op.upsert("item", {"id": 1, "price": "12345.6", "short": 40000})
    op.upsert("item", {"id": 2, "price": "1.5", "short": 4})
    """
    )
    sync = world.sync(code, keep_invalid_values=("it*",))
    table = sync.segments[0].table("item")
    assert table is not None
    assert [(c.name, str(c.type), str(c.stored), c.invalid_values) for c in table.columns] == [
        ("id", "int64", "int64", 0), ("price", "decimal(6,2)", "string", 1), ("short", "int16", "string", 1)
    ]  # fmt: skip
    assert [(r["price"], r["short"]) for r in sync.records("item")] == [("12345.6", "40000"), ("1.50", "4")]


def test_undeclared_values_keep_their_types(world: World) -> None:
    sync = world.sync("""
        from datetime import date, datetime
        from decimal import Decimal
        from uuid import UUID
        from enum import IntEnum
        from collections import OrderedDict, UserDict
        class Size(IntEnum):
            BIG = 3
        class Row(UserDict):
            pass
        def update(configuration, state):
            op.upsert("t", {
                "bool": True, "int": 1, "big": 2**70, "float": 10.4, "small": 1e-4, "str": "2026-01-01", "bytes": b"x",
                "array": bytearray(b"y"), "dict": OrderedDict(a=[1.5]), "list": [1, None], "none": None,
                "nan": float("nan"), "decimal": Decimal("1.50"), "datetime": datetime(2026, 1, 2, 3),
                "date": date(2026, 1, 2), "tuple": (1, 2), "uuid": UUID(int=1), "enum": Size.BIG,
            })
            op.upsert("t", Row(int=2, str="row", größe=1))
    """)
    assert sync.error is None
    assert types(sync.segments[0].table("t")) == {
        "bool": "boolean", "int": "int64", "big": "decimal(38,0)", "float": "float64", "small": "float64",
        "str": "string", "bytes": "binary", "array": "binary", "dict": "json", "list": "json", "nan": "float64",
        "decimal": "string", "datetime": "string", "date": "string", "tuple": "string", "uuid": "string",
        "enum": "int64", "größe": "int64",
    }  # fmt: skip
    first, second = sync.records("t")
    assert (first["float"], first["small"], first["big"], first["dict"]) == (10.4, 1e-4, 2**70, '{"a":[1.5]}')
    assert (first["decimal"], first["tuple"], first["datetime"]) == ("1.50", "(1, 2)", "2026-01-02 03:00:00")
    assert (second["int"], second["str"], second["größe"], second["bool"]) == (2, "row", 1, None)


def test_a_row_may_be_changed_after_it_was_sent(world: World) -> None:
    sync = world.sync("""
        def update(configuration, state):
            row, inside = {}, [0]
            for i in range(3):
                row["i"], row["inside"] = i, inside
                inside[0] = i
                op.upsert("t", row)
    """)
    assert [(r["i"], r["inside"]) for r in sync.records("t")] == [(0, "[0]"), (1, "[1]"), (2, "[2]")]


def test_schemas_apart(world: World) -> None:
    sync = world.sync("""
        def update(configuration, state):
            op.upsert("t", {"a": 1})
            op.upsert("t", {"b": 2}, schema="other")
            op.truncate("t", schema="other")
    """)
    assert sync.records("t") == [{"a": 1}]
    assert sync.records("t", "other") == [{"b": 2}]
    table = sync.segments[0].table("t", "other")
    assert table is not None
    assert table.truncates == (3,)


def test_order_is_kept_over_many_rows_and_changing_columns(world: World) -> None:
    sync = world.sync("""
        def update(configuration, state):
            for i in range(100_000):
                row = {"i": i, "text": str(i)}
                if i % 3 == 0:
                    row["third"] = i
                if i > 60_000:
                    row["late"] = [i]
                op.upsert("t", row)
            for i in range(10):
                op.upsert("t", {"i": f"text {i}"})
    """)
    (segment,) = sync.segments
    rows = sync.rows("t")
    assert len(rows) == 100_010
    assert [r["__seq"] for r in rows] == list(range(1, 100_011))
    assert [r["i"] for r in rows[:100_000]] == [str(i) for i in range(100_000)]
    assert rows[-1]["i"] == "text 9"
    assert (rows[60_003]["third"], rows[60_003]["late"], rows[59_000]["late"]) == (60_003, "[60003]", None)
    assert types(segment.table("t")) == {"i": "string", "text": "string", "third": "int64", "late": "json"}


def test_threads_keep_their_own_order_and_one_checkpoint_is_under_way_at_a_time(world: World) -> None:
    sync = world.sync("""
        import threading
        def work(n):
            for i in range(3000):
                op.upsert("t", {"thread": n, "i": i})
                if i % 1000 == 999:
                    op.checkpoint({f"thread {n}": i})
        def update(configuration, state):
            threads = [threading.Thread(target=work, args=(n,)) for n in range(10)]
            [t.start() for t in threads]
            [t.join() for t in threads]
    """)
    assert sync.error is None
    assert len(sync.segments) == 30
    rows = sync.records("t")
    assert len(rows) == 30_000
    for n in range(10):
        assert [r["i"] for r in rows if r["thread"] == n] == list(range(3000))


def test_a_state_that_threads_share_never_goes_back(world: World) -> None:
    sync = world.sync("""
        import threading
        from types import MappingProxyType
        def work(n, state):
            for i in range(30):
                op.upsert("t", {"thread": n, "i": i})
                state[str(n)] = i
                op.checkpoint(MappingProxyType(state))
        def update(configuration, state):
            threads = [threading.Thread(target=work, args=(n, state)) for n in range(8)]
            [t.start() for t in threads]
            [t.join() for t in threads]
    """)
    assert sync.error is None
    states = [s.state for s in sync.segments if s.state is not None]
    assert states[-1] == {str(n): 29 for n in range(8)}
    for before, after in itertools.pairwise(states):
        assert all(after[thread] >= i for thread, i in before.items())


def test_segments_end_at_checkpoints(world: World) -> None:
    code = """
        def update(configuration, state):
            log.info(str(state))
            for n in range(3):
                op.upsert("t", {"n": n})
                op.checkpoint({"n": n, "token": configuration["token"]})
            if configuration["rest"] == "yes":
                op.upsert("t", {"n": 9})
    """
    ended = world.sync(code, {"n": -1}, configuration={"rest": "no", "token": "x"})
    assert [(s.number, s.state and s.state["n"], s.ends) for s in ended.segments] == [
        (1, 0, False), (2, 1, False), (3, 2, False)
    ]  # fmt: skip
    assert ended.logs[0].message == "{'n': -1}"
    more = world.beside("more").sync(code, configuration={"rest": "yes", "token": "x"})
    assert [(s.number, s.state and s.state["n"], s.ends) for s in more.segments][-1] == (4, None, True)
    assert [r["n"] for r in more.records("t")] == [0, 1, 2, 9]


def test_a_failure_keeps_what_was_checkpointed(world: World) -> None:
    sync = world.sync("""
        def update(configuration, state):
            op.upsert("t", {"n": 1})
            op.checkpoint({"n": 1})
            op.upsert("t", {"n": 2})
            raise KeyError("missing")
    """)
    assert isinstance(sync.error, ReadError)
    assert "connector: KeyError: 'missing'" in str(sync.error)
    assert "see connector.py, line " in sync.error.hint
    assert "Traceback" in sync.said
    assert [s.number for s in sync.segments] == [1]
    assert [f.name for f in (world.folder / "spool").iterdir()] == ["segment-00001"]


def test_warnings_and_errors_of_its_own(world: World) -> None:
    sync = world.sync("""
        def update(configuration, state):
            op.warning("look out")
            op.upsert("t", {"n": 1})
            op.checkpoint({})
            try:
                op.error("the key has expired", trace="here")
            except Exception:
                log.info("caught by mistake")
    """)
    assert "connector: the key has expired" in str(sync.error)
    assert "caught by mistake" not in sync.said
    assert sync.segments[0].warnings == ("look out",)


def test_log_lines_of_every_kind(world: World) -> None:
    sync = world.sync("""
        import logging, os, sys
        def update(configuration, state):
            for name in ("debug", "fine", "info", "warning", "error", "severe", "critical"):
                getattr(log, name)(name)
            log.error("with", ValueError("why"))
            print("to stdout")
            print("to stderr", file=sys.stderr)
            logging.getLogger("library").warning("from a library")
            os.system("echo from a program")
            log.info("the password is " + configuration["password"])
    """, configuration={"password": "hunter2hunter2"})  # fmt: skip
    lines = {(line.level, line.message, line.origin) for line in sync.logs}
    assert {("debug", "fine", "connector"), ("error", "severe", "connector"), ("info", "to stdout", "stdout"),
            ("warning", "to stderr", "stderr"), ("warning", "from a library", "stderr"),
            ("info", "from a program", "stdout")} <= lines  # fmt: skip
    assert any("ValueError: why" in message for _, message, _ in lines)
    assert "hunter2" not in sync.said


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("INFO:connector:page 3", "info"),
        ("ERROR:connector:no ERROR: here", "error"),
        ("2026-01-31 10:00:00,123 - crm.api - DEBUG - asked", "debug"),
        ("[2026-01-31 10:00:00] [CRITICAL] gone", "error"),
        ("10:00:00 | INFO     | crm:page:3 - done", "info"),
        ("10:00:00 WARNING: slow", "warning"),
        ("INFORMATION: none", "warning"),
        ("an ERROR came up", "warning"),
        ("error: in small letters", "warning"),
        ("Traceback (most recent call last):", "warning"),
    ],
)
def test_lines_of_logging_have_their_level(line: str, level: str) -> None:
    assert level_of(line, "warning") == level


def test_a_loop_that_logs_fills_no_store(world: World) -> None:
    sync = world.sync("""
        def update(configuration, state):
            for n in range(4000):
                log.info(f"line {n}")
                print(f"out {n}")
            log.error("heard all the same")
    """)
    assert sync.error is None
    assert len(sync.logs) < 8000
    assert "heard all the same" in sync.said
    assert sync.logs[-1].origin == "instep"
    assert "log lines were left out" in sync.logs[-1].message


def test_a_state_is_what_the_connector_said(world: World) -> None:
    state: dict[str, Any] = {"deep": {"list": [1, 2.5, None, "é"]}, "empty": {}}
    sync = world.sync(f"def update(configuration, state):\n    op.checkpoint({state!r})")
    assert json.loads(json.dumps(sync.segments[0].state)) == state
    assert sync.segments[0].tables == ()
