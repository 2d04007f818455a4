"""Statements as edits. Raises Unclear for what may change a schema and is not understood.

Migration scripts in their order, as edits with the places where they stand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from instep.lineage.migration.define import PrimaryKey, alter, column, constraint, is_constraint, renamed
from instep.lineage.migration.script import ROUTINES, ScriptStatement, SqlWords, Unclear, read
from instep.schema.changes.edits import (
    ColumnDefinition,
    CreateTable,
    DropSchema,
    DropTable,
    Edit,
    Name,
    RenameSchema,
    SetComment,
    SetPath,
    Transaction,
)

_DATA = {
    "INSERT", "UPDATE", "DELETE", "MERGE", "REPLACE", "WITH", "VALUES", "SHOW", "ANALYZE", "VACUUM", "GRANT", "REVOKE",
    "LOCK", "UNLOCK", "SAVEPOINT", "RELEASE", "CLUSTER", "REINDEX", "CHECKPOINT", "DISCARD", "RESET", "LISTEN",
    "NOTIFY", "PRAGMA", "OPTIMIZE", "FLUSH", "LOAD", "COPY", "REFRESH", "TRUNCATE", "DECLARE", "FETCH", "CLOSE",
    "REASSIGN", "SECURITY", "DETACH", "UNLISTEN", "HANDLER", "CHECK", "REPAIR", "EXPLAIN", "DESCRIBE", "DESC",
}  # fmt: skip
"""Statements about rows, rights and storage. TRUNCATE empties a table and leaves its schema."""
_MADE_ASIDE = {
    "INDEX", "SEQUENCE", "EXTENSION", "ROLE", "USER", "GROUP", "TYPE", "DOMAIN", "COLLATION", "POLICY", "PUBLICATION",
    "SUBSCRIPTION", "STATISTICS", "TABLESPACE", "SERVER", "CAST", "OPERATOR", "AGGREGATE", "TEXT", "LANGUAGE", "ACCESS",
    "CONVERSION", "RULE", "DEFAULT", "LARGE", "SYSTEM", "LOGFILE", "SPATIAL", "FULLTEXT", "TRANSFORM", "RESOURCE",
}  # fmt: skip
"""Objects that are no tables, and have no columns."""
_WHOLE = {"ALL", "INDEXES", "COMMENTS"}
_SAFE_CALLS = {
    "SETVAL", "NEXTVAL", "NOW", "VERSION", "CURRENT_SCHEMA", "LAST_INSERT_ID", "PG_ADVISORY_LOCK", "LASTVAL", "COUNT",
    "PG_ADVISORY_XACT_LOCK", "PG_ADVISORY_UNLOCK", "GET_LOCK", "RELEASE_LOCK",
}  # fmt: skip


def edits(statement: ScriptStatement, script: str, dialect: str) -> tuple[Edit, ...]:
    """Return the statement's edits of schemas, in order; none for one about rows or rights."""
    words = SqlWords(statement.words, script, dialect)
    first = words.advance()
    known = _STARTS.get(first.upper)
    if known is not None:
        return tuple(known(words))
    if first.upper in _DATA:
        return tuple(_rows(words))
    raise Unclear("the statement is not understood")


def _rows(words: SqlWords) -> Iterator[Edit]:
    return iter(())


def _select(words: SqlWords) -> Iterator[Edit]:
    """Yield a query. One that only calls a function may do anything; `SELECT ... INTO` makes a table."""
    if words.dialect == "postgres" and words.has("INTO"):
        raise Unclear("SELECT INTO makes a table whose columns are not known")
    call = words.next
    if call is None or call.kind != "word" or words.has("FROM"):
        return
    name = words.path()[-1]
    if not words.ahead("(") or name.upper() in _SAFE_CALLS:
        return
    if name.upper() == "SET_CONFIG":
        words.need("(")
        if words.string() == "search_path":
            words.need(",")
            yield SetPath(tuple(p.strip().strip('"') for p in (words.string() or "").split(",") if p.strip()))
        return
    raise Unclear(f"what {name}() does is not known")


def _set(words: SqlWords) -> Iterator[Edit]:
    words.any(("SESSION", "LOCAL"))
    if not words.take("SEARCH_PATH"):
        return
    if not words.take("TO"):
        words.need("=")
    if words.take("DEFAULT"):
        yield SetPath(())
        return
    found = [_schema(words)]
    while words.take(","):
        found.append(_schema(words))
    yield SetPath(tuple(name for name in found if name != "$user"))


def _schema(words: SqlWords) -> str:
    if words.next is not None and words.next.kind == "string":
        return words.string() or ""
    return words.name()


def _use(words: SqlWords) -> Iterator[Edit]:
    yield SetPath((words.name(),))


def _begin(words: SqlWords) -> Iterator[Edit]:
    yield Transaction("begin")


def _commit(words: SqlWords) -> Iterator[Edit]:
    yield Transaction("commit")


def _rollback(words: SqlWords) -> Iterator[Edit]:
    if words.has("TO"):
        raise Unclear("what a rollback to a savepoint takes back is not worked out")
    yield Transaction("rollback")


def _alter(words: SqlWords) -> Iterator[Edit]:
    words.any(("IGNORE", "ONLINE"))
    if words.take("MATERIALIZED", "VIEW") or words.take("FOREIGN", "TABLE") or words.any(("TABLE", "VIEW")):
        yield from alter(words)
    elif words.take("SCHEMA"):
        name = words.name()
        if words.take("RENAME", "TO"):
            yield RenameSchema(name, words.name())
    elif words.any(ROUTINES):
        return
    elif not words.any(_MADE_ASIDE) and not words.take("DATABASE") and not words.has("TRIGGER"):
        raise Unclear("what is altered is not known")


def _rename(words: SqlWords) -> Iterator[Edit]:
    """Yield the edits of MySQL's RENAME TABLE a TO b, c TO d."""
    if not words.any(("TABLE", "TABLES")):
        return
    while True:
        table = words.table()
        words.need("TO")
        yield renamed(table, words.table())
        if not words.take(","):
            break
    words.end()


def _drop(words: SqlWords) -> Iterator[Edit]:
    words.take("TEMPORARY")
    words.any(("ONLINE", "OFFLINE"))
    if words.take("MATERIALIZED", "VIEW") or words.take("FOREIGN", "TABLE") or words.any(("TABLE", "TABLES", "VIEW")):
        yield from _drop_tables(words)
    elif words.any(("SCHEMA", "DATABASE")):
        words.take("IF", "EXISTS")
        yield DropSchema(words.name())
        while words.take(","):
            yield DropSchema(words.name())
    elif words.has("CASCADE") or words.take("OWNED"):
        raise Unclear("what goes with it (CASCADE) is not known")


def _drop_tables(words: SqlWords) -> Iterator[Edit]:
    words.take("IF", "EXISTS")
    yield DropTable(words.table())
    while words.take(","):
        yield DropTable(words.table())
    words.any(("CASCADE", "RESTRICT"))
    words.end()


def _create(words: SqlWords) -> Iterator[Edit]:
    words.take("OR", "REPLACE")
    if words.any(("TEMP", "TEMPORARY")) or (words.any(("GLOBAL", "LOCAL")) and words.any(("TEMP", "TEMPORARY"))):
        return
    words.take("UNLOGGED")
    if words.take("FOREIGN", "TABLE"):
        yield from _create_table(words, "foreign")
    elif words.take("TABLE"):
        yield from _create_table(words, "table")
    elif words.has(*ROUTINES) or words.ahead("DEFINER"):
        raise Unclear("a routine is not read, and may change tables when it runs")
    elif words.has("VIEW"):
        raise Unclear("the columns of a view are known once it is there")
    elif not (words.any(("SCHEMA", "DATABASE", "UNIQUE", "VIRTUAL")) or words.has(*_MADE_ASIDE)):
        raise Unclear("what is created is not known")


def _create_table(words: SqlWords, kind: str) -> Iterator[Edit]:
    or_not = words.take("IF", "NOT", "EXISTS")
    table = words.table()
    if words.take("PARTITION", "OF"):
        return
    if words.take("LIKE"):
        yield CreateTable(table, (), like=words.table(), or_not=or_not, like_whole=True)
        return
    if not words.take("("):
        raise Unclear("the columns of a table made from a query are not known")
    if words.take("LIKE"):
        like = words.table()
        whole = bool(_WHOLE & set(words.until().upper().split()))
        words.need(")")
        yield CreateTable(table, (), like=like, or_not=or_not, like_whole=whole or words.dialect == "mysql")
        return
    columns, key = _body(words)
    words.need(")")
    comment = _options(words)
    key = key or PrimaryKey(tuple(c.name for c in columns if c.primary))
    yield CreateTable(table, tuple(columns), key.columns, key.name, None, comment, or_not, kind)


def _body(words: SqlWords) -> tuple[list[ColumnDefinition], PrimaryKey | None]:
    columns: list[ColumnDefinition] = []
    key: PrimaryKey | None = None
    while not words.ahead(")"):
        if words.ahead("LIKE"):
            raise Unclear("LIKE beside other columns is not worked out")
        if is_constraint(words):
            key = constraint(words) or key
        else:
            columns.append(column(words))
        if not words.take(","):
            break
    return columns, key


def _options(words: SqlWords) -> str | None:
    """Return the comment behind the columns. What gives the table more columns is not understood."""
    comment = None
    while words.next is not None:
        if words.ahead("INHERITS") or words.ahead("AS") or words.ahead("SELECT"):
            raise Unclear(f"what {words.advance().upper} gives the table is not known")
        if words.take("COMMENT"):
            words.take("=")
            comment = words.string()
        elif words.ahead("("):
            words.brackets()
        else:
            words.advance()
    return comment


def _comment(words: SqlWords) -> Iterator[Edit]:
    words.need("ON")
    what = words.any(("TABLE", "COLUMN", "VIEW"))
    if not what:
        return
    path: Name = words.path()
    words.need("IS")
    if what == "COLUMN":
        yield SetComment(path[:-1][-2:], path[-1], words.string())
    else:
        yield SetComment(path[-2:], "", words.string())


_STARTS: Mapping[str, Callable[[SqlWords], Iterator[Edit]]] = {
    "ALTER": _alter, "CREATE": _create, "DROP": _drop, "RENAME": _rename, "COMMENT": _comment, "SET": _set,
    "USE": _use, "SELECT": _select, "BEGIN": _begin, "START": _begin, "COMMIT": _commit, "END": _commit,
    "ROLLBACK": _rollback, "ABORT": _rollback,
}  # fmt: skip


@dataclass(frozen=True, order=True)
class At:
    """A file with a line of it, 1-based."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class MigrationStep:
    """A statement that edits schemas; `text` is all of it in one line."""

    at: At
    text: str
    edits: tuple[Edit, ...]


@dataclass(frozen=True)
class Unread:
    """A statement, or a part of a file, that is not understood, and why."""

    at: At
    why: str


@dataclass(frozen=True)
class Migration:
    """The edits of a migration."""

    steps: tuple[MigrationStep, ...]
    unread: tuple[Unread, ...]
    statements: int
    """Number of statements, those about rows included."""


def read_migration(scripts: Iterable[tuple[str, str]], dialect: str) -> Migration:
    """Return the edits of (file name, text), one after the other, in a dialect of `script.DIALECTS`."""
    steps: list[MigrationStep] = []
    unread: list[Unread] = []
    count = 0
    for file, text in scripts:
        script = read(text, dialect)
        unread += (Unread(At(file, p.line), p.text) for p in script.problems)
        for statement in script.statements:
            count += 1
            at = At(file, statement.line)
            try:
                found = edits(statement, script.text, dialect)
            except Unclear as error:
                unread.append(Unread(at, f"{statement.head}: {error}"))
                continue
            if found:
                steps.append(MigrationStep(at, statement.text, found))
    return Migration(tuple(steps), tuple(unread), count)
