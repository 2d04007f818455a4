"""What happens between two detections shows as one difference: undone moves, swaps, and names that come back."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from events.shows import shows
from instep.sync.detection.swapped import WHY
from sync_world import MakeWorld, World, cursor

SETUP = (
    "CREATE TABLE t (id int PRIMARY KEY, n int, a int, b int)",
    "INSERT INTO t VALUES (1, 1, 10, 20), (2, 2, 11, 21)",
)
KINDS = ["postgres", "sqlite"]


@dataclass(frozen=True)
class Poll:
    """`columns` of the accepted table afterwards and `changes` that were found, with column ids (PostgreSQL) and
    without (SQLite). `stale`: what a cursor does not find, and is said."""

    statements: tuple[str, ...]
    columns: tuple[str, str]
    changes: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    stale: frozenset[str] = field(default=frozenset())


def same(columns: str) -> tuple[str, str]:
    return columns, columns


RENAME = "ALTER TABLE t RENAME COLUMN {} TO {}".format
CASES: list[tuple[str, Poll]] = [
    ("added and dropped", Poll(("ALTER TABLE t ADD COLUMN c int", "ALTER TABLE t DROP COLUMN c"), same("id n a b"))),
    ("renamed and back", Poll((RENAME("a", "c"), RENAME("c", "a")), same("id n a b"))),
    (
        "two swapped",
        Poll(
            (RENAME("a", "c"), RENAME("b", "a"), RENAME("c", "b")),
            same("id n b a"),
            (("column t.a renamed to b", "column t.b renamed to a"), ("columns of t reordered: id, n, b, a",)),
        ),
    ),
    (
        "dropped and added with another type",
        Poll(
            ("ALTER TABLE t DROP COLUMN a", "ALTER TABLE t ADD COLUMN a text", "UPDATE t SET a = 'x'"),
            ("id n a__v1~ b a", "id n b a"),
            (
                ("column t.a added (string)", "column t.a removed (int32)"),
                ("column t.a widened from int64 to string", "columns of t reordered: id, n, b, a"),
            ),
            frozenset({"postgres"}),
        ),
    ),
    (
        "dropped and added with the same type",
        Poll(
            ("ALTER TABLE t DROP COLUMN a", "ALTER TABLE t ADD COLUMN a int"),
            same("id n b a"),
            (
                ("column t.a added (int32)", "column t.a removed (int32)"),
                ("columns of t reordered: id, n, b, a",),
            ),
        ),
    ),
    (
        "names that move on by one",
        Poll(
            (RENAME("b", "c"), RENAME("a", "b"), "ALTER TABLE t ADD COLUMN a int"),
            same("id n b c a"),
            (
                ("column t.a added (int32)", "column t.a renamed to b", "column t.b renamed to c"),
                ("column t.c added (int64)", "columns of t reordered: id, n, b, a"),
            ),
        ),
    ),
]  # fmt: skip


def begun(world: World, poll: Poll) -> tuple[str, ...]:
    """Loaded, then changed twice in one poll and synced; what the sync said."""
    world.run(*SETUP)
    world.sync()
    world.run(*poll.statements, "INSERT INTO t (id, n) VALUES (3, 3)")
    return tuple(world.sync().notes)


def found(world: World) -> tuple[str, ...]:
    told = world.reviews("open", "applied", "rejected")
    return tuple(sorted(c for c in told if not c.startswith(("table", "schema"))))


@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("poll", [c[1] for c in CASES], ids=[c[0] for c in CASES])
@shows(trap=13, event=(43, 45, 46))
def test_whole_compare(make_world: MakeWorld, kind: str, poll: Poll) -> None:
    world = make_world(kind)
    begun(world, poll)
    at = KINDS.index(kind)
    columns = world.accepted("t").columns
    assert " ".join(f"{c.name}{'~' if c.retained else ''}" for c in columns) == poll.columns[at]
    assert found(world) == poll.changes[at]
    assert world.differing() == {}


@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("poll", [c[1] for c in CASES], ids=[c[0] for c in CASES])
@shows(trap=13, event=(43, 45))
def test_with_a_cursor(make_world: MakeWorld, kind: str, poll: Poll) -> None:
    """Either equal to the source, or what is not is said with what to do."""
    world = make_world(kind, settings={"t": cursor("n")})
    notes = begun(world, poll)
    assert found(world) == poll.changes[KINDS.index(kind)]
    if kind in poll.stale:
        assert any("instep backfill" in note for note in notes), notes
        assert set(world.differing()) == {"t"}
        return
    assert world.differing() == {}
    reordered = any("reordered" in c for c in found(world))
    assert any(WHY in note for note in notes) == reordered


def test_what_is_said_of_a_name_that_comes_back(make_world: MakeWorld) -> None:
    world = make_world(settings={"t": cursor("n")})
    [note] = begun(world, dict(CASES)["dropped and added with the same type"])
    assert "it comes back with old values, so a sync reads the whole table" in note
    assert world.rows("t", "id", "a") == [(1, None), (2, None), (3, None)]
