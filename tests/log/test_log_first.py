"""Tables in `mode: cdc`: what changes at the source comes, and nothing else is read."""

from __future__ import annotations

import pytest
from followed import Followed

from sync_world import counts

pytestmark = pytest.mark.server

SETUP = (
    "CREATE TABLE t (id int PRIMARY KEY, a varchar(20), n decimal(10,2))",
    "INSERT INTO t VALUES (1, 'x', 1.50), (2, NULL, NULL), (3, '', -0.01)",
    "CREATE TABLE pair (a int, b varchar(20), v text, PRIMARY KEY (b, a))",
    "INSERT INTO pair VALUES (1, 'it''s', 'v'), (2, 'back\\slash', 'w')",
)


@pytest.mark.sampled
@pytest.mark.parametrize("either", ["postgres", "mariadb"], indirect=True)
def test_changes_come_and_nothing_else_is_read(either: Followed) -> None:
    world = either
    world.run(*SETUP)
    report = world.sync()
    assert world.statuses(report) == {"t": "done", "pair": "done"}, report
    assert world.differing() == {}
    world.run(
        "UPDATE t SET a = 'y' WHERE id = 2",
        "DELETE FROM t WHERE id = 1",
        "INSERT INTO t VALUES (4, 'z', 0)",
        "UPDATE pair SET b = 'other', v = NULL WHERE a = 1",
    )
    report = world.sync()
    assert counts(report, "t") == (2, 1, 1, 1, 0), report
    assert counts(report, "pair") == (1, 1, 0, 1, 0)
    assert world.differing() == {}
    report = world.sync()
    assert [counts(report, name)[0] for name in ("t", "pair")] == [0, 0]
    assert report.notes == ()
