"""A real PgBouncer on a loopback port in front of the tests' PostgreSQL, with or without TLS."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from instep.project.sections.databases import PostgresSourceSection
from postgres_server import Database, free_port
from programs import hand_over, program, serving


@contextmanager
def pooled(database: Database, certificates: Path | None = None, **settings: str) -> Iterator[PostgresSourceSection]:
    """The way to `database` through a pooler with these settings; paths among them are in `certificates`."""
    binary, port = program("pgbouncer"), free_port()
    folder = Path(tempfile.mkdtemp(prefix="instep-pool-"))
    try:
        if certificates:
            shutil.copytree(certificates, folder / "tls")
        users = "".join(f'"{c.user}" "{c.password}"\n' for c in (database.config, database.reader))
        (folder / "users").write_text(users)
        own = {k: str(folder / "tls" / v) if k.endswith("_file") else v for k, v in settings.items()}
        lines = {
            "listen_addr": "127.0.0.1", "listen_port": str(port), "auth_type": "scram-sha-256", "unix_socket_dir": "",
            "auth_file": str(folder / "users"), "pool_mode": "transaction", "query_wait_timeout": "60", **own,
        }  # fmt: skip
        text = "\n".join(f"{name} = {value}" for name, value in lines.items())
        target = f"[databases]\n* = host=127.0.0.1 port={database.config.port}\n"
        (folder / "config").write_text(f"{target}[pgbouncer]\n{text}\n")
        (folder / "log").touch()
        hand_over(folder)
        with serving([binary, str(folder / "config")], port, folder / "log"):
            yield database.config.model_copy(update={"port": port})
    finally:
        shutil.rmtree(folder, ignore_errors=True)
