"""A row filter over a table that follows the log: rows enter and leave it by changes that the log tells."""

from __future__ import annotations

import pytest
from followed import LOG, Followed

from sync_world import counts

pytestmark = pytest.mark.server


def test_rows_enter_and_leave_by_the_log(either: Followed) -> None:
    world = either
    world.settings["t"] = LOG.model_copy(update={"filter": "state = 'open'"})
    world.run(
        "CREATE TABLE t (id int PRIMARY KEY, state text)",
        "INSERT INTO t VALUES (1, 'open'), (2, 'shut'), (3, 'open'), (4, 'shut')",
    )
    world.sync()
    world.sync()
    world.run(
        "UPDATE t SET state = 'shut' WHERE id = 1", "UPDATE t SET state = 'open' WHERE id = 2",
        "DELETE FROM t WHERE id = 3", "UPDATE t SET state = NULL WHERE id = 4", "INSERT INTO t VALUES (5, 'shut')",
    )  # fmt: skip
    report = world.sync()
    assert (world.rows("t", "id"), counts(report, "t")[0]) == ([(2,)], 1)
    assert world.differing() == {}
    world.settings["t"] = LOG.model_copy(update={"filter": "state = 'shut'"})
    world.sync()
    assert world.rows("t", "id") == [(1,), (5,)]
    assert world.differing() == {}
