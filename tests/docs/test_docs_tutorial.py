"""The tutorial and the README run: files are written, commands are run in order, outputs are compared.

`INSTEP_WRITE_PAGES=1 pytest tests/docs/test_docs_tutorial.py` writes the outputs into the pages anew; read the
difference before it is committed. Lines are compared without their order, spaces, times and random ids.
"""

from __future__ import annotations

import getpass
import os
import re
import shlex
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from command_runs import run

ROOT = Path(__file__).parents[2]
WRITE = os.environ.get("INSTEP_WRITE_PAGES") == "1"
PORT, FOLDER, USER = "8321", "/home/you/shop", "you"
PAGES = ["first-sync", "first-schema-change", "first-review-in-a-team"]
BLOCK = re.compile(r"^```(console|yaml|sql)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PASSED_ON = {"INSTEP_CACHE", "INSTEP_ENGINE", "INSTEP_RESIDENT"}
"""What the reader's shell has of ours: which engine reads changes no line but its name."""
PROGRESS = re.compile(r"\s*\d+\.\d s  ")
"""How a line of progress begins; whether there is one depends on the machine."""
CHANGING = [
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?"), "TIME"),
    (re.compile(r"\br-\d{8}-\d{6}-[0-9a-f]{6}\b"), "RUN"),
    (re.compile(r"\b([jkp])-[0-9a-f]{6,}\b"), r"\1-ID"),
    (re.compile(r"\d+(\.\d+)? (ms|s|min|B|KiB|MiB)\b"), "SIZE"),
    (re.compile(r"\b[0-9a-f]{64}\b"), "DIGEST"),
    (re.compile(r"\bby (local|spark \([^)]*\))"), "by ENGINE"),
    (re.compile(r"[ ·]+"), " "),
]


@dataclass
class Terminal:
    """A shell in the reader's folder: it remembers `export` and ends the servers that it has started."""

    folder: Path
    capsys: pytest.CaptureFixture[str]
    port: str
    environment: dict[str, str] = field(default_factory=dict)
    servers: list[subprocess.Popen[str]] = field(default_factory=list)

    def run(self, command: str) -> str:
        """Return what the terminal shows for a command; a command that fails fails the test."""
        if command.startswith("sqlite3 "):
            return self._sqlite(*shlex.split(command)[1:])
        if command.startswith("export "):
            words = shlex.split(command.replace(PORT, self.port))[1:]
            self.environment |= dict(word.split("=", 1) for word in words)
            return ""
        if command.startswith("unset "):
            for name in command.split()[1:]:
                del self.environment[name]
            return ""
        if command.startswith("instep server"):
            return self._serve(f"{command} --port {self.port}")
        command = command.replace(PORT, self.port)
        code, shown = self._here(command) if re.fullmatch(r"instep [^|>;()]*", command) else self._shell(command)
        assert code == 0 or WRITE, f"{command}\n{shown}"
        return self._shown(shown)

    def _here(self, command: str) -> tuple[int, str]:
        """The command in this process: hundreds of imports are made once, not by each command."""
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.folder)
            for name in set(os.environ) - set(self._environment()):
                patch.delenv(name)
            for name, value in self._environment().items():
                patch.setenv(name, value)
            said = run(self.capsys, *shlex.split(command)[1:])
        return said.code, said.out + said.err

    def _shell(self, command: str) -> tuple[int, str]:
        done = subprocess.run(
            ["bash", "-c", command], cwd=self.folder, env=self._environment(), text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300,
        )  # fmt: skip
        return done.returncode, done.stdout

    def close(self) -> None:
        for server in self.servers:
            server.send_signal(signal.SIGTERM)
        for server in self.servers:
            server.wait(600)

    def _sqlite(self, name: str, script: str) -> str:
        with closing(sqlite3.connect(self.folder / name)) as connection:
            connection.executescript(script)
        return ""

    def _serve(self, command: str) -> str:
        log = self.folder / "server.log"
        with log.open("w") as out:
            server = subprocess.Popen(
                shlex.split(command), cwd=self.folder, env=self._environment(), text=True, stdout=out, stderr=out
            )
        self.servers.append(server)
        deadline = time.monotonic() + 600
        while time.monotonic() < deadline and server.poll() is None:
            for line in log.read_text().splitlines():
                if line.startswith("listening on"):
                    return self._shown(line)
            time.sleep(0.05)
        raise AssertionError(f"{command} does not listen: {log.read_text()}")

    def _environment(self) -> dict[str, str]:
        mine = {k: v for k, v in os.environ.items() if not k.startswith("INSTEP_") or k in PASSED_ON}
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return mine | {"PATH": path, "NO_COLOR": "1", "PYTHONWARNINGS": ""} | self.environment

    def _shown(self, text: str) -> str:
        shown = text.replace(str(self.folder), FOLDER).replace(f":{self.port}", f":{PORT}")
        shown = re.sub(rf"\b{re.escape(getpass.getuser())}\b", USER, shown)
        return "".join(f"{line.rstrip()}\n" for line in shown.splitlines() if not PROGRESS.match(line))


def free_port() -> str:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return str(bound.getsockname()[1])


def steps(text: str) -> Iterator[tuple[int, int, str, str]]:
    """Yield (start, end, kind, content) of the blocks; a console block is split at its prompts."""
    for block in BLOCK.finditer(text):
        if block[1] != "console":
            yield block.start(2), block.end(2), block[1], block[2]
            continue
        for part in re.finditer(r"^\$ .*\n(?:(?!\$ ).*\n)*", block[2], re.MULTILINE):
            yield block.start(2) + part.start(), block.start(2) + part.end(), "console", part[0]


def command_of(part: str) -> tuple[str, str]:
    """Split a part of a console block into its command, which ends where its quotes do, and the output."""
    lines = part[2:].splitlines(keepends=True)
    for count in range(1, len(lines) + 1):
        command = "".join(lines[:count])
        if command.count('"') % 2 == 0 and command.count("'") % 2 == 0:
            return command.rstrip("\n"), "".join(lines[count:])
    raise AssertionError(f"a quote is open: {part}")


def comparable(text: str) -> list[str]:
    for pattern, word in CHANGING:
        text = pattern.sub(word, text)
    return sorted(line.strip() for line in text.splitlines() if line.strip())


def play(text: str, terminal: Terminal) -> str:
    """Do what a page says; return the page with the outputs of now."""
    made, at = "", 0
    for start, end, kind, content in steps(text):
        made += text[at:start]
        at = end
        if kind == "yaml":
            name = re.match(r"# (\S+\.yml)\n", content)
            assert name, f"the first line names no file: {content}"
            (terminal.folder / name[1]).write_text(content)
            made += content
        elif kind == "console":
            command, said = command_of(content)
            shown = terminal.run(command)
            same = comparable(said) == comparable(shown)
            assert same or WRITE, f"$ {command}\nshows now:\n{shown}\non the page:\n{said}"
            made += content if same else f"$ {command}\n{shown}"
        else:
            made += content
    return made + text[at:]


@pytest.mark.sampled
@pytest.mark.parametrize("name", PAGES)
def test_the_page_runs_and_shows_what_is_shown(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = ROOT / "docs" / "tutorial" / f"{name}.md"
    text = page.read_text(encoding="utf-8")
    terminal = Terminal(tmp_path, capsys, free_port())
    try:
        found = play(text, terminal)
    finally:
        terminal.close()
    assert "instep sync" in text
    if WRITE:
        page.write_text(found, encoding="utf-8")


README_PROJECT = """\
version: 1
sources: {shop_db: {type: sqlite, path: shop.db}}
destinations: {lake: {type: iceberg, warehouse: lake}}
policies:
  careful: {preset: allow_all, rules: [{on: [column.removed, column.widened], decide: review}]}
connections:
  shop: {source: shop_db, destination: lake, policy: careful, downstream: {sql: [models]}}
"""
README_TABLES = """
create table customer (id integer primary key, name text not null, phone text);
create table orders (id integer primary key, customer_id integer, total integer);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 400)
insert into customer select i, 'customer ' || i, '+44 ' || (7000 + i) from n;
with recursive n(i) as (select 1 union all select i + 1 from n where i < 900)
insert into orders select i, i % 400, i * 7 % 100 from n;
"""
README_CHANGE = """
alter table customer rename column phone to mobile;
create table next (id integer primary key, customer_id integer, total text);
insert into next select * from orders;
update next set total = 'free' where id in (450, 700);
drop table orders;
alter table next rename to orders;
"""


def test_the_readme_s_recording_is_what_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The story before it: a loaded project, whose source then changes."""
    page = ROOT / "README.md"
    text = page.read_text(encoding="utf-8")
    terminal = Terminal(tmp_path, capsys, free_port())
    (tmp_path / "instep.yml").write_text(README_PROJECT)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "call_list.sql").write_text("select name, phone from shop.customer")
    terminal.run(shlex.join(["sqlite3", "shop.db", README_TABLES]))
    terminal.run("instep sync")
    terminal.run(shlex.join(["sqlite3", "shop.db", README_CHANGE]))
    story, head, rest = text.partition("## Quick start")
    found = play(story, terminal)
    if WRITE:
        page.write_text(found + head + rest, encoding="utf-8")


def test_a_command_ends_where_its_quotes_do() -> None:
    [(_, _, _, first), (_, _, _, second)] = steps('```console\n$ sqlite3 a "x;\ny"\n$ instep plan\nnothing\n```\n')
    assert command_of(first) == ('sqlite3 a "x;\ny"', "")
    assert command_of(second) == ("instep plan", "nothing\n")


def test_times_and_ids_may_differ_and_nothing_else() -> None:
    known = "done in 1.1 s, run r-20261128-010334-ded8a5\nmain.orders  3\n"
    assert comparable(known) == comparable("main.orders 3\ndone in 22 s, run r-20270101-000000-aaaaaa\n")
    assert comparable(known) != comparable(known.replace("3\n", "4\n"))
