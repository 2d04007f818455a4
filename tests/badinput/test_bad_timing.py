"""Two syncs at once, an interrupt, a pipe that closes: as subprocesses, because signals matter."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import psutil
from commands import Place
from marks import SERVER

from instep.crash import VARIABLE
from postgres_server import Database

INSTEP = Path(sys.executable).with_name("instep")


def start(place: Place, *words: str, crash: str = "", environment: Mapping[str, str] = {}) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [INSTEP, "--project", place.folder, *words], env={**os.environ, VARIABLE: crash, **environment}, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # tests in the background ignore it
    )  # fmt: skip


def stands(process: subprocess.Popen[str]) -> None:
    ends = time.monotonic() + 600
    while psutil.Process(process.pid).status() != psutil.STATUS_STOPPED:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < ends
        time.sleep(0.05)


class TestAtOnce:
    pytestmark = SERVER

    def test_two_syncs(self, place: Place, postgres: Database) -> None:
        """The second is refused at once and changes nothing; the first goes on; each of the other verbs too."""
        postgres.execute("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)")
        place.over(postgres)
        first = start(place, "sync", crash="sync.planned=stop")
        stands(first)
        for words in (["sync"], ["backfill", "public.t"], ["apply", "--yes"]):
            told = place.run(*words)
            if words[0] == "apply" and told.code == 0:
                told.has("nothing to apply")
                continue
            told.is_error(5, "shop", "sync is running since", f"process {first.pid}", "wait")
        os.kill(first.pid, signal.SIGCONT)
        out, err = first.communicate(timeout=600)
        assert first.returncode == 0, out + err
        assert place.rows("select id from shop.t") == [{"id": 1}]

    def test_an_interrupt(self, place: Place, postgres: Database) -> None:
        """Ctrl-C: exit 130, one line, and the next sync is whole."""
        postgres.execute("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)")
        place.over(postgres)
        first = start(place, "sync", crash="sync.staged=stop")
        stands(first)
        first.send_signal(signal.SIGINT)
        first.send_signal(signal.SIGCONT)
        out, err = first.communicate(timeout=600)
        assert first.returncode == 130, out + err
        assert "interrupted" in err
        assert "Traceback" not in out + err
        status = place.run("status", "--output", "json").json["connections"][0]
        assert status["last_run"]["status"] == "cancelled"
        second = start(place, "sync")
        out, err = second.communicate(timeout=600)
        assert second.returncode == 0, out + err
        assert place.run("verify").code == 0


def test_a_pipe_that_closes(place: Place, postgres: Database) -> None:
    """`instep source discover | head -1`"""
    postgres.execute("; ".join(f"CREATE TABLE t{i} (id int)" for i in range(400)))
    process = start(place.over(postgres), "source", "discover", "--columns")
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    said = process.stderr.read()
    assert process.wait(300) in (0, 141)
    assert "Traceback" not in said
    process.stderr.close()
