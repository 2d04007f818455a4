"""What other processes do in the tests of claims; imported by spawned children."""

from __future__ import annotations

import sys
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path

from store_world import catalog

from instep.errors import RunInProgress
from instep.store.store import Store


def claim_at_once(url: str, barrier: Barrier, rounds: int, answers: str) -> None:
    """Claims in step with others, `rounds` times; writes one line per round: the fence, or busy."""
    with Store(url) as store, Path(answers).open("w") as out:
        for _ in range(rounds):
            barrier.wait(300)
            try:
                run = store.runs.claim("c", "sync", "racer")
            except RunInProgress:
                run = None
            out.write(f"{run.fence}\n" if run else "busy\n")
            barrier.wait(300)
            if run:
                store.runs.finish(run, "done")


def open_at_once(url: str, barrier: Barrier) -> None:
    """Makes the tables of a new database in step with others."""
    barrier.wait(300)
    with Store(url) as store:
        store.events.last_number()


def count_up(url: str, rounds: int) -> None:
    """Reads and writes in one transaction, many times: lost updates would show."""
    with Store(url) as store:
        for _ in range(rounds):
            with store.transaction():
                before = store.accepted.latest("c")
                number, base = (before.version, before.fingerprint) if before else (0, "")
                store.accepted.add("c", catalog(f"t{number}"), who="x", why="y", base=base)


def hold(url: str) -> None:
    """Claims a run, says so, and never ends it."""
    with Store(url) as store:
        print(store.runs.claim("c", "backfill", "victim").id, flush=True)
        time.sleep(300)


def hold_lock(url: str) -> None:
    """Keeps a write transaction open."""
    with Store(url) as store, store.transaction():
        store.pauses.pause("c", "lock")
        print("locked", flush=True)
        time.sleep(300)


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2])
