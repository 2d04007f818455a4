"""The steps of a detection: two read, two are functions of what was read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from instep.sync.detection.comparison import DetectionInputs, compare, gather
from instep.sync.detection.detect import decide_changes, detect, sample
from sync_world import World


class Untouchable:
    """Stands where nothing is to be read."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} was read")


def sealed(inputs: DetectionInputs) -> DetectionInputs:
    nothing: Any = Untouchable()
    return replace(inputs, context=replace(inputs.context, store=nothing, source=nothing, destination=nothing))


BEFORE = (
    "CREATE TABLE t (id int PRIMARY KEY, a text, b int, c int)",
    "INSERT INTO t SELECT g, 'x' || g, g, g FROM generate_series(1, 50) g",
    "CREATE TABLE gone (id int PRIMARY KEY)",
)
CHANGES = {
    "nothing": (),
    "columns come and go": ("ALTER TABLE t ADD more text", "ALTER TABLE t DROP c"),
    "a new column looks personal": ("ALTER TABLE t ADD email text",),
    "a type is widened": ("ALTER TABLE t ALTER b TYPE bigint",),
    "a type is another one": ("ALTER TABLE t ALTER b TYPE text",),
    "a column is renamed": ("ALTER TABLE t RENAME a TO z",),
    "a table goes, another comes": ("DROP TABLE gone", "CREATE TABLE fresh (id int PRIMARY KEY, v int)"),
    "the key moves": ("ALTER TABLE t DROP CONSTRAINT t_pkey", "ALTER TABLE t ADD PRIMARY KEY (id, b)"),
    "all at once": ("ALTER TABLE t RENAME a TO z", "ALTER TABLE t ALTER b TYPE text", "DROP TABLE gone"),
}


@pytest.mark.sampled
@pytest.mark.parametrize("statements", CHANGES.values(), ids=CHANGES)
def test_comparing_and_deciding_read_nothing(world: World, statements: tuple[str, ...]) -> None:
    world.run(*BEFORE)
    world.sync()
    if statements:
        world.run(*statements)
    context = world.context
    discovery = context.source.discover()
    inputs = gather(context, discovery, stored=False, recalled=False)
    comparison = compare(sealed(inputs))
    evidence = sample(inputs, comparison, None, context.source.snapshot)
    found = decide_changes(sealed(inputs), comparison, evidence, count=True, stored=False)
    whole = detect(context, discovery)
    assert found.decisions == whole.decisions
    assert (found.counts, found.proposals, found.stale) == (whole.counts, whole.proposals, whole.stale)
    assert bool(found.decisions) is bool(statements)
