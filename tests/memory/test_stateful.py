"""Any order of changes, choices, runs and crashes, on a database and a destination of this process over a real store:
the promises hold after every step.

| rule | what happens |
| --- | --- |
| insert, update, delete, update_key, truncate | rows of the source |
| add_column, drop_column, rename_column, swap_columns, widen, retype, change_key, retype_key | its columns |
| create_table, drop_table, recreate_table, rename_table | its tables |
| set_policy, set_backfill | another preset, with or without consent to drop, invalid values held or nulled, backfills |
| exclude_table | a table is left out by a regular expression, or let in again |
| leave_out, hash_column | a column is left out or hashed, or read in clear again |
| set_table | a table is loaded in another way: hard deletes, full refresh, history |
| declare_rename, declare_table_rename | somebody says that what stays behind is now called otherwise |
| approve, reject, answer_all, resume | what people decide |
| set_key | a table gets another key manually: its rows stay, go, or are kept in a copy |
| drift | somebody drops a column of the destination, or adds one |
| undo | an applied change is taken back |
| sync, sync_twice, let_go, plan_and_apply, replay | runs over all tables |
| reload_table, backfill_table, backfill_column | runs of one table |
| crash, crash_undo | a run dies at any crash point, and a new process begins |
| restart | the process ends between two runs |
| detect_twice | two detections look at the same source before either is recorded |

| promise | how it is looked at |
| --- | --- |
| convergence | what a sync says it has done equals the source under the accepted schema ; a wider type stays |
| nothing lost | the same, row by row; columns that stay behind keep their values; a second sync changes nothing |
| nothing doubled | no key stands twice, deleted rows included |
| blocked columns never appear | the destination has accepted columns only, nothing rejected is accepted |
| no drop without a decision | each destructive step has a policy's consent, or a person has named its object |
| versions only grow | numbers without holes, labels in order |
| no cursor ahead of its data | no row of the source up to the cursor is missing; the store's mirror is not ahead |
| nothing is asked twice | one question a change |
| each event once | each change is told once, each applied one is on record |
| what was applied is known | events have a version that exists, in order of time |
| excluded tables are never read | their rows are not asked for |
| the log is whole | numbers without holes |
| no question without a review | what asks for a review has an open one; a table that is not loaded names what stands |

Left out until there is a scheduler: notices, and new keys for stored secrets.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import get_state_machine_test

from memory.machine import Machine, MachineWithoutIds

FIXED = "INSTEP_RANDOM" not in os.environ
EXAMPLES, STEPS, PARTS = 120, 50, 4
MACHINES = (Machine, MachineWithoutIds)


def run(machine: type[Machine], number: int, examples: int, steps: int = STEPS, *, shrinks: bool = True) -> None:
    """The examples of this number, the same each time, so that what has passed passes; others, for those who search,
    with INSTEP_RANDOM=1. Fewer under the profile of the tests that run all the time."""
    share = min(examples, settings().max_examples)
    test = get_state_machine_test(
        machine,
        settings=settings(
            settings(), max_examples=share, stateful_step_count=steps, deadline=None, print_blob=True,
            phases=settings().phases if shrinks else (Phase.generate,),
            database=None if FIXED else settings().database,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
        ),
    )  # fmt: skip
    (seed(number)(test) if FIXED else test)()


@pytest.mark.sampled(PARTS)
@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS // len(MACHINES)))
@pytest.mark.parametrize("machine", MACHINES)
def test_promises_hold(machine: type[Machine], part: int) -> None:
    """Each part is a search of its own, so that two processes can share them."""
    run(machine, part, EXAMPLES // PARTS)
