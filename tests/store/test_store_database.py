"""Opening, transactions, and files that are not as they should be."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from datetime import datetime
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError, StatementError
from store_world import catalog, finding

from instep.errors import Conflict, ConnectError, ProjectError
from instep.events import RunStarted
from instep.model import TableRun
from instep.store.store import Store
from work_count import calls_of

ON_A_FULL_DISK = """
import os, sys
from instep.errors import ConnectError
from instep.store.store import Store

place, fill = f"sqlite:///{sys.argv[1]}/state.db", os.path.join(sys.argv[1], "fill")
with Store(place) as store:
    store.pauses.pause("c", "before")
with open(fill, "wb", buffering=0) as file:
    try:
        while file.write(bytes(4096)):
            pass
    except OSError:
        pass
try:
    with Store(place) as store:
        store.runs.claim("c", "sync")
except ConnectError as error:
    print(" ".join(str(error).split()))
os.unlink(fill)
with Store(place) as store:
    print(f"{store.pauses.connection('c').reason}: a run {store.runs.claim('c', 'sync').fence}")
"""


def modes(folder: Path) -> dict[str, int]:
    return {file.name: file.stat().st_mode & 0o777 for file in folder.iterdir()}


def test_the_store_s_files_are_for_its_owner_alone(tmp_path: Path) -> None:
    own = {"state.db": 0o600, "state.db-wal": 0o600, "state.db-shm": 0o600}
    before = os.umask(0)
    try:
        with Store(f"sqlite:///{tmp_path / 'state.db'}") as store:
            store.events.add(RunStarted("c", "r", "sync"))
            assert modes(tmp_path) == own
            for file in tmp_path.iterdir():
                file.chmod(0o666)  # as an earlier version made them
            with Store(f"sqlite:///{tmp_path / 'state.db'}"):
                assert modes(tmp_path) == own
    finally:
        os.umask(before)


def test_a_store_of_a_development_version_is_named_as_such(any_store: Store) -> None:
    """It has the number of this version, and not all of its columns."""
    with any_store._db.write() as connection:
        connection.execute(text("ALTER TABLE cursors DROP COLUMN proof"))
    with pytest.raises(ConnectError, match=r"made by a development version of instep \(.*proof") as raised:
        any_store.cursors.of("c")
    assert "syncs start over" in raised.value.hint


def test_calls_in_a_transaction_commit_together(any_store: Store) -> None:
    with pytest.raises(ZeroDivisionError), any_store.transaction():  # noqa: PT012
        any_store.accepted.add("c", catalog("orders"), who="a", why="b")
        any_store.reviews.record("c", [finding("k")], "f")
        any_store.events.add(RunStarted("c", "r", "sync"))
        assert any_store.accepted.latest("c") is not None
        raise ZeroDivisionError
    assert any_store.accepted.latest("c") is None
    assert any_store.reviews.find() == []
    assert any_store.events.after() == []
    with any_store.transaction():
        any_store.accepted.add("c", catalog("orders"), who="a", why="b")
        any_store.events.add(RunStarted("c", "r", "sync"))
    assert any_store.accepted.latest("c") is not None


def test_a_call_that_fails_inside_a_transaction_undoes_only_itself(any_store: Store) -> None:
    with any_store.transaction():
        any_store.names.set_owned("c", "lake", {("public", "t"): ("n", "t")})
        with pytest.raises(Conflict):
            any_store.names.set_owned("d", "lake", {("public", "t"): ("n", "t")})
        any_store.pauses.pause("c", "after the failure")
    assert any_store.connections.get("c")
    assert any_store.pauses.connection("c") is not None


def test_other_threads_do_not_see_an_open_transaction(store: Store) -> None:
    seen: list[int] = []
    with store.transaction():
        store.pauses.pause("c", "why")
        thread = threading.Thread(target=lambda: seen.append(len(store.pauses.active("c"))))
        thread.start()
        thread.join()
    assert seen == [0]
    assert len(store.pauses.active("c")) == 1


def test_sqlite_is_set_up_for_several_processes(store: Store) -> None:
    with sqlite3.connect(str(store.file)) as raw:
        assert raw.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    raw.close()
    with store._db.read() as connection:
        assert connection.execute(text("PRAGMA foreign_keys")).scalar() == 1
        assert connection.execute(text("PRAGMA synchronous")).scalar() == 2


def test_times_must_be_aware(url: str) -> None:
    with Store(url, now=lambda: datetime(2026, 1, 1)) as store, pytest.raises(StatementError, match="aware datetimes"):
        store.pauses.pause("c", "why")


def test_a_run_that_does_not_exist_has_no_tables(any_store: Store) -> None:
    with pytest.raises(IntegrityError):
        any_store.runs.record_tables(TableRun("r-none", ("public", "t"), "done"))


def test_an_up_to_date_database_opens_without_alembic(url: str) -> None:
    Store(url).close()
    code = (
        f"import sys; from instep.store.store import Store; Store({url!r}).runs.history();"
        "heavy = {'alembic', 'pyspark', 'pyarrow', 'pyiceberg', 'pydantic', 'pandas'};"
        "assert not heavy & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

    def opened() -> None:
        with Store(url) as store:
            store.runs.history()

    assert calls_of(opened) < 50_000


def test_a_new_database_is_made_without_alembic(url: str) -> None:
    made = f"from instep.store.store import Store; Store({url!r}).close()"
    code = f"import sys; {made}; assert 'alembic' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_package_without_the_store_loads_no_sqlalchemy() -> None:
    code = "import sys, instep.model, instep.events, instep.crash; assert 'sqlalchemy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


class TestBadPlaces:
    def test_not_a_database(self, tmp_path: Path) -> None:
        file = tmp_path / "state.db"
        file.write_bytes(b"hello" * 1000)
        with pytest.raises(ConnectError, match="is not a SQLite database") as error:
            Store(f"sqlite:///{file}")
        assert str(file) in error.value.message
        assert file.read_bytes() == b"hello" * 1000

    def test_a_damaged_file(self, tmp_path: Path) -> None:
        file = tmp_path / "state.db"
        with Store(f"sqlite:///{file}") as store:
            store.events.add(*(RunStarted("c", "r" * 100, "sync") for _ in range(500)))
        data = bytearray(file.read_bytes())
        data[4096:] = b"\xff" * (len(data) - 4096)
        file.write_bytes(data)
        with pytest.raises(ConnectError, match=r"state\.db cannot be used"), Store(f"sqlite:///{file}") as store:
            store.events.after()

    def test_a_folder_in_its_place(self, tmp_path: Path) -> None:
        with pytest.raises(ConnectError, match="cannot be opened"):
            Store(f"sqlite:///{tmp_path}")

    def test_a_file_where_its_folder_should_be(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(ConnectError, match="its folder cannot be made"):
            Store(f"sqlite:///{tmp_path}/file/state.db")

    def test_a_full_disk(self, tmp_path: Path) -> None:
        with Store(f"sqlite:///{tmp_path}/state.db") as store:
            store.pauses.pause("c", "before")
            with store._db.read() as connection:
                pages = connection.execute(text("PRAGMA page_count")).scalar()
                connection.execute(text(f"PRAGMA max_page_count = {pages}"))
            with pytest.raises(ConnectError, match="the disk is full") as error:
                store.events.add(*(RunStarted("c", "r" * 4000, "sync") for _ in range(50)))
            assert "nothing was changed" in error.value.hint
            assert store.events.after() == []
            assert store.pauses.connection("c") is not None

    def test_a_disk_without_room_for_a_run(self, tmp_path: Path) -> None:
        """SQLite tells it as an error of the disk. A run can be claimed again when there is room."""
        mounted = ["unshare", "-rm", "sh", "-c", f'mount -t tmpfs -o size=4m none {tmp_path} && exec "$@"', "sh"]
        if not shutil.which("unshare") or subprocess.run([*mounted, "true"], capture_output=True).returncode:
            pytest.skip("this machine mounts no disk for a test")
        ran = subprocess.run(
            [*mounted, sys.executable, "-c", ON_A_FULL_DISK, str(tmp_path)], capture_output=True, text=True, check=True
        )
        full, free = ran.stdout.splitlines()
        assert "/state.db cannot be used: the disk is full (0 bytes are free)" in full
        assert "then run the command again; everything committed before is intact" in full
        assert free == "before: a run 1"

    @pytest.mark.skipif(not shutil.which("setpriv") or os.geteuid() != 0, reason="needs a second user")
    def test_a_folder_that_may_not_be_written(self) -> None:
        nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable, "-c"]
        if subprocess.run([*nobody, "import instep.errors"], capture_output=True, cwd="/").returncode:
            pytest.skip("the second user cannot reach the interpreter")
        with tempfile.TemporaryDirectory() as folder:
            Path(folder).chmod(0o755)
            Store(f"sqlite:///{folder}/state.db").close()
            code = f"from instep.store.store import Store; Store('sqlite:///{folder}/state.db').pauses.pause('c', 'x')"
            done = subprocess.run([*nobody, code], capture_output=True, text=True, cwd="/")
        assert f"ConnectError: the store {folder}/state.db cannot be used: it cannot be opened" in done.stderr
        assert "check who owns the file" in done.stderr

    @pytest.mark.parametrize("url", ["nonsense", "postgres//x:geheim@y", ""])
    def test_no_url(self, url: str) -> None:
        with pytest.raises(ProjectError, match="not a database URL") as error:
            Store(url)
        assert "geheim" not in str(error.value)

    @pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:"])
    def test_memory_is_no_store(self, url: str) -> None:
        with pytest.raises(ProjectError, match="needs a file"):
            Store(url)

    def test_no_server(self) -> None:
        with pytest.raises(ConnectError, match=r"the store .* cannot be used") as error:
            Store("postgresql+psycopg://me:geheim@127.0.0.1:1/db?connect_timeout=2")
        assert "geheim" not in str(error.value)

    @pytest.mark.parametrize("url", ["oracle+oracledb://me:geheim@h/db", "nosuch://me:geheim@h/db"])
    def test_no_driver(self, url: str) -> None:
        with pytest.raises(ConnectError, match="cannot be used") as error:
            Store(url)
        assert "geheim" not in str(error.value)
