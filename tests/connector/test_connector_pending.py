"""Operations that wait for their table: nobody reads them on the disk, and they land as they were sent."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector_world import CHECKPOINT, ConnectorWorld, MakeConnector, upserts
from instep.bootstrap import open_project
from instep.control.connectors import forget_operations
from instep.errors import StageError
from instep.project.sections.connector import segments_folder
from instep.sources.connector import sealed
from instep.sources.connector.run import takes_back
from instep.sources.connector.sealed import key_of, new_half, seal, unseal
from instep.sources.connector.segment import Segment, SegmentTable

CANARY = "canary-held-7d1f"
KEY = [{"table": "t", "primary_key": ["id"]}]
HALF = "ab" * 32


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of ten bytes."""
    monkeypatch.setattr(sealed, "PIECE", 10)


@given(plain=st.binary(max_size=35), salt=st.binary(max_size=5))
def test_what_is_sealed_comes_out_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, plain: bytes, salt: bytes
) -> None:
    folder, key = tmp_path_factory.mktemp("sealed"), key_of(HALF, salt)
    (folder / "plain").write_bytes(plain)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sealed, "PIECE", 10)
        seal(folder / "plain", folder / "sealed", key)
        unseal(folder / "sealed", folder / "again", key)
    assert (folder / "again").read_bytes() == plain
    assert len(plain) < 4 or plain not in (folder / "sealed").read_bytes()
    assert (folder / "sealed").stat().st_mode & 0o077 == (folder / "again").stat().st_mode & 0o077 == 0


PIECE = 10 + sealed.NONCE + sealed.TAG


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("what", "harm"),
    [
        ("a byte", lambda text: text[:20] + bytes([text[20] ^ 1]) + text[21:]),
        ("its end", lambda text: text[:-1]),
        ("the last piece", lambda text: text[: 2 * PIECE]),
        ("the first piece", lambda text: text[PIECE:]),
        ("the order", lambda text: text[PIECE : 2 * PIECE] + text[:PIECE] + text[2 * PIECE :]),
        ("a piece twice", lambda text: text + text[-PIECE:]),
        ("everything", lambda text: b""),
    ],
)
def test_what_was_changed_is_not_read(tmp_path: Path, what: str, harm: object) -> None:
    (tmp_path / "plain").write_bytes(b"0123456789" * 3)
    key = key_of(HALF, b"salt")
    seal(tmp_path / "plain", tmp_path / "sealed", key)
    (tmp_path / "sealed").write_bytes(harm((tmp_path / "sealed").read_bytes()))  # type: ignore[operator]
    with pytest.raises(StageError, match="cannot be read: it was changed"):
        unseal(tmp_path / "sealed", tmp_path / "again", key)


def test_a_file_is_bound_to_its_name_and_both_halves_of_its_key(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"x")
    seal(tmp_path / "plain", tmp_path / "sealed", key_of(HALF, b"salt"))
    shutil.copy(tmp_path / "sealed", tmp_path / "other")
    with pytest.raises(StageError):
        unseal(tmp_path / "other", tmp_path / "again", key_of(HALF, b"salt"))
    for key in (key_of(HALF, b"pepper"), key_of(HALF, b""), key_of(new_half(), b"salt")):
        with pytest.raises(StageError):
            unseal(tmp_path / "sealed", tmp_path / "again", key)
    with pytest.raises(StageError, match="No such file"):
        unseal(tmp_path / "nowhere", tmp_path / "again", key_of(HALF, b"salt"))


@pytest.fixture
def paused(make_connector: MakeConnector) -> ConnectorWorld:
    """With operations that wait, the canary among their values."""
    world = make_connector(declared=KEY)
    world.play(*upserts("t", {"id": 1, "a": "x"}), CHECKPOINT)
    world.store.pauses.pause("shop", "for a test", table=("", "t"))
    world.play(*upserts("t", {"id": 2, "a": CANARY}), CHECKPOINT)
    world.play(["delete", "t", {"id": 1}], CHECKPOINT)
    return world


def on_disk(world: ConnectorWorld) -> list[Path]:
    return [p for p in (world.folder / "spool").rglob("*") if p.is_file()]


def test_what_waits_is_not_in_clear_and_lands(paused: ConnectorWorld) -> None:
    files = on_disk(paused)
    assert {f.suffix for f in files} >= {".parquet", ".json"}
    assert not any(CANARY.encode() in f.read_bytes() or f.read_bytes()[:4] == b"PAR1" for f in files)
    paused.store.pauses.resume("shop", who="test", table=("", "t"))
    assert paused.play(CHECKPOINT).status == "done"
    assert paused.rows("t") == [(2, CANARY)]
    assert (on_disk(paused), paused.store.connectors.pending("shop")) == ([], [])


def test_what_waits_stays_where_its_file_was_changed(paused: ConnectorWorld) -> None:
    (held, *_) = (f for f in on_disk(paused) if f.suffix == ".parquet")
    text = held.read_bytes()
    held.write_bytes(text[:-1] + bytes([text[-1] ^ 1]))
    paused.store.pauses.resume("shop", who="test", table=("", "t"))
    assert paused.play(CHECKPOINT).status == "failed"
    assert paused.rows("t") == [(1, "x")]
    assert len(paused.store.connectors.pending("shop")) == 2
    held.write_bytes(text)
    assert paused.play().status == "done"
    assert paused.rows("t") == [(2, CANARY)]


def test_a_connection_that_goes_takes_its_operations_along(tmp_path: Path) -> None:
    (tmp_path / "instep.yml").write_text(
        "sources: {s: {type: connector, path: c}}\ndestinations: {d: {type: duckdb, path: w.db}}\n"
        "connections: {shop: {source: s, destination: d}, other: {source: s, destination: d}}\n"
    )
    with open_project(tmp_path) as app:
        for name in ("shop", "other"):
            folder = segments_folder(app.project.root, name)
            (folder / "held-1").mkdir(parents=True)
            (folder / "held-1" / "a.parquet").touch()
            app.store.connectors.of(name).done({"at": 1}, [(("", "t"), str(folder / "held-1"), 1, HALF)], [], "", 0)
        for _ in range(2):
            forget_operations(app.project, app.store, "shop")
            assert [p.name for p in (tmp_path / ".instep" / "connectors").iterdir()] == ["other"]
            found = app.store.connectors.of("shop")
            assert (found.pending(), found.state().state, found.shape()) == ([], {}, {})
        kept = app.store.connectors.of("other")
        assert (len(kept.pending()), kept.state().state) == (1, {"at": 1})


def segment(**tables: dict[str, object]) -> Segment:
    told = (SegmentTable("", name, True, **said) for name, said in tables.items())  # type: ignore[arg-type]
    return Segment(1, "", None, False, tuple(told))


@pytest.mark.parametrize(
    ("before", "after", "apart"),
    [
        (segment(t={"upserts": 1}), segment(t={"upserts": 1}), False),
        (segment(t={"upserts": 1}), segment(t={"upserts": 5, "deletes": 1}), True),
        (segment(t={"updates": 1}), segment(t={"deletes": 1}), True),
        (segment(t={"upserts": 1}), segment(t={"truncates": (0,)}), True),
        (segment(t={"deletes": 1}), segment(t={"deletes": 1}), False),
        (segment(t={"deletes": 1}), segment(t={"upserts": 1}), False),
        (segment(t={"truncates": (0,)}), segment(t={"truncates": (0,)}), False),
        (segment(t={"upserts": 1}), segment(u={"deletes": 1}, t={"upserts": 1}), False),
        (segment(t={"upserts": 1}), segment(u={"deletes": 1}, t={"deletes": 1}), True),
        (segment(), segment(t={"deletes": 1}), False),
    ],
)
def test_segments_that_take_back_rows_are_no_group(before: Segment, after: Segment, apart: bool) -> None:
    assert takes_back(after, before) is apart


@pytest.mark.sampled
@pytest.mark.parametrize("removal", [["delete", "t", {"id": 2}], ["truncate", "t"]])
@pytest.mark.parametrize("together", [True, False])
def test_a_row_that_a_checkpoint_has_passed_is_there(
    make_connector: MakeConnector, removal: list[object], together: bool
) -> None:
    world = make_connector(declared=KEY)
    first = [*upserts("t", {"id": 2, "a": "x"}), CHECKPOINT, ["update", "t", {"id": 2, "a": "y"}], CHECKPOINT]
    rest = [removal, CHECKPOINT]
    for steps in [first + rest] if together else [first, rest]:
        assert world.play(*steps).status == "done"
    assert world.rows("t") == []
    assert world.rows("t", "id", "a", "_instep_deleted", deleted=True) == [(2, "y", True)]


def test_a_row_that_no_checkpoint_has_passed_never_was(make_connector: MakeConnector) -> None:
    world = make_connector(declared=KEY)
    world.play(*upserts("t", {"id": 1, "a": "x"}, {"id": 2, "a": "x"}), ["delete", "t", {"id": 2}], CHECKPOINT)
    assert world.rows("t", "id", deleted=True) == [(1,)]
