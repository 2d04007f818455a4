"""Screens and searches of a large installation, over real HTTP from a server in a process of its own.

    python bench/pages.py [--connections 5000] [--tables 5000] [--rounds 5] [--folder DIR] [--only TEXT] [--write]

The store has one connection of `--tables` tables with 40 columns each in two versions, and `--connections` others with
ten changes and ten runs each, the same ten changes in all. Each screen and each search is asked for by one client, once
to warm up and then in rounds. `--write` puts the figures into docs/reference/benchmarks.md.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from statistics import median

import httpx2
from sqlalchemy import insert

from instep.bootstrap import App, open_server
from instep.control.resources import api_keys
from instep.model import Member, TableRun
from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import parse
from instep.schema.planning.projection import LoadedColumn
from instep.store.catalogs.discoveries import CachedDiscovery
from instep.store.catalogs.reviews import DetectedChange
from instep.store.store import utc_now
from instep.store.tables.catalogs import connections, reviews, runs
from instep.store.tables.server import object_links, objects
from instep.store.work.rollouts import RolloutDraft
from places import PAGE

BEGIN, END = "<!-- pages: begin -->", "<!-- pages: end -->"
EACH, COLUMNS, WIDE_CHANGES = 10, 40, 200
SEARCH_LIMIT, PAGE_LIMIT, ROWS_LIMIT = 300, 1000, 200
PROJECT = """\
sources: {db: {type: sqlite, path: shop.db}}
destinations: {lake: {type: iceberg}}
policies: {strict: {preset: approve, rules: [{on: [column.added], match: "*.note", decide: apply}]}}
connections: {wide: {source: db, destination: lake, policy: strict}}
"""
RUN, ROLLOUT, CHANGE, WIDE_CHANGE, WIDE_RUN = "{run}", "{rollout}", "{change}", "{wide_change}", "{wide_run}"
SCREENS = {
    "inbox": "/changes",
    "inbox, applied": "/changes?tab=auto_applied",
    "inbox of one connection": "/changes?connection=shop04000",
    "review": f"/changes/{CHANGE}",
    "review, 5,000 tables": f"/changes/{WIDE_CHANGE}",
    "review, lineage": f"/changes/{WIDE_CHANGE}?tab=lineage",
    "review, impact": f"/changes/{WIDE_CHANGE}?tab=impact",
    "review, DDL": f"/changes/{WIDE_CHANGE}?tab=ddl",
    "connections": "/connections",
    "status": "/connections/shop04000",
    "status, 5,000 tables": "/connections/wide",
    "schema": "/connections/wide/schema",
    "schema, new tables": "/connections/wide/schema?state=new",
    "schema, a table open": "/connections/wide/schema?open=main.t02500",
    "schema history": "/connections/wide/schema/history",
    "timeline": "/connections/wide/timeline",
    "quarantine": "/connections/shop04000/quarantine",
    "quarantine, 5,000 tables": "/connections/wide/quarantine",
    "detector": "/connections/wide/detector",
    "runs": "/runs",
    "run": f"/runs/{RUN}",
    "run, 5,000 tables": f"/runs/{WIDE_RUN}",
    "queue": "/queue",
    "rollouts": "/rollouts",
    "rollout": f"/rollouts/{ROLLOUT}",
    "policies": "/policies",
    "policy": "/policies/strict",
    "notifications": "/notifications/channels",
    "deliveries": "/notifications/deliveries",
    "settings": "/settings/you",
    "keys": "/settings/keys",
    "audit": "/settings/audit",
    "health": "/settings/health",
    "secrets": "/settings/secrets",
    "set-up": "/setup",
}
SEARCHES = {
    "changes: text": "/api/v1/changes?search=t7",
    "changes: text that nothing has": "/api/v1/changes?search=nothing-has-this",
    "changes: regular expression": "/api/v1/changes?search=re:main%5C.t%5B3-5%5D.*",
    "changes: counts of a text": "/api/v1/change-counts?search=t7",
    "changes: page of all": "/api/v1/changes",
    "changes of one connection": "/api/v1/changes?connection=shop04000",
    "connections: text": "/api/v1/connections?search=499",
    "connections: tag": "/api/v1/connections?tag=t7",
    "tables: text": "/api/v1/connections/wide/selection/tables?search=t0250",
    "tables: pattern": "/api/v1/connections/wide/selection/matches?pattern=main.t02*",
    "status: page of tables": "/api/v1/connections/wide/status/tables",
    "status: tables by text": "/api/v1/connections/wide/status/tables?search=t0250",
    "tables of a run": f"/api/v1/runs/{WIDE_RUN}/tables",
    "columns of a table": "/api/v1/connections/wide/selection/columns?table=main.t02500",
}


@dataclass(frozen=True)
class Timing:
    """Milliseconds of one address by its rounds, in which the answer was `size` bytes with `rows` rows. `cpu`: those of
    the server's processor a round, which others on the machine do not lengthen."""

    name: str
    cpu: float
    best: float
    middle: float
    size: int
    rows: int

    def line(self) -> str:
        times = f"{self.cpu:.0f} | {self.best:.0f} | {self.middle:.0f}"
        return f"| {self.name} | {times} | {self.size / 1024:,.0f} | {self.rows} |"


def fill(app: App, count: int, tables: int) -> dict[str, str]:
    """Fill the store; return what the addresses are completed with."""
    names = [f"shop{n:05}" for n in range(count)]
    fill_fleet(app, names)
    members = tuple(Member("", name, 1 + at // 1000, "waiting", "applies") for at, name in enumerate(names))
    rollout = app.store.rollouts.add(RolloutDraft({"policy": {"preset": "approve"}}, {}, ("1000",), {}, members, "t"))
    wide_change, wide_run = fill_wide(app, tables)
    return {
        "rollout": rollout.id,
        "change": f"c-1-{names[-1]}",
        "run": f"r-1-{names[-1]}",
        "wide_change": wide_change,
        "wide_run": wide_run,
    }


def fill_fleet(app: App, names: Sequence[str]) -> None:
    now = utc_now()
    common = {"version": 1, "created": now, "updated": now, "kind": "connection"}
    spec = {"source": "db", "destination": "lake"}
    with app.store._db.write() as transaction:
        tagged = [(name, f"t{at % 50}") for at, name in enumerate(names)]
        whole = [
            {
                **common,
                "name": name,
                "id": f"c{name}",
                "tags": [tag],
                "spec": {**spec, "namespace": name, "tags": [tag]},
            }
            for name, tag in tagged
        ]
        links = [
            {"kind": "connection", "name": name, "what": what, "value": value}
            for name, tag in tagged
            for what, value in (("source", "db"), ("destination", "lake"), ("tag", tag))
        ]
        transaction.execute(insert(objects), whole)
        transaction.execute(insert(object_links), links)
        transaction.execute(insert(connections), [{"name": name, "created": now, "updated": now} for name in names])
        for turn in range(EACH):
            at = [now - timedelta(seconds=turn * len(names) + n) for n in range(len(names))]
            pairs = list(zip(names, at, strict=True))
            found = change_of(f"t{turn}", f"c{turn}")
            row = {
                **vars(found),
                "seen": 1,
                "table_schema": "main",
                "table_name": f"t{turn}",
                "column_name": f"c{turn}",
            }
            row = {key: value for key, value in row.items() if key not in ("table", "column")}
            status = "open" if turn % 2 else "applied"
            transaction.execute(insert(reviews), [
                {**row, "id": f"c-{turn}-{n}", "connection": n, "status": status, "first_seen": t, "last_seen": t}
                for n, t in pairs
            ])  # fmt: skip
            run = {"kind": "sync", "detail": {}, "lease_until": now, "status": "done", "fence": EACH - turn}
            transaction.execute(
                insert(runs), [{**run, "id": f"r-{turn}-{n}", "connection": n, "started": t} for n, t in pairs]
            )


def change_of(table: str, column: str) -> DetectedChange:
    change = {
        "kind": "column.added",
        "table": ["main", table],
        "after": {"name": column, "type": "string"},
        "position": 1,
    }
    text = f"main.{table}.{column} is new"
    key = f"column.added main.{table}.{column}"
    place = ("main", table)
    return DetectedChange(key, "column.added", place, column, text, change, "review", "preset approve", "waits")


def fill_wide(app: App, count: int) -> tuple[str, str]:
    """Give the connection `wide` two accepted versions, a discovery, runs and changes; return a change and a run."""
    store, name = app.store, "wide"
    kinds = ("int64", "string", "timestamp", "decimal(18,2)")
    own = [Column(f"column_{n:02}", parse(kinds[n % 4]), alias=f"column_{n:02}") for n in range(COLUMNS)]
    tables = [Table("main", f"t{n:05}", tuple(own), alias=f"t{n:05}") for n in range(count)]
    store.accepted.add(name, Catalog.of([*tables[:-50]]), who="ann", why="baseline", base="")
    store.accepted.add(name, catalog := Catalog.of(tables), who="ann", why="50 tables more")
    stats = {table.ref: (1000, 100_000) for table in tables}
    store.discoveries.save(name, CachedDiscovery(catalog, "f", stats))
    store.loaded.save(name, {t.ref: [LoadedColumn(c.name) for c in own] for t in tables})
    for _ in range(EACH):
        run = store.runs.claim(name, "sync")
        store.runs.record_tables(
            *(TableRun(run.id, table.ref, "done", "upsert", 100, 60, 40, 0, 0, 9_999, 0.1) for table in tables)
        )
        store.runs.finish(run, "done")
    found = [change_of(f"t{n:05}", "note") for n in range(min(WIDE_CHANGES, count))]
    return store.reviews.record(name, found, "f")[0].id, run.id


@contextmanager
def serving(folder: Path) -> Iterator[tuple[str, int]]:
    """Run `instep server` on a free port of loopback; its address and its process."""
    command = [sys.executable, "-m", "instep.cli.main", "--project", str(folder), "server", "--port", "0"]
    log = folder / "server.log"
    with log.open("wb") as out:
        options = ["--insecure-dev", "--rate", "1000000"]
        process = subprocess.Popen([*command, *options], stdout=out, stderr=out, env={**os.environ, "NO_COLOR": "1"})
    try:
        end = time.monotonic() + 300
        while (found := re.search(r"listening on (http://[\d.:]+)", log.read_text())) is None:
            if process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"bench: the server did not start:\n{log.read_text()[-2000:]}")
            time.sleep(0.1)
        yield found[1], process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def timed(client: httpx2.Client, process: int, name: str, path: str, rounds: int) -> Timing:
    """Ask for an address once, then in rounds."""
    client.get(path).raise_for_status()
    taken, cpu = [], cpu_of(process)
    for _ in range(rounds):
        begin = time.perf_counter()
        answer = client.get(path)
        taken.append((time.perf_counter() - begin) * 1000)
    if answer.status_code != 200:
        raise SystemExit(f"bench: {path} was answered {answer.status_code}")
    spent = (cpu_of(process) - cpu) / rounds
    return Timing(name, spent, min(taken), median(taken), len(answer.content), rows_of(answer))


def cpu_of(process: int) -> float:
    """Return the milliseconds of the processor that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


def rows_of(answer: httpx2.Response) -> int:
    """Return the rows of the longest list of an answer."""
    if answer.headers["content-type"].startswith("text/html"):
        bodies = answer.text.split("<table")[1:]
        return max((one.partition("</table")[0].count("<tr") for one in bodies), default=0)
    document = answer.json()
    return len(document["items"]) if "items" in document else 0


def measure(
    server: tuple[str, int], secret: str, rest: dict[str, str], rounds: int, only: str
) -> dict[str, list[Timing]]:
    headers = {"Authorization": f"Bearer {secret}"}
    base, process = server
    with (
        httpx2.Client(base_url=base, timeout=120) as browser,
        httpx2.Client(base_url=base, timeout=120, headers=headers) as api,
    ):
        browser.post("/sign-in", data={"password": secret, "back": "/settings/you"})
        found: dict[str, list[Timing]] = {"screens": [], "searches": []}
        for kind, client, addresses in (("screens", browser, SCREENS), ("searches", api, SEARCHES)):
            for name, path in addresses.items():
                if only in f"{name} {path}":
                    found[kind].append(one := timed(client, process, name, path.format(**rest), rounds))
                    print(one.line(), flush=True)
    return found


def problems(found: dict[str, list[Timing]]) -> list[str]:
    """Return what takes longer than is allowed, or has more rows. Of the quickest round and the processor's time the
    lower one counts: on a machine with much other work only the latter says something."""
    limits = [(one, PAGE_LIMIT) for one in found["screens"]] + [(one, SEARCH_LIMIT) for one in found["searches"]]
    slow = [f"{one.name}: {one.best:.0f} ms" for one, limit in limits if min(one.best, one.cpu) > limit]
    every = [*found["screens"], *found["searches"]]
    return slow + [f"{one.name}: {one.rows} rows" for one in every if one.rows > ROWS_LIMIT + 1]


def section(found: dict[str, list[Timing]], connection_count: int, table_count: int, rounds: int) -> str:
    """Return the figures as the page has them."""
    intro = (
        f"Over HTTP on loopback from `instep server` with SQLite as its store: {connection_count:,} connections with "
        f"{connection_count * EACH:,} changes, one more with {table_count:,} tables of {COLUMNS} columns. "
        f"{rounds} requests after a first one, beside other work (a load of {os.getloadavg()[0]:.0f} on "
        f"{os.cpu_count()} cores, which lengthens all but the CPU time); CPU is that of the server a request."
    )
    head = "| CPU ms | quickest ms | median ms | KiB | rows |\n| --- | ---: | ---: | ---: | ---: | ---: |"
    parts = [intro]
    for title, kind in (
        ("a screen (at most 1,000 ms, 200 rows)", "screens"),
        ("a search of the API (at most 300 ms)", "searches"),
    ):
        parts.append("\n".join([f"| {title} {head}", *(one.line() for one in found[kind])]))
    return "\n\n".join(parts)


def write_section(text: str) -> None:
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="milliseconds of the screens and searches of a large installation")
    parser.add_argument("--connections", type=int, default=5000)
    parser.add_argument("--tables", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="keep the store here")
    parser.add_argument("--only", default="", metavar="TEXT", help="only screens and searches with this in their name")
    parser.add_argument("--write", action="store_true", help="write the figures into the page of the benchmarks")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="bench-pages-") as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "instep.yml").write_text(PROJECT)
        with open_server(folder, insecure_dev=True) as app:
            rest = fill(app, given.connections, given.tables)
            secret = api_keys.create(app.store, "bench", "admin", "bench").secret
        with serving(folder) as server:
            found = measure(server, secret, rest, given.rounds, given.only)
    if given.write:
        write_section(section(found, given.connections, given.tables, given.rounds))
    for one in (bad := problems(found)):
        print(f"too much: {one}")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
