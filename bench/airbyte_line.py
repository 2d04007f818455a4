"""200,100 records of airbyte-source-faker into DuckDB, by instep and by PyAirbyte over the same connector environment.

    python bench/airbyte_line.py [--users 100000] [--write]

Prints the CPU seconds of all processes of each and the peak of their memory, the connector's own included, where a page
that processes share counts once (PSS). The connector alone, its output thrown away, tells how much of it is its own
work: it is started for its specification, twice for its catalog and for its records, as a sync does. `--write` puts the
figures into docs/reference/benchmarks.md.
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
from places import BENCH, LOGS, PAGE, make_places

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


def measured(name: str, folder: Path, command: Sequence[str], **environment: str) -> dict[str, float]:
    """Run a command in a folder; return what measure.py has found of its process tree."""
    result, log = folder / f"{name}.json", LOGS / f"airbyte-{name}.log"
    words = [sys.executable, BENCH / "measure.py", result, log, "0", str(SECONDS), "0", "--pss", "--", *command]
    plain = {key: value for key, value in os.environ.items() if not key.startswith("AIRBYTE_")}
    quiet = {"DO_NOT_TRACK": "1", "AIRBYTE_OFFLINE_MODE": "1", "AIRBYTE_NO_UV": "1", "HOME": str(folder)}
    subprocess.run([*map(str, words)], cwd=folder, env={**plain, **quiet, **environment}, check=True)
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


def alone(folder: Path, executable: Path, users: int) -> dict[str, float]:
    """Measure the connector by itself, started as often as a sync does."""
    configuration, catalog = folder / "configuration.json", folder / "catalog.json"
    configuration.write_text(json.dumps({"count": users, "seed": 7}))
    python = executable.with_name("python")
    words = [str(python), str(executable), "discover", "--config", str(configuration)]
    lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    [streams] = [one["catalog"]["streams"] for one in map(json.loads, lines) if one["type"] == "CATALOG"]
    modes = {"sync_mode": "full_refresh", "destination_sync_mode": "overwrite"}
    catalog.write_text(json.dumps({"streams": [{"stream": one, **modes} for one in streams]}))
    discover = f"discover --config {configuration}"
    starts = ("spec", discover, discover, f"read --config {configuration} --catalog {catalog}")
    script = "; ".join(f"{python} {executable} {one} > /dev/null" for one in starts)
    return measured("connector", folder, ["sh", "-c", script])


def rows(place: Path) -> int:
    import duckdb

    with duckdb.connect(str(place), read_only=True) as opened:
        names = opened.execute(
            "select schema_name, table_name from duckdb_tables() where table_name in ('users', 'products', 'purchases')"
        ).fetchall()
        counts = [opened.execute(f'select count(*) from "{s}"."{t}"').fetchone() for s, t in names]
    return sum(count[0] for count in counts if count)


def compare(users: int, folder: Path) -> str:
    """Run all three; return the section of the page."""
    (folder / "instep.yml").write_text(PROJECT.replace("@VERSION@", VERSION).replace("@USERS@", str(users)))
    executable = connector(folder)
    subprocess.run(instep_command("source", "test", "shop"), cwd=folder, check=True, stdout=subprocess.DEVNULL)
    by = {"connector alone": alone(folder, executable, users)}
    by["instep"] = measured("instep", folder, instep_command("sync"))
    (folder / "peer.py").write_text(PEER)
    words = [str(peers.python("airbyte")), "-P", "peer.py", str(executable), str(users), "peer.duckdb"]
    by["PyAirbyte"] = measured("pyairbyte", folder, words)
    found = {"instep": rows(folder / "lake.duckdb"), "PyAirbyte": rows(folder / "peer.duckdb")}
    if len(set(found.values())) != 1:
        raise SystemExit(f"bench: the rows differ: {found}")
    lines = [
        "| | CPU s | peak memory, MB of PSS | records a CPU s beside the connector's |",
        "| --- | --- | --- | --- |",
    ]
    for name, one in by.items():
        own = one["cpu"] - by["connector alone"]["cpu"]
        rate = f"{found['instep'] / own:,.0f}" if own > 0 else ""
        lines.append(f"| {name} | {one['cpu']:.1f} | {one['peak_mb']:.0f} | {rate} |")
    pin = peers.pinned("airbyte")["airbyte"]
    head = f"{found['instep']:,} records of airbyte-source-faker {VERSION} into DuckDB, PyAirbyte {pin} in one run."
    return "\n".join([head, "", *lines])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=100_000)
    parser.add_argument("--write", action="store_true", help="write the figures into the page of the benchmarks")
    given = parser.parse_args()
    make_places()
    peers.install("airbyte")
    with tempfile.TemporaryDirectory(prefix="airbyte-") as scratch:
        text = compare(given.users, Path(scratch))
    print(text)
    if given.write:
        page = PAGE.read_text()
        PAGE.write_text(re.sub(f"{BEGIN}.*{END}", lambda _: f"{BEGIN}\n{text}\n{END}", page, flags=re.DOTALL))


if __name__ == "__main__":
    main()
