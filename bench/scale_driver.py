"""A process that carries out operations by name, with one Spark session: what bench/scale.py measures.

python scale_driver.py PROJECT_FOLDER

Reads a name a line, and answers each with a line of JSON: `result`, or `error`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence

import instep
import project
from instep.python.connection import Connection

TABLE = "shop.narrow"
Action = Callable[[instep.Project], object]


def sync(place: instep.Project, name: str = project.CONNECTION, *, full: bool = False) -> object:
    done = place.connection(name).sync(full=full).raise_for_failure()
    return [(one.mode, one.inserted, one.updated) for one in done.tables]


def scale(place: instep.Project) -> Connection:
    return place.connection(project.CONNECTION)


def verify(place: instep.Project) -> object:
    (verdict,) = scale(place).verify()
    if not verdict.equal:
        raise SystemExit(f"bench: the destination differs: {verdict}")
    return verdict.destination_rows


ACTIONS: Mapping[str, Action] = {
    "sync another": lambda place: sync(place, project.BEFORE),
    "sync": sync,
    "sync in full": lambda place: sync(place, full=True),
    "backfill": lambda place: scale(place).table(TABLE).backfill(["more"]).status,
    "detect": lambda place: [change.summary for change in scale(place).detect().changes],
    "approve": lambda place: place.approve(scale(place).changes()),
    "apply": lambda place: scale(place).plan().apply(),
    "verify": verify,
    "count": lambda place: scale(place).quarantine.counts(),
}


def main(arguments: Sequence[str]) -> int:
    with instep.open(arguments[0]) as place:
        for line in sys.stdin:
            try:
                answer = {"result": repr(ACTIONS[line.strip()](place))}
            except Exception as error:  # the one who asks ends it all
                answer = {"error": f"{type(error).__name__}: {error}"}
            print(json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
