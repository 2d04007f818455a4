"""Definitions of columns and keys, as `CREATE TABLE` and `ALTER TABLE` have them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from instep.lineage.migration.words import SqlWords, Unclear
from instep.schema.changes.edits import ColumnDefinition

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
        elif (word.upper in _AFTER_TYPE and not words.ahead("WITHOUT", "TIME", "ZONE")) or words.ahead(*_SETS):
            break
        elif not words.take("WITHOUT", "TIME", "ZONE"):
            words.advance()
    return " ".join(words.since(first).split())


def described(words: SqlWords, found: ColumnDefinition) -> ColumnDefinition:
    """Read the constraints and options of a column to their end."""
    if found.declared.lower() in SERIAL:
        found = replace(found, nullable=False, default=f"nextval({found.name})")
    while words.next is not None and not (words.ahead(",") or words.ahead(")")):
        if words.take("CONSTRAINT"):
            words.name()
        found = _one(words, found)
    return found


def _one(words: SqlWords, found: ColumnDefinition) -> ColumnDefinition:
    if words.take("NOT", "NULL"):
        return replace(found, nullable=False)
    if words.take("NULL"):
        return found
    if words.take("DEFAULT"):
        return replace(found, default=default(words))
    if words.take("PRIMARY", "KEY") or (words.dialect == "mysql" and words.take("KEY")):
        return replace(found, primary=True)
    if words.take("COMMENT"):
        return replace(found, comment=words.string())
    if words.take("FIRST"):
        return replace(found, after="")
    if words.take("AFTER"):
        return replace(found, after=words.name())
    if words.ahead("GENERATED") or words.ahead("AS"):
        return _generated(words, found)
    _aside(words)
    return found


def default(words: SqlWords) -> str | None:
    """Return the text of a default; None for NULL."""
    if words.take("NULL"):
        return None
    first = words.advance()
    if first.text == "(":
        rest = words.until((")",)) or ""
        words.need(")")
        return f"({rest}){_tail(words)}"
    start = f"'{first.text}'" if first.kind == "string" else first.text
    return f"{start}{_tail(words)}"


def _tail(words: SqlWords) -> str:
    more = words.until(_AFTER_DEFAULT)
    return f" {more}" if more and more[0] not in "(:." else more


def _generated(words: SqlWords, found: ColumnDefinition) -> ColumnDefinition:
    """An identity has values of its own, a computed column an expression."""
    text = words.until(_AFTER_TYPE - {"GENERATED", "AS", "DEFAULT", "STORED", "VIRTUAL", "PERSISTENT"})
    if "IDENTITY" in text.upper():
        return replace(found, nullable=False, default=text.lower())
    return replace(found, default=text)


_WITH_GROUP = {"CHECK"}
_WITH_NAME = {"COLLATE", "CHARSET", "STORAGE", "COMPRESSION", "COLUMN_FORMAT", "SRID", "ENCODE"}
_ALONE = {
    "UNIQUE", "AUTO_INCREMENT", "AUTOINCREMENT", "VISIBLE", "INVISIBLE", "STORED", "VIRTUAL", "PERSISTENT", "KEY",
    "DEFERRABLE", "ASC", "DESC", "ENFORCED",
}  # fmt: skip


def _aside(words: SqlWords) -> None:
    """What says nothing that a catalog records."""
    if words.any(_WITH_GROUP):
        words.brackets()
        words.take("NO", "INHERIT")
    elif words.any(_WITH_NAME):
        words.take("=")
        words.advance()
        if words.take("."):
            words.advance()
    elif words.take(*_SETS):
        words.advance()
    elif words.take("REFERENCES"):
        _references(words)
    elif words.take("ON"):
        words.until(_AFTER_TYPE)
    elif words.take("INITIALLY") or words.take("NULLS"):
        words.until(_AFTER_TYPE - {"NOT"})
    elif not (words.take("NOT", "DEFERRABLE") or words.take("NOT", "ENFORCED") or words.any(_ALONE)):
        raise Unclear(f"{words.advance().text!r} is not understood there")


def _references(words: SqlWords) -> None:
    words.path()
    if words.ahead("("):
        words.brackets()
    while True:
        if words.take("MATCH"):
            words.advance()
        elif words.take("ON", "DELETE") or words.take("ON", "UPDATE"):
            if not (words.take("SET", "NULL") or words.take("SET", "DEFAULT") or words.take("NO", "ACTION")):
                words.advance()
            if words.ahead("("):
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
    known = _OF_TABLE | (_OF_TABLE_MYSQL if words.dialect == "mysql" else set())
    return words.next is not None and words.next.upper in known


def constraint(words: SqlWords) -> PrimaryKey | None:
    """Read a constraint or an index of a table; the key if it is that."""
    name = ""
    if words.take("CONSTRAINT") and not (words.ahead("PRIMARY") or words.ahead("CHECK") or words.ahead("UNIQUE")):
        name = words.name()
    if not words.take("PRIMARY", "KEY"):
        words.until()
        return None
    if words.take("USING", "INDEX"):
        raise Unclear("the columns of a key made of an index are not known")
    while not words.ahead("("):
        words.advance()
    found = PrimaryKey(columns(words), name)
    words.until()
    return found


def columns(words: SqlWords) -> tuple[str, ...]:
    """Return the names in brackets; lengths and orders beside them are left out."""
    words.need("(")
    found = [words.name()]
    words.until()
    while words.take(","):
        found.append(words.name())
        words.until()
    words.need(")")
    return tuple(found)
