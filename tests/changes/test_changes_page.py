"""Every kind of change, preset and source: what docs/explanation/what-becomes-of-each-change.md says happens.

`INSTEP_WRITE_PAGES=1 pytest tests/changes` (with `-k` for some of it) writes the page anew; read the difference before
it is committed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from changes.outcome import Outcome, play
from changes.page import PAGE, Cell, read, write
from changes.scenarios import SCENARIOS, SOURCES, Scenario
from contract import sources
from instep.schema.policy.presets import PRESETS, SUSPECTED, choice
from sync_world import World

CELLS = [(scenario, source) for source in SOURCES for scenario in SCENARIOS if source in scenario.change]
pytestmark = [pytest.mark.server, pytest.mark.slow]
WRITE = os.environ.get("INSTEP_WRITE_PAGES") == "1"


@pytest.fixture(scope="session")
def outcomes() -> Iterator[dict[Cell, Outcome]]:
    """What was seen in this session; written as the page if that is asked for."""
    found: dict[Cell, Outcome] = {}
    yield found
    if WRITE and found:
        known = {cell: Outcome(*cells) for cell, cells in read(PAGE.read_text(encoding="utf-8")).items()}
        PAGE.write_text(write(known | found), encoding="utf-8")


def with_ids(request: pytest.FixtureRequest, case: sources.Case) -> sources.Case:
    """MariaDB shows the ids of its tables to users with the right PROCESS."""
    if case.kind != "mysql":
        return case
    from instep.sources.mysql.source import MySqlSource

    database = request.getfixturevalue("mariadb")
    config = database.admin.model_copy(update={"database": database.config.database})
    return replace(
        case, source=lambda **options: MySqlSource(config.model_copy(update={"include": options["include"]}))
    )


def expected(scenario: Scenario, kind: str, source: str, preset: str) -> str:
    """What the table of presets says, with the kind's name where the step is seen as several kinds."""
    asked = len(scenario.kinds[source]) > 1
    action = choice(kind, preset).action
    if asked and choice(SUSPECTED, preset).action == "review":
        action = choice(SUSPECTED, preset).action
    return f"{kind}: {action}" if len(scenario.kinds[source]) > 1 else action


@pytest.mark.sampled(8)
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize(("scenario", "source"), CELLS, ids=lambda v: getattr(v, "name", v))
def test_what_becomes_of_a_change(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    outcomes: dict[Cell, Outcome],
    scenario: Scenario,
    source: str,
    preset: str,
) -> None:
    with ExitStack() as stack:
        case = with_ids(request, stack.enter_context(sources.SOURCES[source](request)))
        world = World(case, tmp_path, engine="local")
        stack.callback(world.close)
        outcome = play(world, scenario, preset)
    outcomes[scenario.name, source, preset] = outcome
    for kind in scenario.kinds[source]:
        assert expected(scenario, kind, source, preset) in outcome.decision, f"{kind} is not decided as presets say"
    if not WRITE:
        assert outcome.cells() == read(PAGE.read_text(encoding="utf-8"))[scenario.name, source, preset]
