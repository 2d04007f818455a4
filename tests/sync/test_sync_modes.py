# ruff: noqa: S608 - statements of this file
"""How rows arrive: whole tables, appends and upserts by a cursor, deletes, and what stays of columns that went."""

from __future__ import annotations

from typing import Any

import pytest

from instep.project.sections.tables import TableSettings
from instep.schema.policy.policy import Policy
from instep.schema.selection.selection import Selection, patterns
from lake import SPARK
from sync_world import MakeWorld, World, counts, cursor, preset

pytestmark = pytest.mark.drawn(1)

KINDS = ("postgres", "mysql", "sqlite")
CURSORS = {
    "int": ("int", "9", "10", "100", 0.0),
    "decimal": ("decimal(20,6)", "10.5", "20.25", "30.125", 0.0),
    "date": ("date", "'2024-01-01'", "'2024-01-02'", "'2024-01-03'", 0.0),
    "timestamp": ("timestamp", "'2024-01-01 00:00:00.000001'", "'2024-01-01 00:00:01'", "'2024-01-01 00:00:02'", 0.0),
}


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("kind", "engine"), [("postgres", "local"), ("mysql", "local"), pytest.param("postgres", "spark", marks=SPARK)]
)
def test_append_reads_from_the_last_value_on(make_world: MakeWorld, kind: str, engine: str) -> None:
    world = make_world(kind, engine=engine)
    if kind == "mysql":
        world.run("SET GLOBAL explicit_defaults_for_timestamp = ON")
    for name, (column, one, two, _, _) in CURSORS.items():
        column = column.replace("timestamp", "datetime(6)") if kind == "mysql" else column
        world.settings[f"t_{name}"] = TableSettings(cursor="c")
        world.run(
            f"CREATE TABLE t_{name} (c {column} NOT NULL, v int)", f"INSERT INTO t_{name} VALUES ({one}, 1), ({two}, 2)"
        )
    world.sync()
    for name, (_, one, two, three, _) in CURSORS.items():
        world.run(f"INSERT INTO t_{name} VALUES ({two}, 3), ({three}, 4), ({one}, 5)")
    report = world.sync()
    for name in CURSORS:
        assert counts(report, f"t_{name}")[:2] == (3, 3), name
        assert [v for _, v in sorted(world.rows(f"t_{name}", "c", "v"), key=lambda r: r[1])] == [1, 2, 3, 4], name
    again = world.sync()
    assert {counts(again, f"t_{name}")[0] for name in CURSORS} <= {0, 1}
    assert all(len(world.rows(f"t_{name}")) == 4 for name in CURSORS)
    assert set(world.differing()) == {f"t_{name}" for name in CURSORS}
    world.sync(full=True)
    assert world.differing() == {}


@pytest.mark.sampled
@pytest.mark.parametrize("deletes", ["soft", "hard", "ignore"])
def test_rows_that_were_appended_are_not_merged_beside_their_versions(make_world: MakeWorld, deletes: Any) -> None:
    """An append keeps what a row was; a merge by key would leave that where the row does not change any more."""
    world = make_world()
    world.run("CREATE TABLE t (id int PRIMARY KEY, n int, v text)", "INSERT INTO t VALUES (1, 1, 'a'), (2, 2, 'b')",
              "CREATE TABLE u (id int PRIMARY KEY, n int)", "INSERT INTO u VALUES (1, 1)")  # fmt: skip
    world.settings = dict.fromkeys("tu", TableSettings(mode="append", cursor="n"))
    world.sync()
    world.run("UPDATE t SET n = 3, v = 'c' WHERE id = 1", "INSERT INTO u VALUES (2, 2)")
    world.sync()
    assert world.rows("t", "id", "v") == [(1, "a"), (1, "c"), (2, "b")]
    world.settings = dict.fromkeys("tu", TableSettings(mode="upsert", cursor="n", deletes=deletes))
    for _ in range(2):
        report = world.sync()
        assert world.statuses(report) == {"t": "failed", "u": "done"}
        [error] = [t.error for t in report.tables if t.error]
        assert "1 of its rows are earlier versions of others" in error
    world.run("INSERT INTO t VALUES (3, 4, 'd')")
    if deletes == "ignore":  # what the source has deleted stays, so that nothing is laid down anew
        world.settings["t"] = TableSettings(mode="upsert", cursor="n")
    assert world.sync(kind="backfill", full=True, tables=frozenset({"public.t"})).status == "done"
    assert world.sync().status == "done"
    assert (world.rows("t", "id", "v"), world.differing()) == ([(1, "c"), (2, "b"), (3, "d")], {})


def test_append_looks_back(world: World) -> None:
    world.settings["t"] = TableSettings(cursor="c", lookback=3600)
    world.run(
        "CREATE TABLE t (c timestamptz NOT NULL, v int)",
        "INSERT INTO t VALUES ('2024-01-01 10:00Z', 1), ('2024-01-01 12:00Z', 2)",
    )
    world.sync()
    world.run("INSERT INTO t VALUES ('2024-01-01 11:30Z', 3), ('2024-01-01 10:30Z', 4)", "DELETE FROM t WHERE v = 2")
    world.run("INSERT INTO t VALUES ('2024-01-01 12:00:01Z', 5)")
    world.sync()
    assert sorted(v for (v,) in world.rows("t", "v")) == [1, 3, 5]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("kind", "engine"), [*((k, "local") for k in KINDS), pytest.param("postgres", "spark", marks=SPARK)]
)
def test_upsert_by_cursor_sees_updates_and_deletes(make_world: MakeWorld, kind: str, engine: str) -> None:
    world = make_world(kind, engine=engine)
    for deletes in ("soft", "hard", "ignore"):
        name = f"t_{deletes}"
        world.settings[name] = cursor("c", deletes=deletes)  # type: ignore[arg-type]
        world.run(f"CREATE TABLE {name} (id int PRIMARY KEY, c int NOT NULL, v int)")
        world.run(f"INSERT INTO {name} VALUES (1, 1, 1), (2, 2, 2), (3, 3, 3), (4, 3, 4)")
    world.sync()
    for name in world.settings:
        world.run(
            f"DELETE FROM {name} WHERE id = 2",
            f"UPDATE {name} SET c = 4, v = 9 WHERE id = 1",
            f"INSERT INTO {name} VALUES (5, 3, 5)",
        )
    report = world.sync()
    assert counts(report, "t_soft") == (4, 1, 1, 1, 0)
    assert counts(report, "t_hard") == (4, 1, 1, 1, 0)
    assert counts(report, "t_ignore") == (4, 1, 1, 0, 0)
    live = [(1, 4, 9), (3, 3, 3), (4, 3, 4), (5, 3, 5)]
    assert world.rows("t_soft") == world.rows("t_hard") == live
    assert world.rows("t_ignore") == [live[0], (2, 2, 2), *live[1:]]
    assert world.rows("t_soft", deleted=True) == [live[0], (2, 2, 2), *live[1:]]
    assert (world.differing(), world.verify()["t_ignore"].retained) == ({}, 1)
    for name in world.settings:
        world.run(f"INSERT INTO {name} VALUES (2, 9, 8)")
    world.sync()
    assert world.rows("t_soft")[1] == world.rows("t_hard")[1] == world.rows("t_ignore")[1] == (2, 9, 8)
    assert world.differing() == {}


@pytest.mark.sampled
@pytest.mark.parametrize("deletes", ["soft", "hard", "ignore"])
def test_whole_table_compare(world: World, deletes: str) -> None:
    world.settings["t"] = TableSettings(deletes=deletes)  # type: ignore[arg-type]
    world.run("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 1), (2, NULL), (3, 3)")
    world.sync()
    world.run(
        "DELETE FROM t WHERE id = 1",
        "UPDATE t SET v = 5 WHERE id = 2",
        "UPDATE t SET v = NULL WHERE id = 3",
        "INSERT INTO t VALUES (4, 4)",
    )
    report = world.sync()
    assert counts(report, "t") == (3, 1, 2, int(deletes != "ignore"), 0)
    assert world.rows("t", deleted=True) == [*([] if deletes == "hard" else [(1, 1)]), (2, 5), (3, None), (4, 4)]
    assert counts(world.sync(), "t")[1:] == (0, 0, 0, 0)
    world.run("INSERT INTO t VALUES (1, 1)")
    world.sync()
    assert world.differing() == {}
    world.sync(full=True)
    assert world.differing() == {}
    world.run("DELETE FROM t WHERE id = 4")
    world.sync()
    world.sync(full=True, kind="backfill", tables=frozenset({"public.t"}))
    assert ((4, 4) in world.rows("t", deleted=True)) == (deletes != "hard")


def test_a_cursor_with_nulls_reads_everything_and_says_so(world: World) -> None:
    world.settings["t"] = cursor("c")
    world.run("CREATE TABLE t (id int PRIMARY KEY, c int, v int)", "INSERT INTO t VALUES (1, 1, 1), (2, NULL, 2)")
    world.sync()
    world.run("UPDATE t SET v = 3 WHERE id = 2", "UPDATE t SET v = 3, c = 0 WHERE id = 1")
    report = world.sync()
    assert world.rows("t") == [(1, 0, 3), (2, None, 3)]
    assert report.notes == ("public.t: 1 rows have no c: the whole table is read, they would be missed",)
    world.run("UPDATE t SET c = 5 WHERE id = 2")
    world.sync()
    world.run("UPDATE t SET c = 6, v = 7 WHERE id = 1")
    report = world.sync()
    assert (report.notes, counts(report, "t")[0]) == ((), 2)
    assert world.differing() == {}


def test_a_cursor_that_goes_back_reads_everything(world: World) -> None:
    world.settings["t"] = cursor("c")
    world.run("CREATE TABLE t (id int PRIMARY KEY, c timestamptz NOT NULL, v int)")
    world.run("INSERT INTO t VALUES (1, '2024-01-02Z', 1), (2, '2024-01-03Z', 2)")
    world.sync()
    world.run("UPDATE t SET c = '2023-01-01Z', v = 5")
    report = world.sync()
    assert "went back from" in report.notes[0]
    assert world.differing() == {}
    world.run("UPDATE t SET c = '2023-01-02Z', v = 6 WHERE id = 1")
    report = world.sync()
    assert (report.notes, counts(report, "t")[:3]) == ((), (1 + 1, 0, 1))
    assert world.differing() == {}
    world.run("DELETE FROM t")
    world.sync()
    assert world.rows("t") == []
    world.run("INSERT INTO t VALUES (7, '2023-01-01Z', 7)")
    world.sync()
    assert world.differing() == {}


def test_upsert_looks_back(world: World) -> None:
    world.settings["t"] = cursor("c", lookback=2, deletes="ignore")
    world.run(
        "CREATE TABLE t (id int PRIMARY KEY, c int NOT NULL, v int)",
        "INSERT INTO t VALUES (1, 10, 1), (2, 8, 1), (3, 7, 1)",
    )
    world.sync()
    world.run("UPDATE t SET v = 2")
    report = world.sync()
    assert counts(report, "t") == (2, 0, 2, 0, 0)
    assert world.rows("t", "id", "v") == [(1, 2), (2, 2), (3, 1)]


def test_a_column_added_under_a_cursor_waits_for_its_backfill(world: World) -> None:
    world.settings["t"] = cursor("c")
    world.run("CREATE TABLE t (id int PRIMARY KEY, c int NOT NULL)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    world.sync()
    world.run("ALTER TABLE t ADD v int DEFAULT 7", "INSERT INTO t VALUES (3, 3, 8)")
    assert "rows that do not change keep NULL" in world.preview().partial[0]
    world.sync()
    assert world.rows("t", "id", "v") == [(1, None), (2, 7), (3, 8)]
    world.sync(kind="backfill", full=True, tables=frozenset({"public.t"}))
    assert world.rows("t", "id", "v") == [(1, 7), (2, 7), (3, 8)]
    assert world.differing() == {}


def test_a_policy_may_ask_for_the_backfill(world: World) -> None:
    world.settings["t"] = cursor("c")
    world.policy = preset("allow_all", backfill="column")
    world.run(
        "CREATE TABLE t (id int PRIMARY KEY, c int NOT NULL, old int)", "INSERT INTO t VALUES (1, 1, 5), (2, 2, 5)"
    )
    world.sync()
    world.run("ALTER TABLE t DROP old")
    world.sync()
    world.run("ALTER TABLE t ADD v int DEFAULT 7", "DELETE FROM t WHERE id = 2")
    report = world.sync()
    assert world.rows("t", "id", "old", "v", deleted=True) == [(1, 5, 7), (2, 5, None)]
    assert counts(report, "t")[0] == 1
    assert world.store.backfills.waiting("shop") == []


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["", "c"])
def test_a_retained_column_keeps_its_values(world: World, name: str) -> None:
    world.settings["t"] = TableSettings(cursor=name or None)
    world.run(
        "CREATE TABLE t (id int PRIMARY KEY, c int NOT NULL, old text, v int)",
        "INSERT INTO t VALUES (1, 1, 'x', 1), (2, 2, 'y', 2)",
    )
    world.sync()
    world.run("ALTER TABLE t DROP old", "UPDATE t SET c = 3, v = 9 WHERE id = 1", "INSERT INTO t VALUES (3, 3, 3)")
    world.sync()
    kept = [(1, "x", 9), (2, "y", 2), (3, None, 3)]
    assert world.rows("t", "id", "old", "v") == kept
    for options in ({"kind": "backfill"}, {"full": True}, {"drop_retained": True}):
        world.sync(**options)
        assert world.rows("t", "id", "old", "v") == kept
    world.run("ALTER TABLE t ADD old text DEFAULT 'z'", "UPDATE t SET c = 9")
    world.sync()
    assert world.schema("t") == "id int32!, c int32, v int32, old string"
    assert world.differing() == {}


def test_a_full_refresh_refuses_to_lose_what_the_source_dropped(world: World) -> None:
    world.run("CREATE TABLE t (a int, old text)", "INSERT INTO t VALUES (1, 'x')")
    world.sync()
    world.run("ALTER TABLE t DROP old", "INSERT INTO t VALUES (2)")
    report = world.sync()
    assert world.statuses(report) == {"t": "failed"}
    assert "--drop-retained" in report.tables[0].error
    assert world.rows("t") == [(1, "x")]
    world.sync(drop_retained=True)
    assert world.schema("t") == "a int32"
    assert world.rows("t") == [(1,), (2,)]
    assert world.sync().status == "done"
    assert world.differing() == {}


def test_a_removed_column_that_is_held_keeps_its_old_values(world: World) -> None:
    world.policy = preset("approve")
    world.run("CREATE TABLE t (id int PRIMARY KEY, old text, v int)", "INSERT INTO t VALUES (1, 'x', 1), (2, 'y', 2)")
    world.sync()
    world.run("ALTER TABLE t DROP old", "UPDATE t SET v = 9 WHERE id = 1", "INSERT INTO t VALUES (3, 3)")
    world.sync()
    assert world.reviews() == {"column t.old removed (string)": "review"}
    assert world.rows("t") == [(1, "x", 9), (2, "y", 2), (3, None, 3)]
    assert world.differing() == {}


def test_hashed_values_are_never_in_clear(world: World) -> None:
    secret, pin = "tom@example.org", "4711 canary of the pin"
    world.selection = Selection(hashed=patterns(["public.t.mail"]), exclude_columns=patterns(["public.t.pin"]))
    world.run(
        "CREATE TABLE t (id int PRIMARY KEY, mail text, pin text, v int)",
        f"INSERT INTO t VALUES (1, '{secret}', '1234', 1)",
    )
    world.sync()
    [(_, digest, _)] = world.rows("t")
    world.run(
        "ALTER TABLE t RENAME mail TO post",
        "ALTER TABLE t RENAME pin TO code",
        "UPDATE t SET v = 2",
        "ALTER TABLE t ALTER v TYPE varchar(20)",
    )
    world.run(f"INSERT INTO t VALUES (2, '{secret}', '{pin}', '{'x' * 20}')")
    for _ in range(2):
        world.sync()
        assert world.reviews() == {
            "column t.mail renamed to post": "review",
            "column t.code added (string)": "review",
            "column t.v retyped from int32 to string(20)": "review",
        }
        assert world.rows("t", "id", "mail") == [(1, digest), (2, digest)]
    for file in world.folder.rglob("*"):
        if file.is_file():
            data = file.read_bytes()
            assert secret.encode() not in data, file
            assert pin.encode() not in data, file


def test_a_declared_key_has_to_be_unique(world: World) -> None:
    world.settings["t"] = TableSettings(key=("a",))
    world.run("CREATE TABLE t (a int, v int)", "INSERT INTO t VALUES (1, 1), (1, 2), (2, 2)")
    report = world.sync()
    assert world.statuses(report) == {"t": "failed"}
    assert "1 rows share it" in report.tables[0].error
    world.run("DELETE FROM t WHERE v = 1", "INSERT INTO t VALUES (NULL, 5)")
    report = world.sync()
    assert counts(report, "t") == (3, 2, 0, 0, 1)
    assert world.rows("t") == [(1, 2), (2, 2)]
    world.run("UPDATE t SET v = 7 WHERE a = 1")
    assert counts(world.sync(), "t")[2] == 1


@pytest.mark.parametrize("deletes", ["soft", "hard"])
def test_a_declared_key_has_to_stay_unique_under_a_cursor(make_world: MakeWorld, deletes: Any) -> None:
    """A row that comes with the key of one that was loaded before would overwrite it."""
    world = make_world("sqlite", settings={"t": TableSettings(key=("k",), cursor="n", deletes=deletes)})
    world.run("CREATE TABLE t (k int NOT NULL, n int, v text)", "INSERT INTO t VALUES (1, 1, 'a'), (2, 2, 'b')")
    world.sync()
    world.run("INSERT INTO t VALUES (1, 4, 'twin')")
    for _ in range(2):
        report = world.sync()
        assert world.statuses(report) == {"t": "failed"}
        assert "1 rows share it" in report.tables[0].error
        assert world.rows("t") == [(1, 1, "a"), (2, 2, "b")]
    world.run("DELETE FROM t WHERE v = 'twin'")
    assert (world.statuses(world.sync()), world.differing()) == ({"t": "done"}, {})


KEYS = {
    "uuid": ("uuid", "'00000000-0000-0000-0000-0000000000ff'", "'00000000-0000-0000-0000-0000000000fe'"),
    "array": ("int[]", "'{1,2}'", "'{2,1}'"),
    "bytes": ("bytea", "'\\x00'", "'\\x01'"),
    "moment": ("timestamptz", "'2024-02-29 10:00+01'", "'2024-02-29 10:00+02'"),
    "number": ("numeric(9,2)", "1.5", "1.51"),
}


@pytest.mark.sampled
@pytest.mark.parametrize("native", KEYS.values(), ids=KEYS)
def test_a_declared_key_of_any_type_is_counted(make_world: MakeWorld, native: tuple[str, str, str]) -> None:
    kind, one, two = native
    world = make_world("postgres", settings={"t": TableSettings(key=("k",))})
    world.run(f"CREATE TABLE t (k {kind}, v int)", f"INSERT INTO t VALUES ({one}, 1), ({two}, 2)")
    assert (world.statuses(world.sync()), world.differing()) == ({"t": "done"}, {})
    world.run(f"INSERT INTO t VALUES ({two}, 3)")
    report = world.sync()
    assert "1 rows share it" in report.tables[0].error


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("settings", "error"),
    [
        (TableSettings(mode="upsert"), "has no primary key"),
        (TableSettings(mode="append"), "cannot be appended to without a cursor"),
        (TableSettings(cursor="v"), "cannot be a cursor"),
        (TableSettings(cursor="f"), "public.t.f is float64 and cannot be a cursor"),
    ],
)
def test_settings_that_do_not_fit_stop_their_table_only(world: World, settings: TableSettings, error: str) -> None:
    """A plan says so, before there is a sync and afterwards."""
    world.settings["t"] = settings
    world.run("CREATE TABLE t (a int, v text, f double precision)", "CREATE TABLE u (a int)")
    [note] = world.preview().partial
    assert note.startswith("a sync will refuse public.t: ")
    assert error in note
    report = world.sync()
    assert world.statuses(report) == {"t": "failed", "u": "done"}
    assert error in next(t.error for t in report.tables if t.table[1] == "t")
    by_command = "name one: `instep table set-key public.t COLUMN`"  # which takes tables that are accepted
    note = note.replace('name one in the project file: tables: {"public.t": {key: [...]}}', by_command)
    assert (world.preview().plan.steps, world.preview().partial) == ((), (note,))


def test_rows_without_a_key_that_are_read_again_lose_what_was_dropped_and_it_is_said(world: World) -> None:
    world.settings["t"] = TableSettings(cursor="c")
    world.run("CREATE TABLE t (c int NOT NULL, old text)", "INSERT INTO t VALUES (1, 'x'), (2, 'y')")
    world.sync()
    world.run("ALTER TABLE t DROP old", "INSERT INTO t VALUES (2), (3)")
    report = world.sync()
    assert report.notes == ("public.t: rows from c 2 on are read again without old",)
    assert world.rows("t", "c", "old") == [(1, "x"), (2, None), (2, None), (3, None)]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("policy", "held"),
    [(preset("allow_all"), "review"), (preset("propagate_all"), "ignore"), (preset("approve"), "review")],
)
def test_a_retyped_column_keeps_its_type_and_holds_what_does_not_fit(world: World, policy: Policy, held: str) -> None:
    world.policy = policy
    world.run("CREATE TABLE t (id int PRIMARY KEY, a int)", "INSERT INTO t VALUES (1, 5), (2, 6), (3, 7)")
    world.sync()
    world.run(
        "ALTER TABLE t ALTER a TYPE varchar(9)",
        "UPDATE t SET a = 'x' WHERE id = 2",
        "UPDATE t SET a = '8' WHERE id = 3",
    )
    report = world.sync()
    assert (report.status, counts(report, "t")) == ("done", (3, 0, 2, 0, 1))
    assert world.rows("t") == [(1, 5), (2, None), (3, 8)]
    assert [bool(m) for (m,) in world.rows("t", "_instep_meta")].count(True) == 1
    assert list(world.reviews().values()) == [held]
    assert len(list(world.folder.glob("lake/shop/*/quarantine/*.parquet"))) == 1


def test_invalid_values_that_must_not_be_fail_their_table_only(world: World) -> None:
    world.settings["t"] = TableSettings(on_invalid_value="fail")
    world.run(
        "CREATE TABLE t (id int PRIMARY KEY, a int)",
        "CREATE TABLE u (id int PRIMARY KEY)",
        "INSERT INTO t VALUES (1, 5)",
    )
    world.sync()
    world.run("ALTER TABLE t ALTER a TYPE varchar(9)", "UPDATE t SET a = 'x'")
    report = world.sync()
    assert world.statuses(report) == {"t": "failed", "u": "done"}
    assert "does not fit" in next(t.error for t in report.tables if t.table[1] == "t")
    assert world.rows("t") == [(1, 5)]
