"""The Python API over a real server: the same calls, done by its workers."""

from __future__ import annotations

from dataclasses import asdict

import pytest
from remote_world import Twins

import instep
from instep.errors import ProjectError


def test_both_sides_answer_the_same(twins: Twins) -> None:
    twins.sql("alter table item add column size integer")
    with instep.open(twins.near.folder) as near, instep.connect(twins.far.url, twins.far.key) as far:
        done = [side.connection().sync() for side in (near, far)]
        kinds = [[(t.table, t.status, t.read, t.inserted) for t in one.tables] for one in done]
        assert kinds[0] == kinds[1]
        assert [one.status for one in done] == ["done", "done"]
        twins.sql("alter table item drop column size")
        plans = [side.connection().plan() for side in (near, far)]
        assert plans[0].lines == plans[1].lines
        verdicts = [[asdict(v) for v in side.connection().verify()] for side in (near, far)]
        assert [v["equal"] for v in verdicts[0]] == [v["equal"] for v in verdicts[1]]
        assert [c.name for c in near.connections] == [c.name for c in far.connections]
        with pytest.raises(ProjectError, match="rows do not pass through a server"):
            far.query("select 1")
