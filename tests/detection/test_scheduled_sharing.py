"""One look at a source serves all its connections; what asks for a new one gets it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from detection_world import ALL_ON, Base

from instep.control import detector

pytestmark = pytest.mark.slow

COLUMN = "alter table item add column vat integer"


@pytest.fixture
def three(base: Base) -> Base:
    base.names = ("a", "b", "c")
    base.write(ALL_ON)
    for name in base.names:
        assert base.do("sync", name).error == ""
    base.turn(hours=2)
    base.did.clear()
    return base


def shared(base: Base) -> list[bool]:
    found = [ended.result["shared"] for _, ended in base.did]
    base.did.clear()
    return found


def test_all_are_due_at_once_and_one_looks(three: Base) -> None:
    three.sql(COLUMN)
    jobs = three.turn(hours=1)
    assert sorted(job.connection for job in jobs) == ["a", "b", "c"]
    assert [ended.error for _, ended in three.did] == [""] * 3
    assert shared(three) == [False, True, True]
    assert [three.lake(name)["item"] for name in three.names] == [["at", "id", "price", "vat"]] * 3
    three.turn(hours=1)
    assert shared(three) == [False, True, True]  # nothing has changed: one look found that out for all


def test_the_others_do_not_reach_for_the_source(three: Base) -> None:
    assert three.do("detect", "a").error == ""
    name = three.database.config.database
    admin = replace(three.database, config=three.database.config.model_copy(update={"database": "postgres"}))
    admin.execute(f'alter database "{name}" allow_connections false')
    try:
        with three.app() as app:
            job, _ = app.store.jobs.enqueue("b", "detect", options={"apply": True})
            three._work(app)
    finally:
        admin.execute(f'alter database "{name}" allow_connections true')
    assert three.did[-1][0].id == job.id
    assert three.did[-1][1].error == ""
    assert three.did[-1][1].result["shared"] is True


# who asks | seconds since the look of another connection | whether that serves
SERVES = [
    ("schedule", 59, True),
    ("schedule", 61, False),
    ("error", 1, False),
    ("person", 1, False),
]


@pytest.mark.parametrize(("by", "seconds", "serves"), SERVES)
def test_whom_a_look_serves(three: Base, by: str, seconds: int, serves: bool) -> None:
    assert three.do("detect", "a").error == ""
    three.did.clear()
    three.sql(COLUMN)
    with three.app() as app:
        three.now += timedelta(seconds=seconds)
        match by:
            case "person":
                detector.ask(app.store, app.project, "b", "ann")
            case "error":
                detector.on_error(app.store, app.project, "b")
            case _:
                app.store.jobs.enqueue("b", "detect", options={"apply": True})
        three._work(app)
    assert three.did[-1][1].error == ""
    assert shared(three) == [serves]
    assert ("vat" in three.lake("b")["item"]) is not serves


def test_errors_of_many_connections_are_one_look(three: Base) -> None:
    three.sql(COLUMN)
    with three.app() as app:
        for name in three.names:
            assert detector.on_error(app.store, app.project, name) is not None
        three._work(app)
    assert shared(three) == [False, True, True]


def test_another_setting_of_the_source_is_another_source(three: Base) -> None:
    file = three.folder / "instep.yml"
    assert three.do("detect", "a").error == ""
    three.did.clear()
    file.write_text(file.read_text().replace("type: postgres,", "type: postgres, connect_timeout: 7,"))
    with three.app() as app:
        app.store.jobs.enqueue("b", "detect", options={"apply": True})
        three._work(app)
    assert shared(three) == [False]
