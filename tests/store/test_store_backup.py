"""Backups: what comes back is what was there, on either database, and a damaged one changes nothing."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text
from store_world import Clock, catalog, finding

from instep.errors import Blocked, Conflict, InstepError, ProjectError
from instep.events import RunStarted
from instep.store.admin.backup import back_up, bring_back, dump, upgrade
from instep.store.engine import migrate
from instep.store.engine.database import Database
from instep.store.engine.keyring import Keyring, new_key, parse
from instep.store.store import Store, utc_now

KEYS = Keyring(parse(new_key("k"), ""))


def fill(store: Store) -> None:
    store.accepted.add("c", catalog("orders", "ñ"), who="eve", why="x")
    store.reviews.record("c", [finding("k")], "f")
    run = store.runs.claim("c", "sync", "eve")
    store.events.add(*(RunStarted("c", run.id, "sync") for _ in range(3)))
    store.runs.finish(run, "done", "")
    store.pauses.pause("c", "why\nnot")
    store.objects.put("source", "shop", {"type": "sqlite", "x": [None, 1.5, True, "é\u2028"]}, who="eve", tags=["t"])
    store.secrets.put("source", "shop", "/password", "hush", who="eve")


@pytest.fixture
def filled(any_store: Store) -> Store:
    fill(any_store)
    return any_store


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Database]:
    database = Database(f"sqlite:///{tmp_path / 'other.db'}", utc_now)
    yield database
    database.close()


def content(database: Database) -> list[str]:
    """All lines but the first, which has the time, and the last, which has its digest."""
    first, *rows, last = dump(database)
    assert json.loads(first)["version"] == migrate.HEAD
    return [*rows, json.dumps(json.loads(last)["end"])]


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores of these tests have keys."""
    real = Store.__init__
    monkeypatch.setattr(Store, "__init__", lambda self, *a, **more: real(self, *a, **{"keys": KEYS, **more}))


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["b.db", "b.jsonl", "b.jsonl.gz"])
def test_what_comes_back_is_what_was_there(filled: Store, empty: Database, tmp_path: Path, name: str) -> None:
    if filled.file is None and name == "b.db":
        pytest.skip("a server has no file")
    before = content(filled._db)
    filled.back_up(tmp_path / name)
    assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    counts = bring_back(empty, tmp_path / name, utc_now)
    assert (counts["events"], counts["objects"], counts["secrets"]) == (3, 1, 1)
    assert content(empty) == before
    with Store(str(empty.url)) as store:
        record = store.secrets.of("source", "shop")[0]
        assert store.secrets.open(record.id, "source", "shop", "/password") == "hush"


def test_a_store_with_nothing_but_what_happened_is_in_use(store: Store, empty: Database, tmp_path: Path) -> None:
    store.back_up(tmp_path / "b.jsonl")
    with Store(str(empty.url)) as other:
        bring_back(other._db, tmp_path / "b.jsonl", utc_now)
        other.events.add(RunStarted("c", "r", "sync"))
        with pytest.raises(Conflict, match="is in use"):
            bring_back(other._db, tmp_path / "b.jsonl", utc_now)
        assert len(other.events.after()) == 1


def test_numbers_go_on_where_they_were(store: Store, empty: Database, tmp_path: Path) -> None:
    fill(store)
    with store._db.write() as transaction:
        transaction.execute(text("DELETE FROM events WHERE number = 3"))
    store.back_up(tmp_path / "b.jsonl")
    bring_back(empty, tmp_path / "b.jsonl", utc_now)
    with Store(str(empty.url)) as again:
        again.events.add(RunStarted("c", "r", "sync"))
        assert [e.number for e in again.events.after()] == [1, 2, 4]


def test_from_either_database_to_the_other(filled: Store, any_url: str, tmp_path: Path) -> None:
    filled.back_up(tmp_path / "b.jsonl")
    before = content(filled._db)
    with pytest.raises(Conflict, match="is in use"):
        bring_back(filled._db, tmp_path / "b.jsonl", utc_now)
    filled.objects.delete("source", "shop")
    filled.events.add(RunStarted("c", "later", "sync"))
    bring_back(filled._db, tmp_path / "b.jsonl", utc_now, replace=True)
    assert content(filled._db) == before


def test_a_run_under_way_is_not_replaced(store: Store, clock: Clock, tmp_path: Path) -> None:
    store.back_up(tmp_path / "b.db")
    run = store.runs.claim("c", "sync", "eve")
    with pytest.raises(Blocked, match="under way"):
        bring_back(store._db, tmp_path / "b.db", clock, replace=True)
    store.runs.finish(run, "done", "")
    bring_back(store._db, tmp_path / "b.db", clock, replace=True)
    assert store.runs.latest("c") is None


def cut(text: str) -> str:
    return "".join(text.splitlines(keepends=True)[:-1])


def newer(text: str) -> str:
    return text.replace(f'"version":"{migrate.HEAD}"', '"version":"9999"', 1)


# what happened to the file -> what is told
DAMAGE: list[tuple[Callable[[str], str], str]] = [
    (cut, "its end is missing"),
    (lambda t: t[: len(t) // 2], "damaged"),
    (lambda t: t.replace("orders", "orderz", 1), "its digest is another one"),
    (lambda t: t.replace('"table":"runs"', '"table":"rums"', 1), "other tables"),
    (newer, "made by a newer instep"),
    (lambda t: "", "a line is not JSON"),
    (lambda t: "{}\n", "not a backup of a store"),
    (lambda t: "SQLite format 3\0" + t, "is damaged"),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("damage", "said"), DAMAGE)
def test_a_damaged_backup_changes_nothing(
    store: Store, tmp_path: Path, damage: Callable[[str], str], said: str
) -> None:
    fill(store)
    file = tmp_path / "b.jsonl"
    store.back_up(file)
    file.write_text(damage(file.read_text(encoding="utf-8")), encoding="utf-8")
    before = content(store._db)
    with pytest.raises(ProjectError, match=said):
        bring_back(store._db, file, utc_now, replace=True)
    assert content(store._db) == before
    assert store.objects.get("source", "shop") is not None


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["b.db", "b.jsonl"])
def test_a_backup_of_a_former_version_is_brought_to_this_one(
    empty: Database, tmp_path: Path, later: tuple[str, str], name: str
) -> None:
    former = Database(f"sqlite:///{tmp_path / 'former.db'}", utc_now)
    with former.write() as connection:
        migrate.run(connection, later[0])
        made = "INSERT INTO connections (name, created, updated) VALUES ('c', :at, :at)"
        connection.execute(text(made), {"at": "2026-01-01 00:00:00"})
    back_up(former, tmp_path / name)
    former.close()
    bring_back(empty, tmp_path / name, utc_now)
    with Store(str(empty.url)) as store:
        assert store.connections.get("c")
    with empty.read() as connection:
        assert migrate.version(connection) == later[1]
        assert connection.execute(text("SELECT namespace FROM connections")).scalar() == "moved"


def test_into_a_store_of_a_former_version(
    later: tuple[str, str], store: Store, empty: Database, tmp_path: Path
) -> None:
    fill(store)
    store.back_up(tmp_path / "b.jsonl")
    with empty.write() as connection:
        migrate.run(connection, later[0])
    bring_back(empty, tmp_path / "b.jsonl", utc_now)
    assert content(empty) == content(store._db)


def test_an_upgrade_keeps_a_copy_of_what_was_there(tmp_path: Path, later: tuple[str, str]) -> None:
    former, newest = later
    database = Database(f"sqlite:///{tmp_path / 'state.db'}", utc_now)
    with database.write() as connection:
        migrate.run(connection, former)
    assert upgrade(database) == (former, newest)
    assert upgrade(database) == (newest, newest)
    database.close()
    with closing(sqlite3.connect(tmp_path / f"state.{former}.db")) as copy:
        assert copy.execute("SELECT version_num FROM alembic_version").fetchone() == (former,)
    assert len(list(tmp_path.glob("state.*.db"))) == 1


@pytest.mark.parametrize("name", ["b.db", "b.jsonl"])
@pytest.mark.parametrize(
    ("version", "said"),
    [("0031", "development version .* cannot be upgraded .version 0031"), ("9999", "newer instep .version 9999")],
)
def test_a_backup_of_an_unknown_version_changes_nothing(
    store: Store, empty: Database, tmp_path: Path, name: str, version: str, said: str
) -> None:
    fill(store)
    with store._db.write() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = :version"), {"version": version})
    store.back_up(tmp_path / name)
    with pytest.raises(ProjectError, match=said):
        bring_back(empty, tmp_path / name, utc_now)
    with empty.read() as connection:
        assert migrate.version(connection) == ""


@pytest.mark.parametrize("version", ["0031", "9999"])
def test_nothing_is_restored_over_a_store_of_an_unknown_version(
    store: Store, empty: Database, tmp_path: Path, version: str
) -> None:
    store.back_up(tmp_path / "b.jsonl")
    with Store(str(empty.url)) as other:
        fill(other)
    with empty.write() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = :version"), {"version": version})
    with pytest.raises(Conflict, match=f"its version is {version}"):
        bring_back(empty, tmp_path / "b.jsonl", utc_now, replace=True)
    with empty.read() as connection:
        assert connection.execute(text("SELECT COUNT(*) FROM objects")).scalar() == 1


def test_a_backup_never_replaces_another(store: Store, tmp_path: Path) -> None:
    (tmp_path / "b.db").write_text("mine")
    with pytest.raises(InstepError, match="exists already"):
        store.back_up(tmp_path / "b.db")
    assert (tmp_path / "b.db").read_text() == "mine"
    with pytest.raises(ProjectError, match="cannot be read"):
        bring_back(store._db, tmp_path / "none", utc_now)
