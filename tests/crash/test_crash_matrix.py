"""kill -9 at every point of a sync, and a run that stands still there while a later one takes over: on every kind of
destination, as it is written there. Kills over Iceberg: test_crash_points.py, test_crash_fill.py."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from crash_cases import DELTA, DUCKDB, FILL, POSTGRES, SYNC
from crash_shop import BEFORE, CHANGE, KINDS, PROJECT, execute, is_free, late_said, lease_ends

from forks import Ended, Forks
from instep.crash import points
from postgres_server import Database, Server, make_database

pytestmark = pytest.mark.slow

COMMON = (*(p.replace("sync.commit.before@4", "sync.commit.before@3") for p in SYNC if "merge." not in p), *FILL)
"""As over Iceberg, where Spark merges and one table more is committed."""
OF_KIND = {
    "delta": tuple(point for point in DELTA if not point.startswith("delta.moved")),
    "duckdb": DUCKDB,
    "postgres": POSTGRES,
}
MATRIX = [(kind, point) for kind in OF_KIND for point in dict.fromkeys((*COMMON, *OF_KIND[kind]))]
WRITES = ("apply.table.before", "sync.staged", "sync.commit.before@2", "fill.rewritten", "sync.done.before")
OWN_WRITES = {"iceberg": ("merge.published",), "duckdb": DUCKDB[:1], "postgres": ("sql.commit.before@2",)}
"""Delta: test_crash_delta.py; its late commits keep the claims of other tables waiting meanwhile."""
LATE = [(kind, point) for kind in KINDS for point in (*WRITES, *OWN_WRITES.get(kind, ()))]


def test_every_point_of_a_sync_is_here() -> None:
    """A new point needs a case on all destinations."""
    of_sync = {p for p in points() if p.split(".")[0] in ("sync", "journal", "apply", "fill")}
    assert {p.partition("@")[0] for p in COMMON} == of_sync
    assert {p.partition("@")[0] for p in (*SYNC, *FILL)} >= of_sync, "over Iceberg"


@dataclass(frozen=True)
class Shop:
    """A project whose tables are loaded and whose source has changed since; `again` makes it so anew."""

    kind: str
    folder: Path
    saved: Path
    forks: Forks
    database: Database | None = None

    def run(self, function: str, crash: str = "") -> Ended:
        return self.forks.run(f"crash_shop.{function}", str(self.folder), crash=crash)

    def done(self, function: str) -> str:
        ended = self.run(function)
        assert ended.code == 0, f"{function}: {ended.said}"
        return ended.said

    def save(self) -> None:
        shutil.copytree(self.folder, self.saved)
        if self.database is not None:
            self._in_server('ALTER DATABASE "{0}" RENAME TO "{0}_saved"')

    def again(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.saved, self.folder)
        if self.database is not None:
            self._in_server('DROP DATABASE IF EXISTS "{0}" WITH (FORCE)')
            self._in_server('CREATE DATABASE "{0}" TEMPLATE "{0}_saved" STRATEGY FILE_COPY')

    def drop(self) -> None:
        if self.database is not None:
            self._in_server('DROP DATABASE IF EXISTS "{0}" WITH (FORCE)')
            self._in_server('DROP DATABASE IF EXISTS "{0}_saved" WITH (FORCE)')

    def _in_server(self, sql: str) -> None:
        assert self.database is not None
        whole = replace(self.database, config=self.database.config.model_copy(update={"database": "postgres"}))
        whole.execute(sql.format(self.database.config.database))


@pytest.fixture(scope="module")
def shops(
    forked: Forks, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[dict[str, Shop]]:
    """Filled as they are asked for."""
    made: dict[str, Shop] = {}
    with ExitStack() as stack:

        def make(kind: str) -> Shop:
            place = tmp_path_factory.mktemp(kind)
            shop = Shop(kind, place / "shop", place / "saved", forked, _database(request, kind))
            stack.callback(shop.drop)
            _load(shop)
            return shop

        class Made(dict[str, Shop]):
            def __missing__(self, kind: str) -> Shop:
                self[kind] = make(kind)
                return self[kind]

        made = Made()
        yield made


def _database(request: pytest.FixtureRequest, kind: str) -> Database | None:
    if kind != "postgres":
        return None
    server: Server = request.getfixturevalue("postgres_server")
    return make_database(server, "matrix")


def _load(shop: Shop) -> None:
    shop.folder.mkdir(parents=True)
    text = KINDS[shop.kind]
    if shop.database is not None:
        at = shop.database.config
        text %= (at.port, at.database, at.user)
        shop.folder.joinpath(".env").write_text(f"PG={at.password}\n")
    shop.folder.joinpath("instep.yml").write_text(PROJECT.replace("DESTINATION", text))
    execute(str(shop.folder), BEFORE)
    shop.done("synced")
    execute(str(shop.folder), CHANGE)
    shop.save()


@pytest.fixture
def shop(shops: dict[str, Shop], kind: str) -> Shop:
    found = shops[kind]
    found.again()
    return found


@pytest.mark.drawn(3)
@pytest.mark.sampled
@pytest.mark.server
@pytest.mark.parametrize(("kind", "point"), MATRIX)
def test_a_sync_that_is_killed(shop: Shop, point: str) -> None:
    died = shop.run("synced", crash=f"{point}=kill")
    assert died.code == -signal.SIGKILL, f"it never came to {point}: {died.said}"
    shop.done("recovered")


@pytest.mark.drawn(3)
@pytest.mark.sampled
@pytest.mark.server
@pytest.mark.parametrize(("kind", "point"), LATE)
def test_a_sync_that_wakes_up_late(shop: Shop, point: str) -> None:
    """Where it holds no lock, its successor is done and nothing that it does afterwards is seen. A commit that is under
    way beside that of its crash point may hold the catalog's, for which each table of a successor would wait a minute:
    then there is none."""
    once = point if "@" in point else f"{point}@1"
    late = shop.run("synced", crash=f"{once}=stop")
    assert late.code is None, f"it never came to {point}: {late.said}"
    before = ""
    if is_free(shop.folder):
        lease_ends(str(shop.folder))
        successor = shop.run("synced")
        before = shop.run("shown").said if successor.code == 0 else ""
    ended = shop.forks.go_on(late)
    assert ended.code is not None
    if before:
        assert ended.code == 1
        assert late_said(ended.said), ended.said
        assert shop.run("shown").said == before, "a late run has changed something"
    shop.done("synced")
    shop.done("converged")
