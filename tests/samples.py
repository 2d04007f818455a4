"""Covering samples: of a test with many dear cases a part runs each time, chosen by the commit.

`@pytest.mark.sampled` on a test with parameters:
- of several parameters: so many cases that each combination of all but one of them occurs (two: each value of each;
  three: each pair), in the combinations that the commit chooses;
- of one parameter: one case in four;
- with a number (`sampled(10)`): one case in so many, whatever the parameters are.

`@pytest.mark.drawn(n)` on a test, a class, a module (`pytestmark`) or a parameter of a fixture: of the tests of a file
that have it, cases counted as tests, one in so many runs. The mark that is nearest to a test counts; `drawn(1)` runs
always. With `together=True` all of them run, or none: for those that share what is dear, like a cluster.

A test with neither mark is drawn as by `drawn(4)` where it is slow, or lies in one of the folders that are DEAR and
uses any fixture that is not LIGHT: a folder, a server, a session of Spark. Say `drawn(1)` of one that alone would see
that data is lost, and `drawn(5)` or more of the dear variants of one behaviour.

Where a part of a test's cases is slow, the two parts are sampled each for itself: `make test` and `make test-slow` both
run some.

A test that is named on the command line (`file.py::test`) runs whole, and so does everything with INSTEP_FULL=1
(`make test-all`). INSTEP_SAMPLE=text chooses the sample of another commit: a failure is seen again with what the last
line of the run says.
"""

from __future__ import annotations

import itertools
import os
import random
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

FULL = bool(os.environ.get("INSTEP_FULL"))
"""Whether all cases run."""
ONE_IN = 6
"""Of how many cases one runs, of a test with one parameter."""
DRAWN_ONE_IN = 4
"""Of how many tests that are slow or dear one runs, of those that say nothing else."""
DEAR = {
    "airbyte", "api", "cli", "connector", "contract", "control", "destinations", "engine", "faults", "log", "python",
    "remote", "rollouts", "shards", "sources", "spark", "sync", "web", "worker",
}  # fmt: skip
"""Folders whose tests take most of the time."""
LIGHT = {"logs_as_they_were", "request", "monkeypatch", "capsys", "caplog", "recwarn"}
"""Fixtures that take no time: a test with no other one computes."""


@cache
def seed() -> str:
    """What chooses this run's samples: INSTEP_SAMPLE, else the commit, else (outside of Git) nothing at all."""
    if said := os.environ.get("INSTEP_SAMPLE"):
        return said
    command = ["git", "rev-parse", "--short=12", "HEAD"]
    try:
        found = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    except OSError:
        return "none"
    return found.stdout.strip() or "none"


def chosen(cases: list[tuple[int, ...]], name: str, one_in: int = 0) -> set[int]:
    """Choose of cases, each the number of its value on every axis, those that run, as positions in `cases`.

    `name` is the test's; `one_in` is what its mark says.
    """
    order = list(range(len(cases)))
    random.Random(f"{seed()} {name}").shuffle(order)
    axes = len(cases[0])
    if one_in or axes < 2:
        return set(order[: max(1, len(order) // (one_in or ONE_IN))])
    kept, seen = set(), set()
    for position in order:
        case = cases[position]
        covers = {(at, tuple(case[axis] for axis in at)) for at in itertools.combinations(range(axes), axes - 1)}
        if covers - seen:
            kept.add(position)
            seen |= covers
    return kept


def left_out(items: Sequence[pytest.Item]) -> set[pytest.Item]:
    """Name the cases of sampled tests that do not run."""
    tests: dict[tuple[str, bool], list[pytest.Function]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("sampled") and hasattr(item, "callspec"):
            name = item.nodeid.partition("[")[0]
            tests.setdefault((name, item.get_closest_marker("slow") is not None), []).append(item)
    out = set[pytest.Item]()
    for (name, _), cases in tests.items():
        mark = cases[0].get_closest_marker("sampled")
        assert mark is not None
        kept = chosen(_axes(cases), name, *mark.args)
        out.update(case for position, case in enumerate(cases) if position not in kept)
    families: dict[tuple[str, bool, int, bool], list[pytest.Item]] = {}
    for item in items:
        if item not in out:
            file, slow = item.nodeid.partition("::")[0], item.get_closest_marker("slow") is not None
            families.setdefault((file, slow, *_drawn_as(item)), []).append(item)
    for (file, slow, one_in, together), family in families.items():
        kept = drawn(len(family), f"{file} {slow}", one_in, together=together)
        out.update(one for position, one in enumerate(family) if position not in kept)
    return out


def drawn(count: int, name: str, one_in: int, *, together: bool = False) -> set[int]:
    """Draw one in so many of `count` tests, as their positions: always as many of them, give or take one."""
    dice = random.Random(f"{seed()} {name} {one_in}")
    if together:
        return set() if dice.randrange(one_in) else set(range(count))
    return set(dice.sample(range(count), int(count / one_in + dice.random())))


def _drawn_as(item: pytest.Item) -> tuple[int, bool]:
    """Return of how many such tests one runs, and whether they run together."""
    if mark := item.get_closest_marker("drawn"):
        return mark.args[0], mark.kwargs.get("together", False)
    if item.get_closest_marker("sampled"):
        return 1, False
    is_dear = item.path.parent.name in DEAR and _fixtures(item) - LIGHT
    return (DRAWN_ONE_IN if is_dear or item.get_closest_marker("slow") else 1), False


def _fixtures(item: pytest.Item) -> set[str]:
    """Name the fixtures that a test uses, without the names that `parametrize` gives values."""
    values = {name for mark in item.iter_markers("parametrize") for name in _names(mark)}
    return set(getattr(item, "fixturenames", ())) - values


def _names(mark: pytest.Mark) -> tuple[str, ...]:
    names = mark.args[0]
    return tuple(n.strip() for n in names.split(",")) if isinstance(names, str) else tuple(names)


def _axes(cases: list[pytest.Function]) -> list[tuple[int, ...]]:
    """Number the values of each case; parameters that change together are one axis, one with one value is none.

    The values are compared themselves: beside a fixture with parameters, pytest counts those of a mark over all cases.
    """
    marked = [_names(mark) for mark in cases[0].iter_markers("parametrize")]
    others = cases[0].callspec.params.keys() - {name for names in marked for name in names}
    columns = {_numbered(cases, names) for names in (*marked, *((name,) for name in others))}
    axes = sorted(column for column in columns if len(set(column)) > 1)
    return list(zip(*axes, strict=True)) if axes else [(position,) for position in range(len(cases))]


def _numbered(cases: list[pytest.Function], names: tuple[str, ...]) -> tuple[int, ...]:
    """Number the values that the cases have for these parameters, in the order in which they come."""
    numbers: dict[tuple[int, ...], int] = {}
    values = (tuple(id(case.callspec.params.get(name)) for name in names) for case in cases)
    return tuple(numbers.setdefault(value, len(numbers)) for value in values)
