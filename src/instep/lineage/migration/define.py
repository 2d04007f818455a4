"""Definitions of columns and keys, as `CREATE TABLE` and `ALTER TABLE` have them.

`ALTER TABLE`: one statement, several edits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from instep.lineage.migration.script import SqlWords, UnparsableStatement
from instep.schema.changes.edits import (
    AddColumn,
    AddKey,
    AlterDefault,
    AlterNullability,
    AlterType,
    ColumnDefinition,
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

_AFTER_TYPE = {
    "NOT", "NULL", "DEFAULT", "PRIMARY", "UNIQUE", "REFERENCES", "CHECK", "GENERATED", "AS", "CONSTRAINT", "COLLATE",
    "COMMENT", "AUTO_INCREMENT", "AUTOINCREMENT", "ON", "FIRST", "AFTER", "STORAGE", "COMPRESSION", "COLUMN_FORMAT",
    "VISIBLE", "INVISIBLE", "KEY", "STORED", "VIRTUAL", "PERSISTENT", "DEFERRABLE", "INITIALLY", "CHARSET", "SRID",
    "ENCODE", "WITHOUT", "USING",
}  # fmt: skip
_AFTER_DEFAULT = _AFTER_TYPE - {"AS", "COLLATE", "WITHOUT", "USING"}
_SETS = ("CHARACTER", "SET")
_OF_TABLE = {"CONSTRAINT", "PRIMARY", "UNIQUE", "FOREIGN", "CHECK", "EXCLUDE", "LIKE"}
_OF_TABLE_MYSQL = {"INDEX", "KEY", "FULLTEXT", "SPATIAL", "PERIOD"}
SERIAL = {"serial", "serial4", "bigserial", "serial8", "smallserial", "serial2"}


def column(words: SqlWords) -> ColumnDefinition:
    """Return a name, a type (SQLite needs none) and what is said about them."""
    name = words.name()
    return described(words, ColumnDefinition(name, declared(words)))


def declared(words: SqlWords) -> str:
    """Return the text of a type, without its character set; "" if there is none."""
    first = words.mark
    while (word := words.next) is not None and word.text not in (",", ")"):
        if word.text in ("(", "["):
            words.brackets()
        elif (word.upper in _AFTER_TYPE and not words.is_next("WITHOUT", "TIME", "ZONE")) or words.is_next(*_SETS):
            break
        elif not words.skip("WITHOUT", "TIME", "ZONE"):
            words.advance()
    return " ".join(words.since(first).split())


def described(words: SqlWords, definition: ColumnDefinition) -> ColumnDefinition:
    """Read the constraints and options of a column to their end."""
    if definition.declared.lower() in SERIAL:
        definition = replace(definition, nullable=False, default=f"nextval({definition.name})")
    while words.next is not None and not (words.is_next(",") or words.is_next(")")):
        if words.skip("CONSTRAINT"):
            words.name()
        definition = _one(words, definition)
    return definition


def _one(words: SqlWords, definition: ColumnDefinition) -> ColumnDefinition:
    if words.skip("NOT", "NULL"):
        return replace(definition, nullable=False)
    if words.skip("NULL"):
        return definition
    if words.skip("DEFAULT"):
        return replace(definition, default=default(words))
    if words.skip("PRIMARY", "KEY") or (words.dialect == "mysql" and words.skip("KEY")):
        return replace(definition, primary=True)
    if words.skip("COMMENT"):
        return replace(definition, comment=words.string())
    if words.skip("FIRST"):
        return replace(definition, after="")
    if words.skip("AFTER"):
        return replace(definition, after=words.name())
    if words.is_next("GENERATED") or words.is_next("AS"):
        # an identity has values of its own, a computed column an expression
        text = words.read_until(_AFTER_TYPE - {"GENERATED", "AS", "DEFAULT", "STORED", "VIRTUAL", "PERSISTENT"})
        if "IDENTITY" in text.upper():
            return replace(definition, nullable=False, default=text.lower())
        return replace(definition, default=text)
    _aside(words)
    return definition


def default(words: SqlWords) -> str | None:
    """Return the text of a default; None for NULL."""
    if words.skip("NULL"):
        return None
    first = words.advance()
    if first.text == "(":
        expression = words.read_until((")",)) or ""
        words.expect(")")
        return f"({expression}){_tail(words)}"
    start = f"'{first.text}'" if first.kind == "string" else first.text
    return f"{start}{_tail(words)}"


def _tail(words: SqlWords) -> str:
    more = words.read_until(_AFTER_DEFAULT)
    return f" {more}" if more and more[0] not in "(:." else more


_WITH_GROUP = {"CHECK"}
_WITH_NAME = {"COLLATE", "CHARSET", "STORAGE", "COMPRESSION", "COLUMN_FORMAT", "SRID", "ENCODE"}
_ALONE = {
    "UNIQUE", "AUTO_INCREMENT", "AUTOINCREMENT", "VISIBLE", "INVISIBLE", "STORED", "VIRTUAL", "PERSISTENT", "KEY",
    "DEFERRABLE", "ASC", "DESC", "ENFORCED",
}  # fmt: skip


def _aside(words: SqlWords) -> None:
    """Skip the words of an action that changes nothing that a catalog records."""
    if words.any(_WITH_GROUP):
        words.brackets()
        words.skip("NO", "INHERIT")
    elif words.any(_WITH_NAME):
        words.skip("=")
        words.advance()
        if words.skip("."):
            words.advance()
    elif words.skip(*_SETS):
        words.advance()
    elif words.skip("REFERENCES"):
        _references(words)
    elif words.skip("ON"):
        words.read_until(_AFTER_TYPE)
    elif words.skip("INITIALLY") or words.skip("NULLS"):
        words.read_until(_AFTER_TYPE - {"NOT"})
    elif not (words.skip("NOT", "DEFERRABLE") or words.skip("NOT", "ENFORCED") or words.any(_ALONE)):
        raise UnparsableStatement(f"{words.advance().text!r} is not understood there")


def _references(words: SqlWords) -> None:
    words.path()
    if words.is_next("("):
        words.brackets()
    while True:
        if words.skip("MATCH"):
            words.advance()
        elif words.skip("ON", "DELETE") or words.skip("ON", "UPDATE"):
            if not (words.skip("SET", "NULL") or words.skip("SET", "DEFAULT") or words.skip("NO", "ACTION")):
                words.advance()
            if words.is_next("("):
                words.brackets()
        else:
            return


@dataclass(frozen=True)
class PrimaryKey:
    """A primary key. Its constraint's name is "" where none is given."""

    columns: tuple[str, ...]
    name: str = ""


def is_constraint(words: SqlWords) -> bool:
    """Return whether a constraint or an index of the table comes next, not a column."""
    keywords = _OF_TABLE | (_OF_TABLE_MYSQL if words.dialect == "mysql" else set())
    return words.next is not None and words.next.upper in keywords


def constraint(words: SqlWords) -> PrimaryKey | None:
    """Read a constraint or an index of a table; the key if it is that."""
    name = ""
    if words.skip("CONSTRAINT") and not (words.is_next("PRIMARY") or words.is_next("CHECK") or words.is_next("UNIQUE")):
        name = words.name()
    if not words.skip("PRIMARY", "KEY"):
        words.read_until()
        return None
    if words.skip("USING", "INDEX"):
        raise UnparsableStatement("the columns of a key made of an index are not known")
    while not words.is_next("("):
        words.advance()
    primary_key = PrimaryKey(columns(words), name)
    words.read_until()
    return primary_key


def columns(words: SqlWords) -> tuple[str, ...]:
    """Return the names in brackets; lengths and orders beside them are left out."""
    words.expect("(")
    names = [words.name()]
    words.read_until()
    while words.skip(","):
        names.append(words.name())
        words.read_until()
    words.expect(")")
    return tuple(names)


_ASIDE = {
    "OWNER", "ENABLE", "DISABLE", "VALIDATE", "CLUSTER", "SET", "RESET", "REPLICA", "FORCE", "NO", "OF", "NOT",
    "ENGINE", "AUTO_INCREMENT", "CHARSET", "DEFAULT", "CHARACTER", "COLLATE", "CONVERT", "ROW_FORMAT", "ALGORITHM",
    "LOCK", "ORDER", "KEY_BLOCK_SIZE", "STATS_PERSISTENT", "STATS_AUTO_RECALC", "STATS_SAMPLE_PAGES", "ANALYZE",
    "CHECK", "OPTIMIZE", "REBUILD", "REPAIR", "PARTITION", "REMOVE", "COALESCE", "REORGANIZE", "TABLESPACE", "WITH",
    "WITHOUT", "AVG_ROW_LENGTH", "MAX_ROWS", "MIN_ROWS", "PACK_KEYS", "CHECKSUM", "DELAY_KEY_WRITE", "COMPRESSION",
}  # fmt: skip
"""First words of actions that change nothing that a catalog records."""
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
    """Yield the edits after `ALTER TABLE`, in order. Raises Unclear if one of them is not
    understood."""
    words.skip("IF", "EXISTS")
    words.skip("ONLY")
    table = words.table()
    words.skip("*")
    while True:
        yield from _action(words, table)
        if not words.skip(","):
            break
    words.end()


def _action(words: SqlWords, table: Name) -> Iterator[Edit]:
    if words.skip("ADD"):
        yield from _add(words, table)
    elif words.skip("DROP"):
        yield from _drop(words, table)
    elif words.skip("RENAME"):
        yield from _rename(words, table)
    elif words.skip("ALTER"):
        yield from _alter_column(words, table)
    elif words.skip("MODIFY"):
        words.skip("COLUMN")
        words.skip("IF", "EXISTS")
        definition = column(words)
        yield RedefineColumn(table, definition.name, definition)
    elif words.skip("CHANGE"):
        words.skip("COLUMN")
        words.skip("IF", "EXISTS")
        yield RedefineColumn(table, words.name(), column(words))
    else:
        yield from _of_table(words, table)


def _of_table(words: SqlWords, table: Name) -> Iterator[Edit]:
    """Yield the edits of table options; in MySQL several may follow each other."""
    if words.skip("SET", "SCHEMA"):
        yield RenameTable(table, schema=words.name())
    elif words.skip("COMMENT"):
        words.skip("=")
        yield SetComment(table, "", words.string())
    elif words.any(_ASIDE):
        words.read_until(("COMMENT",) if words.dialect == "mysql" else ())
        if words.is_next("COMMENT"):
            yield from _of_table(words, table)
    else:
        raise _unclear(words, "ALTER TABLE ...")


def _unclear(words: SqlWords, before: str) -> UnparsableStatement:
    return UnparsableStatement(f"{before} {words.next.text if words.next else ''} is not understood".replace("  ", " "))


def _add(words: SqlWords, table: Name) -> Iterator[Edit]:
    if words.is_next("PARTITION") or words.is_next("PERIOD") or words.is_next("SYSTEM"):
        words.read_until()
        return
    named = words.skip("COLUMN")
    if not named and is_constraint(words):
        definition = constraint(words)
        if isinstance(definition, PrimaryKey):
            yield AddKey(table, definition.columns, definition.name)
        return
    or_not = words.skip("IF", "NOT", "EXISTS")
    if words.skip("("):
        yield AddColumn(table, column(words), or_not)
        while words.skip(","):
            yield AddColumn(table, column(words), or_not)
        words.expect(")")
    else:
        yield AddColumn(table, column(words), or_not)


def _drop(words: SqlWords, table: Name) -> Iterator[Edit]:
    mysql = words.dialect == "mysql"
    if words.skip("CONSTRAINT"):
        words.skip("IF", "EXISTS")
        yield DropConstraint(table, words.name())
    elif words.skip("PRIMARY", "KEY"):
        yield DropKey(table)
    elif words.skip("FOREIGN", "KEY") or (mysql and words.any(_DROPPED_ASIDE)):
        words.read_until()
    else:
        words.skip("COLUMN")
        or_not = words.skip("IF", "EXISTS")
        yield DropColumn(table, words.name(), or_not)
    words.any(("CASCADE", "RESTRICT"))


def _rename(words: SqlWords, table: Name) -> Iterator[Edit]:
    mysql = words.dialect == "mysql"
    if words.skip("TO") or (mysql and (words.skip("AS") or words.skip("="))):
        yield renamed(table, words.table())
    elif words.skip("CONSTRAINT") or (mysql and (words.skip("INDEX") or words.skip("KEY"))):
        words.read_until()
    elif mysql and not words.is_next("COLUMN"):
        yield renamed(table, words.table())
    else:
        words.skip("COLUMN")
        name = words.name()
        words.expect("TO")
        yield RenameColumn(table, name, words.name())


def renamed(table: Name, to: Name) -> RenameTable:
    return RenameTable(table, to[-1], to[0] if len(to) > 1 else "")


def _alter_column(words: SqlWords, table: Name) -> Iterator[Edit]:
    mysql = words.dialect == "mysql"
    if words.is_next("CONSTRAINT") or (mysql and (words.is_next("INDEX") or words.is_next("CHECK"))):
        words.read_until()
        return
    words.skip("COLUMN")
    words.skip("IF", "EXISTS")
    name = words.name()
    if words.skip("TYPE") or words.skip("SET", "DATA", "TYPE"):
        yield AlterType(table, name, declared(words))
        words.read_until()
    elif words.skip("SET", "DEFAULT"):
        yield AlterDefault(table, name, default(words))
    elif words.skip("DROP", "DEFAULT") or words.skip("DROP", "IDENTITY"):
        words.skip("IF", "EXISTS")
        yield AlterDefault(table, name, None)
    elif words.skip("SET", "NOT", "NULL"):
        yield AlterNullability(table, name, nullable=False)
    elif words.skip("DROP", "NOT", "NULL"):
        yield AlterNullability(table, name, nullable=True)
    elif words.skip("ADD", "GENERATED"):
        yield AlterDefault(table, name, f"generated {words.read_until().lower()}")
    elif words.skip("RESTART"):
        words.read_until()
    elif words.any(("SET", "DROP", "RESET", "ADD")) and words.next is not None:
        if words.next.upper not in _COLUMN_ASIDE and words.next.text not in _COLUMN_ASIDE:
            raise _unclear(words, "ALTER COLUMN ...")
        words.read_until()
    else:
        raise _unclear(words, "ALTER COLUMN ...")
