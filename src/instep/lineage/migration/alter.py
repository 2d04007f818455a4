"""`ALTER TABLE`: one statement, several edits."""

from __future__ import annotations

from collections.abc import Iterator

from instep.lineage.migration.define import PrimaryKey, column, constraint, declared, default, is_constraint
from instep.lineage.migration.words import SqlWords, Unclear
from instep.schema.changes.edits import (
    AddColumn,
    AddKey,
    AlterDefault,
    AlterNullability,
    AlterType,
    DropColumn,
    DropConstraint,
    DropKey,
    Edit,
    Name,
    RedefineColumn,
    RenameColumn,
    RenameTable,
    SetComment,
)

_ASIDE = {
    "OWNER", "ENABLE", "DISABLE", "VALIDATE", "CLUSTER", "SET", "RESET", "REPLICA", "FORCE", "NO", "OF", "NOT",
    "ENGINE", "AUTO_INCREMENT", "CHARSET", "DEFAULT", "CHARACTER", "COLLATE", "CONVERT", "ROW_FORMAT", "ALGORITHM",
    "LOCK", "ORDER", "KEY_BLOCK_SIZE", "STATS_PERSISTENT", "STATS_AUTO_RECALC", "STATS_SAMPLE_PAGES", "ANALYZE",
    "CHECK", "OPTIMIZE", "REBUILD", "REPAIR", "PARTITION", "REMOVE", "COALESCE", "REORGANIZE", "TABLESPACE", "WITH",
    "WITHOUT", "AVG_ROW_LENGTH", "MAX_ROWS", "MIN_ROWS", "PACK_KEYS", "CHECKSUM", "DELAY_KEY_WRITE", "COMPRESSION",
}  # fmt: skip
"""How actions begin that change nothing that a catalog records."""
_NO_ACTION = {"INHERIT", "ATTACH", "DETACH", "EXCHANGE", "IMPORT", "DISCARD", "TRUNCATE"}
_DROPPED_ASIDE = {"INDEX", "KEY", "CHECK", "PARTITION", "PERIOD", "SYSTEM"}
_COLUMN_ASIDE = {
    "STATISTICS",
    "STORAGE",
    "COMPRESSION",
    "GENERATED",
    "INVISIBLE",
    "VISIBLE",
    "EXPRESSION",
    "SEQUENCE",
    "START",
    "INCREMENT",
    "CACHE",
    "MAXVALUE",
    "MINVALUE",
    "CYCLE",
    "NO",
    "(",
}


def alter(words: SqlWords) -> Iterator[Edit]:
    """Yield the edits of what stands behind `ALTER TABLE`, in order. Raises Unclear if one of them is not
    understood."""
    words.take("IF", "EXISTS")
    words.take("ONLY")
    table = words.table()
    words.take("*")
    while True:
        yield from _action(words, table)
        if not words.take(","):
            break
    words.end()


def _action(words: SqlWords, table: Name) -> Iterator[Edit]:
    if words.take("ADD"):
        yield from _add(words, table)
    elif words.take("DROP"):
        yield from _drop(words, table)
    elif words.take("RENAME"):
        yield from _rename(words, table)
    elif words.take("ALTER"):
        yield from _alter_column(words, table)
    elif words.take("MODIFY"):
        words.take("COLUMN")
        words.take("IF", "EXISTS")
        found = column(words)
        yield RedefineColumn(table, found.name, found)
    elif words.take("CHANGE"):
        words.take("COLUMN")
        words.take("IF", "EXISTS")
        yield RedefineColumn(table, words.name(), column(words))
    else:
        yield from _of_table(words, table)


def _of_table(words: SqlWords, table: Name) -> Iterator[Edit]:
    """Options; in MySQL several may stand beside each other."""
    if words.take("SET", "SCHEMA"):
        yield RenameTable(table, schema=words.name())
    elif words.take("COMMENT"):
        words.take("=")
        yield SetComment(table, "", words.string())
    elif words.any(_ASIDE):
        words.until(("COMMENT",) if words.dialect == "mysql" else ())
        if words.ahead("COMMENT"):
            yield from _of_table(words, table)
    else:
        raise _unclear(words, "ALTER TABLE ...")


def _unclear(words: SqlWords, before: str) -> Unclear:
    return Unclear(f"{before} {words.next.text if words.next else ''} is not understood".replace("  ", " "))


def _add(words: SqlWords, table: Name) -> Iterator[Edit]:
    if words.ahead("PARTITION") or words.ahead("PERIOD") or words.ahead("SYSTEM"):
        words.until()
        return
    named = words.take("COLUMN")
    if not named and is_constraint(words):
        found = constraint(words)
        if isinstance(found, PrimaryKey):
            yield AddKey(table, found.columns, found.name)
        return
    or_not = words.take("IF", "NOT", "EXISTS")
    if words.take("("):
        yield AddColumn(table, column(words), or_not)
        while words.take(","):
            yield AddColumn(table, column(words), or_not)
        words.need(")")
    else:
        yield AddColumn(table, column(words), or_not)


def _drop(words: SqlWords, table: Name) -> Iterator[Edit]:
    mysql = words.dialect == "mysql"
    if words.take("CONSTRAINT"):
        words.take("IF", "EXISTS")
        yield DropConstraint(table, words.name())
    elif words.take("PRIMARY", "KEY"):
        yield DropKey(table)
    elif words.take("FOREIGN", "KEY") or (mysql and words.any(_DROPPED_ASIDE)):
        words.until()
    else:
        words.take("COLUMN")
        or_not = words.take("IF", "EXISTS")
        yield DropColumn(table, words.name(), or_not)
    words.any(("CASCADE", "RESTRICT"))


def _rename(words: SqlWords, table: Name) -> Iterator[Edit]:
    mysql = words.dialect == "mysql"
    if words.take("TO") or (mysql and (words.take("AS") or words.take("="))):
        yield renamed(table, words.table())
    elif words.take("CONSTRAINT") or (mysql and (words.take("INDEX") or words.take("KEY"))):
        words.until()
    elif mysql and not words.ahead("COLUMN"):
        yield renamed(table, words.table())
    else:
        words.take("COLUMN")
        name = words.name()
        words.need("TO")
        yield RenameColumn(table, name, words.name())


def renamed(table: Name, to: Name) -> RenameTable:
    return RenameTable(table, to[-1], to[0] if len(to) > 1 else "")


def _alter_column(words: SqlWords, table: Name) -> Iterator[Edit]:
    mysql = words.dialect == "mysql"
    if words.ahead("CONSTRAINT") or (mysql and (words.ahead("INDEX") or words.ahead("CHECK"))):
        words.until()
        return
    words.take("COLUMN")
    words.take("IF", "EXISTS")
    name = words.name()
    if words.take("TYPE") or words.take("SET", "DATA", "TYPE"):
        yield AlterType(table, name, declared(words))
        words.until()
    elif words.take("SET", "DEFAULT"):
        yield AlterDefault(table, name, default(words))
    elif words.take("DROP", "DEFAULT") or words.take("DROP", "IDENTITY"):
        words.take("IF", "EXISTS")
        yield AlterDefault(table, name, None)
    elif words.take("SET", "NOT", "NULL"):
        yield AlterNullability(table, name, nullable=False)
    elif words.take("DROP", "NOT", "NULL"):
        yield AlterNullability(table, name, nullable=True)
    elif words.take("ADD", "GENERATED"):
        yield AlterDefault(table, name, f"generated {words.until().lower()}")
    elif words.take("RESTART"):
        words.until()
    elif words.any(("SET", "DROP", "RESET", "ADD")) and words.next is not None:
        if words.next.upper not in _COLUMN_ASIDE and words.next.text not in _COLUMN_ASIDE:
            raise _unclear(words, "ALTER COLUMN ...")
        words.until()
    else:
        raise _unclear(words, "ALTER COLUMN ...")
