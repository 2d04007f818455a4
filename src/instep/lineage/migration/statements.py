"""Statements as edits. Raises Unclear for what may change a schema and is not understood.

Migration scripts in their order, as edits with the places where they stand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from instep.lineage.migration.define import PrimaryKey, alter, column, constraint, is_constraint, renamed
from instep.lineage.migration.script import ROUTINES, ScriptStatement, SqlWords, UnparsableStatement, read
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
    reader = _STARTS.get(first.upper)
    if reader is not None:
        return tuple(reader(words))
    if first.upper in _DATA:
        return tuple(_rows(words))
    raise UnparsableStatement("the statement is not understood")


def _rows(words: SqlWords) -> Iterator[Edit]:
    return iter(())


def _select(words: SqlWords) -> Iterator[Edit]:
    """Yield a query. One that only calls a function may do anything; `SELECT ... INTO` makes a table."""
    if words.dialect == "postgres" and words.has("INTO"):
        raise UnparsableStatement("SELECT INTO makes a table whose columns are not known")
    call = words.next
    if call is None or call.kind != "word" or words.has("FROM"):
        return
    name = words.path()[-1]
    if not words.is_next("(") or name.upper() in _SAFE_CALLS:
        return
    if name.upper() == "SET_CONFIG":
        words.expect("(")
        if words.string() == "search_path":
            words.expect(",")
            yield SetPath(tuple(p.strip().strip('"') for p in (words.string() or "").split(",") if p.strip()))
        return
    raise UnparsableStatement(f"the effect of {name}() is not known")


def _set(words: SqlWords) -> Iterator[Edit]:
    words.any(("SESSION", "LOCAL"))
    if not words.skip("SEARCH_PATH"):
        return
    if not words.skip("TO"):
        words.expect("=")
    if words.skip("DEFAULT"):
        yield SetPath(())
        return
    schemas = [_schema(words)]
    while words.skip(","):
        schemas.append(_schema(words))
    yield SetPath(tuple(name for name in schemas if name != "$user"))


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
        raise UnparsableStatement("a rollback to a savepoint is not evaluated")
    yield Transaction("rollback")


def _alter(words: SqlWords) -> Iterator[Edit]:
    words.any(("IGNORE", "ONLINE"))
    if words.skip("MATERIALIZED", "VIEW") or words.skip("FOREIGN", "TABLE") or words.any(("TABLE", "VIEW")):
        yield from alter(words)
    elif words.skip("SCHEMA"):
        name = words.name()
        if words.skip("RENAME", "TO"):
            yield RenameSchema(name, words.name())
    elif words.any(ROUTINES):
        return
    elif not words.any(_MADE_ASIDE) and not words.skip("DATABASE") and not words.has("TRIGGER"):
        raise UnparsableStatement("the altered object is not known")


def _rename(words: SqlWords) -> Iterator[Edit]:
    """Yield the edits of MySQL's RENAME TABLE a TO b, c TO d."""
    if not words.any(("TABLE", "TABLES")):
        return
    while True:
        table = words.table()
        words.expect("TO")
        yield renamed(table, words.table())
        if not words.skip(","):
            break
    words.end()


def _drop(words: SqlWords) -> Iterator[Edit]:
    words.skip("TEMPORARY")
    words.any(("ONLINE", "OFFLINE"))
    if words.skip("MATERIALIZED", "VIEW") or words.skip("FOREIGN", "TABLE") or words.any(("TABLE", "TABLES", "VIEW")):
        yield from _drop_tables(words)
    elif words.any(("SCHEMA", "DATABASE")):
        words.skip("IF", "EXISTS")
        yield DropSchema(words.name())
        while words.skip(","):
            yield DropSchema(words.name())
    elif words.has("CASCADE") or words.skip("OWNED"):
        raise UnparsableStatement("the objects that are dropped with it (CASCADE) are not known")


def _drop_tables(words: SqlWords) -> Iterator[Edit]:
    words.skip("IF", "EXISTS")
    yield DropTable(words.table())
    while words.skip(","):
        yield DropTable(words.table())
    words.any(("CASCADE", "RESTRICT"))
    words.end()


def _create(words: SqlWords) -> Iterator[Edit]:
    words.skip("OR", "REPLACE")
    if words.any(("TEMP", "TEMPORARY")) or (words.any(("GLOBAL", "LOCAL")) and words.any(("TEMP", "TEMPORARY"))):
        return
    words.skip("UNLOGGED")
    if words.skip("FOREIGN", "TABLE"):
        yield from _create_table(words, "foreign")
    elif words.skip("TABLE"):
        yield from _create_table(words, "table")
    elif words.has(*ROUTINES) or words.is_next("DEFINER"):
        raise UnparsableStatement("a routine is not read, and may change tables when it runs")
    elif words.has("VIEW"):
        raise UnparsableStatement("the columns of a view are known once it is there")
    elif not (words.any(("SCHEMA", "DATABASE", "UNIQUE", "VIRTUAL")) or words.has(*_MADE_ASIDE)):
        raise UnparsableStatement("the created object is not known")


def _create_table(words: SqlWords, kind: str) -> Iterator[Edit]:
    or_not = words.skip("IF", "NOT", "EXISTS")
    table = words.table()
    if words.skip("PARTITION", "OF"):
        return
    if words.skip("LIKE"):
        yield CreateTable(table, (), like=words.table(), or_not=or_not, like_whole=True)
        return
    if not words.skip("("):
        raise UnparsableStatement("the columns of a table made from a query are not known")
    if words.skip("LIKE"):
        like = words.table()
        whole = bool(_WHOLE & set(words.read_until().upper().split()))
        words.expect(")")
        yield CreateTable(table, (), like=like, or_not=or_not, like_whole=whole or words.dialect == "mysql")
        return
    columns, key = _body(words)
    words.expect(")")
    comment = _options(words)
    key = key or PrimaryKey(tuple(c.name for c in columns if c.primary))
    yield CreateTable(table, tuple(columns), key.columns, key.name, None, comment, or_not, kind)


def _body(words: SqlWords) -> tuple[list[ColumnDefinition], PrimaryKey | None]:
    columns: list[ColumnDefinition] = []
    key: PrimaryKey | None = None
    while not words.is_next(")"):
        if words.is_next("LIKE"):
            raise UnparsableStatement("LIKE with other columns is not evaluated")
        if is_constraint(words):
            key = constraint(words) or key
        else:
            columns.append(column(words))
        if not words.skip(","):
            break
    return columns, key


def _options(words: SqlWords) -> str | None:
    """Return the comment behind the columns. What gives the table more columns is not understood."""
    comment = None
    while words.next is not None:
        if words.is_next("INHERITS") or words.is_next("AS") or words.is_next("SELECT"):
            raise UnparsableStatement(f"the columns that {words.advance().upper} gives the table are not known")
        if words.skip("COMMENT"):
            words.skip("=")
            comment = words.string()
        elif words.is_next("("):
            words.brackets()
        else:
            words.advance()
    return comment


def _comment(words: SqlWords) -> Iterator[Edit]:
    words.expect("ON")
    what = words.any(("TABLE", "COLUMN", "VIEW"))
    if not what:
        return
    path: Name = words.path()
    words.expect("IS")
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
class FileLine:
    """A file with a line of it, 1-based."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class MigrationStep:
    """A statement that edits schemas; `text` is all of it in one line."""

    at: FileLine
    text: str
    edits: tuple[Edit, ...]


@dataclass(frozen=True)
class UnreadStatement:
    """A statement, or a part of a file, that is not understood, and why."""

    at: FileLine
    why: str


@dataclass(frozen=True)
class Migration:
    """The edits of a migration."""

    steps: tuple[MigrationStep, ...]
    unread: tuple[UnreadStatement, ...]
    statements: int
    """Number of statements, those about rows included."""


def read_migration(scripts: Iterable[tuple[str, str]], dialect: str) -> Migration:
    """Return the edits of (file name, text), one after the other, in a dialect of `script.DIALECTS`."""
    steps: list[MigrationStep] = []
    unread: list[UnreadStatement] = []
    count = 0
    for file, text in scripts:
        script = read(text, dialect)
        unread += (UnreadStatement(FileLine(file, p.line), p.text) for p in script.problems)
        for statement in script.statements:
            count += 1
            at = FileLine(file, statement.line)
            try:
                found_edits = edits(statement, script.text, dialect)
            except UnparsableStatement as error:
                unread.append(UnreadStatement(at, f"{statement.head}: {error}"))
                continue
            if found_edits:
                steps.append(MigrationStep(at, statement.text, found_edits))
    return Migration(tuple(steps), tuple(unread), count)
