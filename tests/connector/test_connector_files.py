"""Files beside rows: whole where their rows say, in pieces on the way, and nowhere that their rows do not tell of."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sdk_world import World

from connector_world import CHECKPOINT, ConnectorWorld, MakeConnector, Step
from instep.errors import ReadError
from instep.schema.selection.selection import Selection, patterns
from instep.sources.connector.frames import Frame
from instep.sources.connector.segment import SegmentTable, SegmentUpload
from instep.sources.connector.uploads import COLUMN, Uploads, folder_of, publish
from sync_world import preset

MIB = 1 << 20
KEY = [{"table": "doc", "primary_key": ["id"], "supports_unstructured_data": True}]
NAMES = [
    "Screenshot at 9.41.07\u202fAM.png", "\u8868\u3000\u4e00.pdf", "prix\u00a0net.csv",
    "\U0001f469\u200d\U0001f52c.jpg", "co\u00adop", "\u0645\u06cc\u200c\u062e.txt", "a b.txt",
]  # fmt: skip
"""With blanks and joiners that are no ASCII."""
SENDS = """
import io, os, threading
from fivetran_connector_sdk import FileUpload
def schema(configuration):
    return [{"table": "doc", "primary_key": ["id"]}]
class Generated:
    '''As many bytes as said, at most `most` a time; never more than one piece of them in memory.'''
    def __init__(self, left, most):
        self.left, self.most, self.asked = left, most, set()
    def read(self, size=-1):
        self.asked.add(size)
        piece = min(self.left, self.most)
        self.left -= piece
        return b"x" * piece
"""


def test_a_file_comes_in_pieces_whatever_its_stream_gives(world: World) -> None:
    sync = world.sync(
        SENDS
        + """
def update(configuration, state):
    for number, (size, most) in enumerate([(0, 1), (1, 1), (5 * 2**20 + 3, 7 * 2**20), (5 * 2**20, 4096), (3, 2)]):
        stream = Generated(size, most)
        op.upsert("doc", {"id": number}, file=FileUpload(f"./a//{number}.bin", stream, size))
        assert stream.asked == {2 << 20}
        op.checkpoint({"number": number})
    """
    )
    assert sync.error is None
    sizes = [0, 1, 5 * MIB + 3, 5 * MIB, 3]
    for number, (size, segment) in enumerate(zip(sizes, sync.segments, strict=True)):
        (upload,) = segment.tables[0].uploads
        assert (upload.name, upload.bytes) == (f"a/{number}.bin", size)
        assert (Path(segment.folder) / upload.path).read_bytes() == b"x" * size
    assert [r[COLUMN] for r in sync.records("doc")] == [f"./a//{n}.bin" for n in range(5)]


def test_a_large_file_is_never_in_memory_as_a_whole(world: World) -> None:
    code = SENDS + (
        "def update(configuration, state):\n"
        "    op.upsert('doc', {'id': 1}, file=FileUpload('a', Generated(300 * 2**20, 2**20)))\n"
    )
    sync = world.sync(code, memory="200MB")
    assert sync.error is None
    assert sync.ended is not None
    assert sync.ended.peak < 200 * MIB
    assert sync.segments[0].tables[0].uploads[0].bytes == 300 * MIB


def test_a_file_of_more_than_the_limit_ends_the_sync(world: World) -> None:
    code = SENDS + (
        "def update(configuration, state):\n"
        "    op.upsert('doc', {'id': 1}, file=FileUpload('b/a', Generated(4 * 2**20 + 1, 2**20)))\n"
    )
    sync = world.sync(code, file="4MB")
    assert isinstance(sync.error, ReadError)
    assert "its file b/a has more than 4,194,304 bytes" in str(sync.error)
    assert sync.segments == []
    assert list((world.folder / "spool").iterdir()) == []
    assert world.sync(code, file="4097KB").error is None


def test_files_of_several_threads_are_with_their_rows(world: World) -> None:
    sync = world.sync(
        SENDS
        + """
def work(at):
    for number in range(6):
        id = at * 100 + number
        op.upsert("doc", {"id": id}, file=FileUpload(str(id), io.BytesIO(bytes([at]) * (id * 10007))))
def update(configuration, state):
    threads = [threading.Thread(target=work, args=(at,)) for at in range(4)]
    for thread in threads: thread.start()
    while any(thread.is_alive() for thread in threads):
        op.checkpoint({"at": os.urandom(4).hex()})
    for thread in threads: thread.join()
    """
    )
    assert sync.error is None
    seen = 0
    for segment in sync.segments:
        table = segment.table("doc")
        assert table is not None
        assert len(table.uploads) == table.rows
        for upload in table.uploads:
            at, size = int(upload.name) // 100, int(upload.name) * 10007
            assert (Path(segment.folder) / upload.path).read_bytes() == bytes([at]) * size
            seen += 1
    assert seen == 24


def test_files_have_the_names_that_people_give_them(world: World) -> None:
    sync = world.sync(
        SENDS
        + """
def update(configuration, state):
    for number, name in enumerate(eval(configuration["names"])):
        op.upsert("doc", {"id": number}, file=FileUpload(name, io.BytesIO(name.encode())))
    """,
        configuration={"names": ascii(NAMES)},
    )
    assert sync.error is None
    found = {u.name: Path(s.folder, u.path).read_text() for s in sync.segments for u in s.tables[0].uploads}
    assert found == {name: name for name in NAMES}
    assert [r[COLUMN] for r in sync.records("doc")] == NAMES


@pytest.mark.parametrize("path", ["../a", "/a", "a/../../b", "a//b", ".", "a\0b", "a\x7fb", "a\udc80b", ""])
def test_no_frame_leads_out_of_the_files_of_its_table(tmp_path: Path, path: str) -> None:
    frame = Frame({"frame": "file", "upload": 1, "path": path, "parts": [], "bytes": 0}, memoryview(b""))
    with pytest.raises(TypeError, match="the path"):
        Uploads("c", tmp_path, 0, str).add_frame(frame, tmp_path)


def test_a_file_of_another_length_than_was_said_is_not_whole(tmp_path: Path) -> None:
    frame = Frame({"frame": "file", "upload": 1, "path": "a", "parts": [3], "bytes": 4}, memoryview(b"abc" + bytes(5)))
    with pytest.raises(ReadError, match="its file a has not come as a whole"):
        Uploads("c", tmp_path, 0, str).add_frame(frame, tmp_path)


def test_a_file_that_is_put_there_again_leaves_nothing_beside_it(tmp_path: Path) -> None:
    (tmp_path / "upload-1").write_text("one")
    table = SegmentTable("", "doc", True, uploads=(SegmentUpload("upload-1", "a", 3),))
    for _ in range(2):
        publish(tmp_path, table, tmp_path / "up")
    assert [(p.name, p.read_text()) for p in (tmp_path / "up").rglob("*") if p.is_file()] == [("a", "one")]


TABLES = st.tuples(st.text("a./%\0\x1f é", max_size=4), st.text("a./%\0\x1f é", min_size=1, max_size=4))


@given(one=TABLES, other=TABLES)
def test_each_table_has_a_folder_of_its_own(one: tuple[str, str], other: tuple[str, str]) -> None:
    labels = {".".join(filter(None, t)) for t in (one, other)}
    folders = {folder_of(Path("/up"), SegmentTable(*t, True)) for t in (one, other)}
    assert len(folders) == len(labels)
    assert all(f.parent == Path("/up") and f.name not in (".", "..") and "\0" not in f.name for f in folders)


def file(kind: str, row: dict[str, Any], path: str, text: str) -> Step:
    return ["file", kind, "doc", row, path, text]


def found(world: ConnectorWorld) -> dict[str, str]:
    """The files that are there, by path."""
    place = world.folder / "spool" / "uploads"
    return {str(p.relative_to(place)): p.read_text() for p in place.rglob("*") if p.is_file()}


class TestASync:
    def test_a_row_names_a_file_that_is_there(self, make_connector: MakeConnector) -> None:
        world = make_connector(declared=KEY)
        world.play(file("upsert", {"id": 1, "n": "x"}, "a/1.txt", "one"), CHECKPOINT)
        world.play(
            file("upsert", {"id": 2, COLUMN: "mine"}, "/b.txt", "two"), CHECKPOINT,
            file("update", {"id": 1}, "a/2.txt", "three"), CHECKPOINT,
            file("upsert", {"id": 2}, "/b.txt", "four"), CHECKPOINT, ["delete", "doc", {"id": 2}], CHECKPOINT,
        )  # fmt: skip
        columns = ("id", "n", COLUMN, "_instep_deleted")
        assert sorted(world.rows("doc", *columns, deleted=True)) == [
            (1, "x", "a/2.txt", False), (2, None, "/b.txt", True),
        ]  # fmt: skip
        assert found(world) == {"doc/a/1.txt": "one", "doc/a/2.txt": "three", "doc/b.txt": "four"}
        assert not list((world.folder / "spool").glob("run-*"))

    @pytest.mark.sampled
    @pytest.mark.parametrize(
        "selection",
        [Selection(exclude_columns=patterns([f"doc.{COLUMN}"])), Selection(hashed=patterns([f"doc.{COLUMN}"]))],
        ids=["excluded", "hashed"],
    )
    def test_no_file_where_its_row_does_not_tell(self, make_connector: MakeConnector, selection: Selection) -> None:
        world = make_connector(declared=KEY)
        world.selection = selection
        assert world.play(file("upsert", {"id": 1}, "a", "canary"), CHECKPOINT).status == "done"
        assert world.rows("doc", "id") == [(1,)]
        assert found(world) == {}

    def test_reading_evidence_puts_no_file_there(self, make_connector: MakeConnector) -> None:
        world = make_connector(declared=KEY)
        world.play(*(["upsert", "doc", {"id": n, "path": f"f{n}"}] for n in range(30)), CHECKPOINT)
        world.selection = Selection(hashed=patterns([f"doc.{COLUMN}"]))
        world.play(*(file("upsert", {"id": n}, f"f{n}", "canary") for n in range(30)), CHECKPOINT)
        (asked,) = (r for r in world.store.reviews.find("shop", ("open",)) if r.rule == "rename proposal")
        assert f"path -> {COLUMN}: " in str(asked.evidence["line"])
        assert "sampled rows" in str(asked.evidence["line"])
        assert found(world) == {}

    @pytest.mark.sampled
    @pytest.mark.parametrize(("answer", "there"), [("approved", {"a": "one", "b": "two"}), ("rejected", {"a": "one"})])
    def test_the_files_of_a_column_that_waits_are_put_there(
        self, make_connector: MakeConnector, answer: str, there: dict[str, str]
    ) -> None:
        """Nobody could send them again once it is let in."""
        world = make_connector(declared=KEY)
        world.play(["upsert", "doc", {"id": 1}], CHECKPOINT)
        world.policy = preset("approve")
        world.play(file("upsert", {"id": 1}, "a", "one"), CHECKPOINT)
        assert (COLUMN in world.accepted("doc").by_name, found(world)) == (False, {"doc/a": "one"})
        world.answer(answer, "column.added")
        world.play(file("upsert", {"id": 2}, "b", "two"), CHECKPOINT)
        assert found(world) == {f"doc/{name}": text for name, text in there.items()}
        if answer == "approved":
            assert world.rows("doc", "id", COLUMN) == [(1, "a"), (2, "b")]

    def test_the_files_of_a_table_that_waits_are_sealed(self, make_connector: MakeConnector) -> None:
        world = make_connector(declared=KEY)
        world.play(file("upsert", {"id": 1}, "a", "one"), CHECKPOINT)
        world.store.pauses.pause("shop", "for a test", table=("", "doc"))
        world.play(file("upsert", {"id": 2}, "b", "canary"), CHECKPOINT)
        assert found(world) == {"doc/a": "one"}
        assert not any(b"canary" in p.read_bytes() for p in (world.folder / "spool").rglob("*") if p.is_file())
        world.store.pauses.resume("shop", who="test", table=("", "doc"))
        assert world.play(CHECKPOINT).status == "done"
        assert found(world) == {"doc/a": "one", "doc/b": "canary"}
        assert sorted(world.rows("doc", "id", COLUMN)) == [(1, "a"), (2, "b")]

    def test_a_file_that_cannot_be_put_there_keeps_its_row_away(self, make_connector: MakeConnector) -> None:
        world = make_connector(declared=KEY)
        world.play(file("upsert", {"id": 1}, "a", "one"), CHECKPOINT)
        report = world.play(file("upsert", {"id": 2}, "a/b", "two"), CHECKPOINT)
        assert report.status == "failed"
        assert "a path cannot be that of a file and of a folder" in json.dumps(report, default=vars)
        assert (world.rows("doc", "id"), world.state, found(world)) == ([(1,)], {"at": 2}, {"doc/a": "one"})
        (world.folder / "spool" / "uploads" / "doc" / "a").unlink()
        assert world.play().status == "done"
        assert found(world) == {"doc/a/b": "two"}

    def test_what_breaks_off_leaves_no_half_file(self, make_connector: MakeConnector) -> None:
        world = make_connector(declared=KEY)
        text = "é" * MIB
        with pytest.raises(ReadError, match="power cut"):
            world.play(file("upsert", {"id": 1}, "a", text), ["fail", "power cut"])
        assert found(world) == {}
        world.steps.pop()
        assert world.play(CHECKPOINT).status == "done"
        assert sha256(found(world)["doc/a"].encode()).digest() == sha256(text.encode()).digest()
