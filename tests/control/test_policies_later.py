"""Every pair of presets, before and after the first sync: what the selection lists is what the next sync reads."""

from __future__ import annotations

import pytest
from selection_desk import Desk, desk

from instep.schema.policy.presets import PRESETS

__all__ = ["desk"]
LET_IN = {"allow_all": (True, True), "propagate_all": (True, True), "allow_columns": (False, True),
          "propagate_columns": (False, True)}  # fmt: skip
"""Whether a preset lets in (a new table, a new column)."""
LEFT_OUT = {"allow_columns": (True, False), "propagate_columns": (True, False), "block_all": (True, True)}
"""Whether a preset lists off (a new table, a new column)."""
PAIRS = [(first, second) for first in PRESETS for second in PRESETS]


def listed(desk: Desk) -> tuple[bool, bool]:
    tables = desk.tree(columns=True)["schemas"]["main"]["tables"]
    return tables["late"]["enabled"], tables["table_1"]["columns"]["c"]["enabled"]


def read(desk: Desk) -> tuple[bool, bool]:
    found = desk.reads()
    return "late" in found, "c" in found["table_1"]


@pytest.mark.drawn(3)
@pytest.mark.sampled
@pytest.mark.parametrize("accepted", [False, True])
@pytest.mark.parametrize(
    ("first", "second"), [pytest.param(*p, marks=() if n % 5 == 0 else pytest.mark.slow) for n, p in enumerate(PAIRS)]
)
def test_what_is_listed_is_what_is_read(desk: Desk, first: str, second: str, accepted: bool) -> None:
    desk.detect(apply=accepted)
    desk.write(first)
    desk.sql("create table late (id integer primary key); alter table table_1 add column c text")
    desk.detect(apply=False)
    before = listed(desk)
    assert before == LET_IN.get(first, (False, False))
    desk.write(second)
    off, lets = LEFT_OUT.get(first, (False, False)), LET_IN.get(second, (False, False))
    expected = tuple(not o and let for o, let in zip(off, lets, strict=True))
    said = listed(desk)
    assert said == expected, "as the policy of today says, but for what was left out"
    if first != "stop":  # a pause of that preset ends by a person
        desk.detect(apply=second != "stop")
    assert listed(desk) == said
    if first != "stop" and second != "stop":
        assert read(desk) == said
