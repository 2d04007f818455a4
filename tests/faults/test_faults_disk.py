# ruff: noqa: S608 - the statements stand in this file
"""Disks that are full, as a limit on the size of files shows them to root and others alike: in staging, at the
destination, under the store. What does not fit fails by name; the rest lands; with room again, all is equal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from crash.crash_shop import BEFORE, CHANGE, KINDS, PROJECT, execute
from forks import Forks

pytestmark = pytest.mark.slow

ROWS = "WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < 6000) INSERT INTO big"
RANDOM = f"CREATE TABLE big (id INTEGER PRIMARY KEY, t TEXT); {ROWS} SELECT i, hex(randomblob(600)) FROM s;"
EVEN = f"CREATE TABLE big (id INTEGER PRIMARY KEY, t TEXT); {ROWS} SELECT i, i || hex(zeroblob(600)) FROM s;"
"""Twelve bytes of a row in Parquet, and 1,200 where rows are not compressed."""

FULL: list[tuple[str, str, str, int, str]] = [
    ("staging", "iceberg", RANDOM, 1_000_000, "table main.big: cannot write file:.*raise `ulimit -f`"),
    ("staging", "delta", RANDOM, 1_000_000, "table main.big: cannot write file:.*raise `ulimit -f`"),
    ("staging", "duckdb", RANDOM, 1_000_000, "table main.big: cannot write file:.*raise `ulimit -f`"),
    ("destination", "duckdb", EVEN, 2_000_000, "main.*big.*File too large: nothing was written.*free disk space"),
    ("copy", "iceberg", RANDOM, 1_000_000, "SQLite file .*shop.db, copying it to .*free space there"),
    ("store", "iceberg", RANDOM, 60_000, "the store .*cannot be used.*free some space"),
]


@pytest.mark.parametrize(("part", "kind", "script", "most", "said"), FULL, ids=[f"{f[0]} {f[1]}" for f in FULL])
def test_a_full_disk(forked: Forks, tmp_path: Path, part: str, kind: str, script: str, most: int, said: str) -> None:
    """Nothing is copied of a source in WAL mode."""
    folder = str(tmp_path)
    tmp_path.joinpath("instep.yml").write_text(PROJECT.replace("DESTINATION", KINDS[kind]))
    execute(folder, BEFORE if part == "copy" else f"PRAGMA journal_mode = wal; {BEFORE}")
    assert forked.run("crash.crash_shop.synced", folder).code == 0
    execute(folder, CHANGE + script)
    full = forked.run("crash.crash_shop.synced_within", folder, str(most))
    assert full.code == 1
    assert re.search(said, full.said, re.S | re.I), full.said
    for function in ("whole", "synced", "converged"):
        ended = forked.run(f"crash.crash_shop.{function}", folder)
        assert ended.code == 0, ended.said
