"""Statements of the binary log as their sessions meant them: sql_mode and character sets decide what is in quotes."""

from __future__ import annotations

from struct import pack

import pytest
from binlog_world import BinlogWorld
from followed import notes

from instep.sources.mysql.binlog.ddl import ANSI_QUOTES, MSSQL, NO_BACKSLASH_ESCAPES, TableEffect, edits, tokens_of
from instep.sources.mysql.binlog.wire import BinlogStatement, UnreadableEvent, decode
from mariadb import open_as
from sync_world import counts

TABLES = (("shop", "item"), ("shop", "preis€"), ("shop", 'a""b]]'), ("shop", "schön"))
NBE, ANSI = NO_BACKSLASH_ESCAPES, ANSI_QUOTES
WORDS: list[tuple[str, int, str, list[str], bool]] = [
    ("an escaped quote", 0, r"'a\', x' y", ["'a\\', x", "y"], True),
    ("a backslash", NBE, r"'C:\', x", ["'C:\\", ",", "x"], True),
    ("a backslash that escapes", 0, r"'C:\', x", ["'", "C", ":", "\\", "'", ",", "x"], False),
    ("a quote in quotes", NBE, r"'it''s\' x", [r"'it's" "\\", "x"], True),
    ("a text in double quotes", 0, r'"a\"b" x', ['\'a\\"b', "x"], True),
    ("a text in double quotes, a backslash", NBE, r'"a\" x', ["'a\\", "x"], True),
    ("a name in double quotes", ANSI, r'"a\" x', ["'a\\", "x"], True),
    ("a text beside names in double quotes", ANSI, r"""'a\'' "b""c" x""", ["'a\\'", "'b\"c", "x"], True),
    ("a name in backticks has no escapes", 0, r"`a\` x", ["'a\\", "x"], True),
    ("a comment behind a backslash", NBE, r"'\' -- ' x", ["'\\"], True),
    ("no comment in a text", 0, r"'\' -- ' x", ["'\\' -- ", "x"], True),
    ("a hash", NBE, "'\\'#' x\ny", ["'\\", "y"], True),
    ("a comment of many lines", NBE, r"'\' /* ' */ x", ["'\\", "x"], True),
    ("a comment that runs", NBE, r"'\' /*!50000 x*/ y", ["'\\", "x", "y"], True),
    ("a product, and a comment", 0, "2*/* ' */x", ["2", "*", "x"], True),
    ("a comment in one that runs", 0, "/*! a /* ' */ b */ c", ["a", "b", "c"], True),
    ("square brackets", ANSI | MSSQL, "[it's]]] x", ["'it's]", "x"], True),
    ("no square brackets", ANSI, "[a]", ["[", "a", "]"], True),
    ("letters that cannot be read", 0, "a \ufffd", ["a", "\ufffd"], False),
]  # fmt: skip


@pytest.mark.parametrize(("mode", "text", "words", "whole"), [c[1:] for c in WORDS], ids=[c[0] for c in WORDS])
def test_words_by_mode(mode: int, text: str, words: list[str], whole: bool) -> None:
    """What is in quotes begins with one here. Other bits of the mode make no difference."""
    for bits in (mode, mode | 0x200002):
        found, understood = tokens_of(text, bits)
        assert ([t.text if t.plain else f"'{t.text}" for t in found], understood) == (words, whole)


HIDING = r"ALTER TABLE item COMMENT 'C:\', DROP COLUMN v, ADD COLUMN v int -- '"
GONE = TableEffect(added=("v",), dropped=("v",))
MANY, NONE = "a statement that can be read in several ways", "a statement of the log cannot be read"
STATEMENTS: list[tuple[str, int | None, str, str, dict[str, TableEffect | str]]] = [
    ("columns behind a backslash", NBE, HIDING, "", {"item": GONE}),
    ("columns in a text", 0, HIDING, "", {"item": TableEffect()}),
    ("nobody knows", None, HIDING, "", {"item": MANY}),
    ("nobody needs to know", None, r"ALTER TABLE item COMMENT 'C:\\x \"y\"'", "", {"item": TableEffect()}),
    ("a name or a text", None, 'TRUNCATE "item"', "", {"item": "it was truncated"}),
    ("a mode of its own", 0, f"SET STATEMENT sql_mode='NO_BACKSLASH_ESCAPES' FOR {HIDING}", "", {"item": MANY}),
    ("another mode than it says", 0, HIDING.replace("-- '", "COMMENT 'x'"), "", {"item": GONE}),
    ("no mode makes sense of it", 0, "TRUNCATE 'x", "", dict.fromkeys([t[1] for t in TABLES], NONE)),
    ("a trigger in strange letters", 0, "CREATE TRIGGER x BEFORE INSERT ON item FOR EACH ROW SET @a = '\ufffd'", "",
     {}),
    ("rights in strange letters", 0, "GRANT SELECT ON item TO '\ufffd'", "", {}),
    ("a table in strange letters", 0, "TRUNCATE sch\ufffdn", "", dict.fromkeys([t[1] for t in TABLES], NONE)),
    ("the server's own words", 0, "DROP TABLE `schÃ¶n`", "DROP TABLE `schön`", {"schön": "DROP TABLE"}),
    ("a name with a sign", 0, "TRUNCATE preis€", "", {"preis€": "it was truncated"}),
    ("marks of other quotes in a name", 0, 'TRUNCATE `a""b]]`', "", {'a""b]]': "it was truncated"}),
    ("a wait", 0, "ALTER TABLE item WAIT 5 DROP v, ADD v int", "", {"item": GONE}),
    ("no wait", 0, "ALTER TABLE item NOWAIT MODIFY v bigint", "", {"item": "ALTER TABLE"}),
    ("no wait for a setting", 0, "ALTER TABLE item NOWAIT COMMENT 'x', FORCE", "", {"item": TableEffect()}),
    ("settings without commas", 0,
     "ALTER TABLE item COMMENT='x' ENGINE InnoDB MAX_ROWS = 5", "", {"item": TableEffect()}),
    ("an engine behind another setting", 0, "ALTER TABLE item COMMENT 'x' ENGINE=BLACKHOLE", "",
     {"item": "ALTER TABLE"}),
    ("a setting without a value", 0, "ALTER TABLE item COMMENT", "", {"item": "ALTER TABLE"}),
    ("a place before partitions", 0, "ALTER TABLE item ADD a int FIRST REMOVE PARTITIONING", "",
     {"item": TableEffect(added=("a",), placed=True)}),
    ("a name of this database behind a dot", 0, "TRUNCATE TABLE .item", "", {"item": "it was truncated"}),
    ("a statement that is analyzed", 0, "ANALYZE FORMAT=JSON DELETE FROM item", "",
     dict.fromkeys([t[1] for t in TABLES], "a statement was logged")),
    ("a table that is analyzed", 0, "ANALYZE LOCAL TABLE item", "", {}),
    ("a name in square brackets", ANSI | MSSQL, "ALTER TABLE [item] DROP [v], ADD [v] int", "", {"item": GONE}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("mode", "text", "other", "expected"), [c[1:] for c in STATEMENTS], ids=[c[0] for c in STATEMENTS]
)
def test_statements_by_mode(mode: int | None, text: str, other: str, expected: dict[str, TableEffect | str]) -> None:
    found = {ref[1]: edit for ref, edit in edits(text, "shop", TABLES, mode, other).items()}
    assert found.keys() == expected.keys(), found
    for name, edit in found.items():
        wanted = expected[name]
        assert edit == wanted if isinstance(wanted, TableEffect) else edit.why.startswith(wanted), edit


FLAGS, CATALOG, STEPS = b"\0" + bytes(4), b"\6\3std", b"\3" + bytes(4)
MODE = b"\1" + pack("<Q", NBE)
LATIN, UMLAUT = "schön".encode("latin-1"), "schön".encode()


def charset(number: int) -> bytes:
    return b"\4" + pack("<HHH", number, 45, 45)


EVENTS: list[tuple[str, bytes, bytes, BinlogStatement]] = [
    ("all of it", FLAGS + MODE + CATALOG + STEPS + charset(8) + b"\5\3UTC", LATIN, BinlogStatement("d", "schön", NBE)),
    ("no variables", b"", UMLAUT, BinlogStatement("d", "schön")),
    ("the mode alone", MODE, UMLAUT, BinlogStatement("d", "schön", NBE)),
    ("what is not known comes first", b"\xc8\1" + MODE, b"x", BinlogStatement("d", "x")),
    ("what is not known comes behind", FLAGS + MODE + b"\xc8" + charset(8), b"x", BinlogStatement("d", "x", NBE)),
    ("it is cut off", FLAGS + MODE[:5], b"x", BinlogStatement("d", "x")),
    ("a catalog is cut off", MODE + b"\6", b"x", BinlogStatement("d", "x", NBE)),
    ("a backslash in a letter", FLAGS + MODE + charset(13), "表".encode("shift_jis"), BinlogStatement("d", "表", NBE)),
    ("one that does not pad",
     FLAGS + MODE + charset(1024 + 13), "表".encode("shift_jis"), BinlogStatement("d", "表", NBE)),
    ("of MariaDB alone", FLAGS + MODE + charset(2304), UMLAUT, BinlogStatement("d", "schön", NBE)),
    ("the server may have written it", FLAGS + MODE + charset(8), UMLAUT, BinlogStatement("d", "schÃ¶n", NBE, "schön")),
    ("without a codec", FLAGS + MODE + charset(97), LATIN, BinlogStatement("d", "sch\ufffdn", NBE)),
]  # fmt: skip


@pytest.mark.parametrize(("variables", "text", "expected"), [c[1:] for c in EVENTS], ids=[c[0] for c in EVENTS])
def test_what_an_event_tells_of_its_session(variables: bytes, text: bytes, expected: BinlogStatement) -> None:
    body = pack("<IIBHH", 1, 0, 1, 0, len(variables)) + variables + b"d\0" + text
    assert decode(pack("<IBIIIH", 0, 2, 1, 19 + len(body), 0, 0) + body) == expected


@pytest.mark.parametrize(
    ("kind", "flags", "known"), [(172, 0, False), (172, 0x80, True), (35, 0, True), (90, 0, False)]
)
def test_events_that_nobody_knows_may_be_rows(kind: int, flags: int, known: bool) -> None:
    event = decode(pack("<IBIIIH", 0, kind, 1, 19, 0, flags))
    assert event is None if known else isinstance(event, UnreadableEvent)


OWN = "a mode of its own"
SERVED = [
    ("a backslash", "NO_BACKSLASH_ESCAPES", r"COMMENT 'C:\', {} COMMENT 'x'"),
    ("names in double quotes", "ANSI_QUOTES", r"""ADD COLUMN "a\" int, {}, ADD COLUMN "b\" int"""),
    ("a comment behind a backslash", "NO_BACKSLASH_ESCAPES", "COMMENT 'C:\\' -- '\n, {} COMMENT 'x' -- '"),
    ("a comment of many lines", "NO_BACKSLASH_ESCAPES", r"COMMENT '\' /* ' */, {} COMMENT 'x'"),
    (OWN, OWN, r"COMMENT 'C:\', {} COMMENT 'x'"),
]


@pytest.mark.server
def test_columns_that_hide_behind_a_backslash(binlog_world: BinlogWorld) -> None:
    """Under any mode of a session; a comment that a text only looks like is none."""
    world = binlog_world
    for number in range(len(SERVED) + 1):
        world.run(f"CREATE TABLE t{number} (id int PRIMARY KEY, v varchar(9)) AS SELECT 1 AS id, 'abcdef' AS v")
    world.sync()
    world.sync()
    new = "DROP COLUMN v, ADD COLUMN v varchar(9) DEFAULT 'new'"
    for number, (_, mode, text) in enumerate(SERVED):
        own = "SET STATEMENT sql_mode = '' FOR " if mode == OWN else ""
        mode = f"SET SESSION sql_mode = '{'NO_BACKSLASH_ESCAPES' if own else mode}'"
        world.together(mode, f"{own}ALTER TABLE t{number} {text.format(new)}")
    world.together(rf"ALTER TABLE t{len(SERVED)} COMMENT 'C:\', {new.replace(chr(39), '')} -- '")
    report = world.sync()
    assert world.differing() == {}, report
    assert counts(report, f"t{len(SERVED)}")[0] == 0, report


@pytest.mark.server
def test_names_in_the_letters_of_another_session(binlog_world: BinlogWorld) -> None:
    world = binlog_world
    for name in ("schön", "表", "größe"):
        world.run(f"CREATE TABLE `{name}` (id int PRIMARY KEY) AS SELECT 1 AS id")
    world.sync()
    world.sync()
    config = world.database.admin.model_copy(update={"database": world.database.config.database})
    for charset, statement in (("latin1", "TRUNCATE TABLE schön"), ("sjis", "TRUNCATE TABLE `表`"),
                               ("latin1", "DROP TABLE größe")):  # fmt: skip
        with open_as(config) as connection, connection.cursor() as cursor:
            connection.set_character_set(charset)
            cursor.execute(statement)
    world.run("CREATE TABLE `größe` (id int PRIMARY KEY)")
    report = world.sync()
    assert world.differing() == {}, report
    assert "it was truncated" in notes(report)


@pytest.mark.server
def test_a_column_that_is_made_again_in_a_later_part_of_the_log(binlog_world: BinlogWorld) -> None:
    world = binlog_world.loaded()
    world.log["messages"] = 4
    world.sync()
    world.run("ALTER TABLE t DROP COLUMN v", "UPDATE u SET v = 6 WHERE id = 1", "UPDATE u SET v = 6 WHERE id = 2",
              "ALTER TABLE t ADD COLUMN v int DEFAULT 9")  # fmt: skip
    for _ in range(4):
        world.sync()
    assert world.differing() == {}


@pytest.mark.server
@pytest.mark.parametrize("how", ["NOWAIT", "WAIT 5"])
def test_columns_behind_a_wait(binlog_world: BinlogWorld, how: str) -> None:
    world = binlog_world.loaded()
    world.sync()
    world.run(f"ALTER TABLE t {how} DROP COLUMN v, ADD COLUMN v int DEFAULT 9")
    world.sync()
    assert world.differing() == {}
