"""200,100 records of airbyte-source-faker into DuckDB, by instep and by PyAirbyte over the same connector environment.

    python bench/airbyte_line.py [--users 100000] [--write]

Prints the CPU seconds of all processes of each, of those that run in the connector's environment, and of the others,
and the peak of their memory, where a page that processes share counts once (PSS). `--write` puts the figures into
docs/reference/benchmarks.md.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import peers
from places import BENCH, LOGS, PAGE, REPOSITORY, make_places

VERSION = "7.2.1"
PROJECT = """\
version: 1
engine: local
sources:
  shop:
    type: airbyte
    package: airbyte-source-faker==@VERSION@
    configuration: {count: @USERS@, seed: 7}
destinations: {lake: {type: duckdb, path: lake.duckdb}}
connections: {shop: {}}
"""
PEER = """\
import sys
import airbyte as ab
from airbyte.caches import DuckDBCache

executable, users, place = sys.argv[1:]
source = ab.get_source("source-faker", local_executable=executable, config={"count": int(users), "seed": 7})
source.select_all_streams()
source.read(cache=DuckDBCache(db_path=place))
"""
BEGIN, END = "<!-- airbyte: begin -->", "<!-- airbyte: end -->"
SECONDS = 1800
PART = 5
"""Of how many records one comes in the smaller sync, which tells what the start of a command takes."""


def measured(name: str, folder: Path, command: Sequence[str], connector: Path) -> dict[str, float]:
    """Run a command in a folder; return what measure.py has found of its process tree, the connector's processes apart:
    `connector` is the folder of its environment."""
    result, log = folder / f"{name}.json", LOGS / f"airbyte-{name}.log"
    flags = ["--pss", "--apart", connector]
    words = [sys.executable, BENCH / "measure.py", result, log, "0", str(SECONDS), "0", *flags, "--", *command]
    plain = {key: value for key, value in os.environ.items() if not key.startswith("AIRBYTE_")}
    quiet = {"DO_NOT_TRACK": "1", "AIRBYTE_OFFLINE_MODE": "1", "AIRBYTE_NO_UV": "1", "HOME": str(folder)}
    subprocess.run([*map(str, words)], cwd=folder, env={**plain, **quiet}, check=True)
    found: dict[str, float] = json.loads(result.read_text())
    if found["exit_code"]:
        raise SystemExit(f"bench: {name} has failed: see {log}")
    return found


def instep_command(*words: str) -> list[str]:
    return [str(Path(sys.executable).with_name("instep")), *words]


def connector(folder: Path) -> Path:
    """Return the connector's program, in the environment that instep has made for it."""
    from instep.project.load import load
    from instep.sources.airbyte.config import AirbyteConfig
    from instep.sources.airbyte.program import program

    section = load(folder).model.sources["shop"]
    config = AirbyteConfig.resolved(package=section.package, configuration={}, name="shop", folder=str(folder))
    return Path(program(config, lambda line: None).argv[1])


def rows(place: Path) -> int:
    import duckdb

    with duckdb.connect(str(place), read_only=True) as opened:
        names = opened.execute(
            "select schema_name, table_name from duckdb_tables() where table_name in ('users', 'products', 'purchases')"
        ).fetchall()
        counts = [opened.execute(f'select count(*) from "{s}"."{t}"').fetchone() for s, t in names]
    return sum(count[0] for count in counts if count)


def own_cpu(figures: dict[str, float]) -> float:
    return figures["cpu"] - figures["apart_cpu"]


def synced(users: int, folder: Path, environment: Path) -> tuple[dict[str, float], int]:
    """Sync so many users by instep, from cold and into an empty folder; return its figures and how many rows came."""
    folder.mkdir()
    (folder / "instep.yml").write_text(PROJECT.replace("@VERSION@", VERSION).replace("@USERS@", str(users)))
    subprocess.run(instep_command("source", "test", "shop"), cwd=folder, check=True, stdout=subprocess.DEVNULL)
    figures = measured("instep", folder, instep_command("sync"), environment)
    return figures, rows(folder / "lake.duckdb")


def compare(users: int, folder: Path) -> str:
    """Run both; return the section of the page."""
    (folder / "instep.yml").write_text(PROJECT.replace("@VERSION@", VERSION).replace("@USERS@", str(users)))
    executable = connector(folder)
    environment = executable.parent.parent
    small, few = synced(users // PART, folder / "small", environment)
    large, count = synced(users, folder / "large", environment)
    (folder / "peer.py").write_text(PEER)
    words = [str(peers.python("airbyte")), "-P", "peer.py", str(executable), str(users), "peer.duckdb"]
    by = {"instep": large, "PyAirbyte": measured("pyairbyte", folder, words, environment)}
    if count != rows(folder / "peer.duckdb"):
        raise SystemExit(f"bench: {count} rows by instep, {rows(folder / 'peer.duckdb')} by PyAirbyte")
    lines = [
        "| | CPU s | connector's | own | records an own CPU s | peak memory, MB of PSS | own |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, one in by.items():
        own = own_cpu(one)
        cpu = f"{one['cpu']:.1f} | {one['apart_cpu']:.1f} | {own:.1f} | {count / own:,.0f}"
        lines.append(f"| {name} | {cpu} | {one['peak_mb']:.0f} | {one['own_peak_mb']:.0f} |")
    pin = peers.pinned("airbyte")["airbyte"]
    head = f"{count:,} records of airbyte-source-faker {VERSION} into DuckDB, PyAirbyte {pin} in one run."
    each = (own_cpu(large) - own_cpu(small)) / (count - few)
    start = own_cpu(large) - count * each
    tail = (
        f"With {few:,} records instep's own part is {own_cpu(small):.1f} CPU s: {start:.1f} s are the start of the\n"
        f"command, detection and the commit, and each second beyond that takes {1 / each:,.0f} records."
    )
    return "\n".join([head, "", *lines, "", tail])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=100_000)
    parser.add_argument("--write", action="store_true", help="write the figures into the page of the benchmarks")
    given = parser.parse_args()
    make_places()
    os.environ.setdefault("INSTEP_CACHE", str(REPOSITORY / ".cache" / "instep"))  # the same for all that is run here
    peers.install("airbyte")
    with tempfile.TemporaryDirectory(prefix="airbyte-") as scratch:
        text = compare(given.users, Path(scratch))
    print(text)
    if given.write:
        page = PAGE.read_text()
        PAGE.write_text(re.sub(f"{BEGIN}.*{END}", lambda _: f"{BEGIN}\n{text}\n{END}", page, flags=re.DOTALL))


if __name__ == "__main__":
    main()
