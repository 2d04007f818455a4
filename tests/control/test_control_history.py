"""Schemas as of any time, and what a person writes for a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.control.schema_history import Moment, catalog_of, compare, moment, version_at, versions
from instep.errors import InstepError
from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import parse
from instep.schema.changes.version import between
from instep.store.catalogs.discoveries import CachedDiscovery
from instep.store.store import Store

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


def shop(*columns: str, oid: str | None = "7", schema: str = "s") -> Catalog:
    return Catalog.of([Table(schema, "t", tuple(Column(c, parse("int32")) for c in columns), id=oid)])


@dataclass
class Past:
    """A store whose clock moves a day at each step: detect, then accept what is there."""

    store: Store
    now: list[datetime] = field(default_factory=lambda: [START])

    def seen(self, catalog: Catalog, identity: str = "here") -> None:
        self.now[0] += timedelta(days=1)
        self.store.discoveries.save("c", CachedDiscovery(catalog, "f", identity=identity), run=f"r-{self.now[0].day}")

    def accepted(self, *columns: str) -> None:
        self.now[0] += timedelta(days=1)
        version = self.store.accepted.add("c", shop(*columns), who="ana", why="w", run=f"r-{self.now[0].day}").version
        self.store.schemas.add("c", "destination", shop(*columns, schema="lake"), accepted=version)


@pytest.fixture
def past(tmp_path: Path) -> Iterator[Past]:
    now = [START]
    with Store(f"sqlite:///{tmp_path / 'state.db'}", now=lambda: now[0]) as store:
        yield Past(store, now)


@pytest.fixture
def story(past: Past) -> Past:
    """Seen on days 2, 4, 6 of March; accepted on 3, 5, 7."""
    for columns in (("a",), ("a", "b"), ("b",)):
        past.seen(shop(*columns))
        past.accepted(*columns)
    return past


DAY = {n: datetime(2026, 3, n, 13, tzinfo=UTC) for n in range(1, 9)}
AS_OF: list[tuple[str, str, Moment | None, tuple[str, ...]]] = [
    ("now, accepted", "accepted", None, ("b",)),
    ("now, source", "source", None, ("b",)),
    ("a day before the first approval", "source", DAY[2], ("a",)),
    ("seen, not accepted yet", "accepted", DAY[4], ("a",)),
    ("seen, not made yet", "destination", DAY[4], ("a",)),
    ("seen", "source", DAY[4], ("a", "b")),
    ("accepted", "accepted", DAY[5], ("a", "b")),
    ("made", "destination", DAY[5], ("a", "b")),
    ("much later", "destination", datetime(2030, 1, 1, tzinfo=UTC), ("b",)),
    ("in another zone", "accepted", datetime(2026, 3, 5, 15, tzinfo=timezone(timedelta(hours=4))), ("a",)),
    ("a version", "accepted", 2, ("a", "b")),
    ("a version at the source", "source", 2, ("a", "b")),
    ("a version at the destination", "destination", 1, ("a",)),
    ("a number", "accepted", (1, 1), ("a", "b")),
    ("a breaking number", "destination", (2, 0), ("b",)),
]


@pytest.mark.parametrize(("name", "side", "when", "columns"), AS_OF, ids=[c[0] for c in AS_OF])
def test_as_of(story: Past, name: str, side: str, when: Moment | None, columns: tuple[str, ...]) -> None:
    version = version_at(story.store, "c", side, when)  # type: ignore[arg-type]
    [table] = catalog_of(story.store, version).tables
    assert tuple(c.name for c in table.columns) == columns


def test_versions_tell_where_they_come_from(story: Past) -> None:
    assert [(v.version, v.label, v.run, v.who, v.why) for v in versions(story.store, "c", "accepted")] == [
        (1, "1.0", "r-3", "ana", "w"), (2, "1.1", "r-5", "ana", "w"), (3, "2.0", "r-7", "ana", "w"),
    ]  # fmt: skip
    assert [(v.version, v.accepted, v.label, v.run) for v in versions(story.store, "c", "source")] == [
        (1, 0, "", "r-2"), (2, 1, "1.0", "r-4"), (3, 2, "1.1", "r-6"),
    ]  # fmt: skip
    assert [v.label for v in versions(story.store, "c", "destination")] == ["1.0", "1.1", "2.0"]


NOTHING: list[tuple[str, Moment | None, str]] = [
    ("accepted", DAY[1], "nothing is known of the accepted schema at 2026-03-01 13:00:00 UTC"),
    ("source", DAY[1], "nothing is known of the source schema"),
    ("accepted", 9, "has no accepted version 9"),
    ("destination", (1, 7), r"has no accepted version 1\.7"),
]


@pytest.mark.parametrize(("side", "when", "said"), NOTHING)
def test_what_is_not_known(story: Past, side: str, when: Moment, said: str) -> None:
    with pytest.raises(InstepError, match=said) as error:
        version_at(story.store, "c", side, when)  # type: ignore[arg-type]
    assert error.value.hint


@pytest.mark.parametrize("side", ["source", "accepted", "destination"])
def test_before_anything(past: Past, side: str) -> None:
    with pytest.raises(InstepError, match=f"no {side} schema is known yet"):
        version_at(past.store, "c", side)  # type: ignore[arg-type]


def test_a_destination_that_was_not_kept_yet(past: Past) -> None:
    """A store from before destinations were kept knows the first version from its next sync on."""
    past.store.accepted.add("c", shop("a"), who="ana", why="w")
    past.accepted("a", "b")
    with pytest.raises(InstepError, match=r"the destination schema at version 1 \(1.0\)") as error:
        version_at(past.store, "c", "destination", 1)
    assert "2026-03-02" in error.value.hint


def test_compare(story: Past) -> None:
    known = versions(story.store, "c", "accepted")
    assert compare(story.store, known[0], known[2]).lines == (
        "column s.t.a removed (int32)",
        "column s.t.b added (int32)",
    )
    assert compare(story.store, known[2], known[0]).breaking
    assert compare(story.store, known[1], known[1]).changes == ()


def _table(schema: str, name: str, *columns: str, oid: str = "", retained: bool = False) -> Table:
    made = tuple(Column(one, parse("int64")) for one in columns or ("id",))
    return Table(schema, name, made, id=oid or None, retained=retained)


COMPARED: dict[str, tuple[list[Table], list[Table]]] = {
    "nothing": ([_table("a", "t"), _table("b", "u")], [_table("a", "t"), _table("b", "u")]),
    "a column of one of two": ([_table("a", "t"), _table("a", "u")], [_table("a", "t"), _table("a", "u", "id", "x")]),
    "a table beside one": ([_table("a", "t")], [_table("a", "t"), _table("a", "u")]),
    "a schema beside one": ([_table("a", "t")], [_table("a", "t"), _table("b", "u")]),
    "a schema less": ([_table("a", "t"), _table("b", "u")], [_table("a", "t")]),
    "a schema whose other table is retained": (
        [_table("a", "s", retained=True), _table("a", "t"), _table("b", "u")],
        [_table("a", "s", retained=True), _table("b", "u")],
    ),
    "a schema where a retained table was": (
        [_table("a", "s", retained=True), _table("b", "u")],
        [_table("a", "s", retained=True), _table("a", "t"), _table("b", "u")],
    ),
    "a renamed table": ([_table("a", "t", oid="1"), _table("a", "u", oid="2")],
                        [_table("a", "t", oid="1"), _table("a", "v", oid="2")]),
    "a table that is not retained any more": (
        [_table("a", "s", retained=True), _table("a", "t")], [_table("a", "t")]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", COMPARED)
def test_tables_that_are_the_same_are_left_out_of_a_comparison(past: Past, name: str) -> None:
    before, after = map(Catalog.of, COMPARED[name])
    past.store.accepted.add("shop", before, who="t", why="w")
    past.store.accepted.add("shop", after, who="t", why="w")
    known = versions(past.store, "shop", "accepted")
    assert compare(past.store, known[0], known[-1]) == between(before, after)


def test_ids_of_another_server_prove_nothing(past: Past) -> None:
    """The same id on two servers, and another id for the same table; on one server that is a replacement."""
    past.seen(shop("a", oid="7"))
    past.seen(shop("a", oid="8"), identity="there")
    past.seen(shop("a", oid="9"), identity="there")
    first, second, third = versions(past.store, "c", "source")
    assert compare(past.store, first, second).changes == ()
    assert [c.kind for c in compare(past.store, second, third).changes] == ["table.replaced"]


MOMENTS: list[tuple[str, Moment]] = [
    ("7", 7), ("v7", 7), (" 7 ", 7), ("2.1", (2, 1)), ("v2.10", (2, 10)), ("2026", 2026),
    ("2026-03-31", datetime(2026, 3, 31, tzinfo=UTC)), ("20260331", datetime(2026, 3, 31, tzinfo=UTC)),
    ("2026-03-31T14:05", datetime(2026, 3, 31, 14, 5, tzinfo=UTC)),
    ("2026-03-31 14:05:09.5Z", datetime(2026, 3, 31, 14, 5, 9, 500_000, tzinfo=UTC)),
    ("2026-03-31T14:05+02:00", datetime(2026, 3, 31, 12, 5, tzinfo=UTC)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), MOMENTS, ids=[m[0] for m in MOMENTS])
def test_moments(text: str, expected: Moment) -> None:
    assert moment(text) == expected


@pytest.mark.parametrize("text", ["", "v", "yesterday", "2.", ".1", "1.2.3", "-1", "2026-13-01", "²", "१"])
def test_what_is_no_moment(text: str) -> None:
    with pytest.raises(InstepError, match="neither a time nor a version") as error:
        moment(text)
    assert "2026-03-31" in error.value.hint


@given(st.datetimes(timezones=st.timezones()))
def test_every_time_is_read_back(at: datetime) -> None:
    found = moment(at.isoformat())
    assert isinstance(found, datetime)
    assert found.timestamp() == at.timestamp()
