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
        stand = [side.connection().tables() for side in (near, far)]
        facts = [[(t.table, t.destination, t.mode, t.key, t.rows, t.columns) for t in one] for one in stand]
        assert facts[0] == facts[1] == [("main.item", "shop.item", "upsert", ("id",), 2, 3)]
        assert all(one.last_run and one.last_run.at and one.last_run.at.tzinfo for side in stand for one in side)
        columns = [side.connection().table("main.item").columns() for side in (near, far)]
        told = [[(c.column, c.source_type, c.status, c.key) for c in one] for one in columns]
        assert told[0] == told[1]
        assert len(near.connection().table("main.item").preview(1)) == 1
        with pytest.raises(ProjectError, match="`preview` works only in the project"):
            far.connection().table("main.item").preview(1)
        assert [c.name for c in near.connections] == [c.name for c in far.connections]
        with pytest.raises(ProjectError, match="rows do not pass through a server"):
            far.query("select 1")
