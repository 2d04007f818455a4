"""Effect of a statement in the binary log on tables whose rows are followed.

A statement changes rows, or what columns they have, without a row being logged. Only what is known to leave rows as
they are is taken for harmless; after all else a table that the statement names is read as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

ANSI_QUOTES, MSSQL, NO_BACKSLASH_ESCAPES = 0x4, 0x400, 0x100000
"""Bits of sql_mode. MSSQL is MariaDB's own, which has names in square brackets."""
MODES = tuple(a | b for a in (0, ANSI_QUOTES, ANSI_QUOTES | MSSQL) for b in (0, NO_BACKSLASH_ESCAPES))
"""All that make a difference here."""
UNREADABLE = "\ufffd"
"""Stands for what is no letter of the session's character set."""
_COMMENT = r"/\*M?!\d*|/\*(?!M?!).*?\*/|\*/|--(?=[\s\x00-\x1f\x7f])[^\n]*|\#[^\n]*"
_LETTERS = r"\w$@\x80-\x9f\xa1-\U0010ffff"
_MARKS = {"back": "`", "double": '"', "single": "'", "square": "]"}
_QUOTES = frozenset("`'\"")


@dataclass(frozen=True)
class Token:
    text: str
    plain: bool

    @property
    def word(self) -> str:
        """Return the word in capitals; "" if it is quoted."""
        return self.text.upper() if self.plain else ""


def tokens_of(statement: str, mode: int) -> tuple[list[Token], bool]:
    """Return the words, and whether all of the statement was understood: a quote that does not end is a sign of another
    mode than this one. What is in comments that the server executes are words like all others."""
    tokens, whole = [], UNREADABLE not in statement
    lexicon, at, open_comment = _lexicon(mode & (ANSI_QUOTES | MSSQL | NO_BACKSLASH_ESCAPES)), 0, False
    while match := lexicon.search(statement, at):
        at = match.end()
        comment, kind = match["comment"], match.lastgroup or ""
        if comment == "*/" and not open_comment:
            at -= 1  # a product, and maybe a comment behind it
            tokens.append(Token("*", plain=True))
        elif comment is not None:
            open_comment = comment != "*/" and (open_comment or comment.startswith(("/*!", "/*M!")))
        elif mark := _MARKS.get(kind):
            tokens.append(Token(match[kind].replace(mark * 2, mark), plain=False))
        else:
            tokens.append(Token(match[kind], plain=True))
            whole = whole and tokens[-1].text not in _QUOTES
    return tokens, whole


@cache
def _lexicon(mode: int) -> re.Pattern[str]:
    """Return a pattern for the next word, mark, quoted text or comment."""
    escaped, plain = r"(?:[^{0}\\]|\\.|{0}{0})*", r"(?:[^{0}]|{0}{0})*"
    single = plain if mode & NO_BACKSLASH_ESCAPES else escaped
    double = plain if mode & (NO_BACKSLASH_ESCAPES | ANSI_QUOTES) else escaped
    square = r"\[(?P<square>(?:[^\]]|\]\])*)\]" if mode & MSSQL else r"(?P<square>(?!))"
    return re.compile(
        f'(?P<comment>{_COMMENT})|`(?P<back>{plain.format("`")})`|"(?P<double>{double.format(chr(34))})"'
        f"|'(?P<single>{single.format(chr(39))})'|{square}|(?P<word>[{_LETTERS}]+)|(?P<mark>\\S)",
        re.DOTALL,
    )


Ref = tuple[str, str]
_NOTHING = frozenset({
    "BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "START", "XA", "FLUSH", "GRANT", "REVOKE", "ANALYZE",
    "CHECK", "OPTIMIZE", "SET", "KILL", "RESET", "PURGE", "COMMENT",
})  # fmt: skip
_CHANGES = frozenset({"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "CALL", "WITH", "SELECT", "DO", "EXECUTE"})
_OBJECTS = frozenset({"CREATE", "DROP", "ALTER", "RENAME"})
_KINDS = frozenset({
    "TABLE", "TABLES", "VIEW", "TRIGGER", "PROCEDURE", "FUNCTION", "EVENT", "USER", "ROLE", "SERVER", "INDEX",
    "DATABASE", "SCHEMA", "SEQUENCE", "PACKAGE", "TABLESPACE", "LOGFILE", "INSTANCE", "RESOURCE",
})  # fmt: skip
_INDEX = frozenset({"INDEX", "KEY", "UNIQUE", "FULLTEXT", "SPATIAL"})
_NO_COLUMN = frozenset({"PARTITION", "PERIOD", "SYSTEM", "PRIMARY", "(", *_INDEX, "CONSTRAINT", "FOREIGN", "CHECK"})
_SETTINGS = frozenset({
    "COMMENT", "AUTO_INCREMENT", "ALGORITHM", "LOCK", "ROW_FORMAT", "STATS_PERSISTENT", "STATS_AUTO_RECALC",
    "STATS_SAMPLE_PAGES", "KEY_BLOCK_SIZE", "PAGE_COMPRESSED", "MAX_ROWS", "MIN_ROWS",
})  # fmt: skip
_BEFORE_NAMES = frozenset({"table", "tables", "truncate", "exists", "to", "with", "from", "into", "update", ","})


@dataclass(frozen=True)
class TableEffect:
    """Effect of a statement on a table: added and dropped columns, `placed` anywhere but behind the others; or `why`
    its rows may be other ones without having been logged, and whether its foreign keys or its name may be, too."""

    added: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    placed: bool = False
    why: str = ""
    rekeyed: bool = False


def edits(
    statement: str, database: str, tables: Collection[Ref], mode: int | None = None, other: str = ""
) -> Mapping[Ref, TableEffect]:
    """Return the edits by table, only of those of `tables` that the statement affects. `database` is the one it was run
    in, `mode` the sql_mode of its session, None if that is not known; `other` is what the statement may be as well. If
    it can be read in several ways with other results, all tables that any of them tells of may have other rows."""
    modes = MODES if mode is None or "SQL_MODE" in statement.upper() else (mode,)
    texts = (statement, other) if other else (statement,)
    readings = _ways(texts, database, tables, modes) or _ways(texts, database, tables, MODES)
    if not readings:
        return dict.fromkeys(
            tables, TableEffect(why="a statement of the log cannot be read, and may change rows unlogged", rekeyed=True)
        )
    table_effects: dict[Ref, TableEffect] = {}
    for reading in readings:
        for ref, edit in reading.items():
            sure = edit.why or all(w.get(ref) == edit for w in readings)
            if not table_effects.get(ref, TableEffect()).why:
                table_effects[ref] = (
                    edit
                    if sure
                    else TableEffect(why="a statement that can be read in several ways may change rows", rekeyed=True)
                )
    return table_effects


def _ways(
    texts: Sequence[str], database: str, tables: Collection[Ref], modes: Sequence[int]
) -> list[Mapping[Ref, TableEffect]]:
    """Return the readings of a statement that make sense: the server has run it."""
    readings = (_edits(text, database, tables, mode) for text in texts for mode in modes)
    return [reading for reading in readings if reading is not None]


def _edits(statement: str, database: str, tables: Collection[Ref], mode: int) -> Mapping[Ref, TableEffect] | None:
    tokens, whole = tokens_of(statement, mode)
    if not whole:
        return {} if _is_harmless(tokens) else None
    if [t.word for t in tokens[:2]] == ["SET", "STATEMENT"]:
        tokens = tokens[next((n + 1 for n, t in enumerate(tokens) if t.word == "FOR"), 0) :]
    first = tokens[0].word if tokens else ""
    analyzed = first == "ANALYZE" and not {"TABLE", "TABLES"} & {t.word for t in tokens[1:3]}
    if not tokens or (first in _NOTHING and not analyzed):
        return {}
    if first in _CHANGES or analyzed:
        # `DELETE FROM t` and nothing else: what the server logs for a table in memory after it was started
        words = [t.word for t in tokens[:2]]
        only = words == ["DELETE", "FROM"] and all(t.text == "." or t.word not in (",", "WHERE") for t in tokens[2:6])
        why = "a statement was logged in place of its rows (binlog_format was not ROW)"
        return {ref: TableEffect(why=why) for ref in (_named(tokens, database, tables) if only else tables)}
    if first in _OBJECTS and (table_effects := _of_object(tokens, database, tables)) is not None:
        return table_effects
    what = f"{first} {_kind(tokens)[0]}".strip()
    why = "it was truncated" if first == "TRUNCATE" else f"{what or 'a statement'} may change rows unlogged"
    effect = TableEffect(why=why, rekeyed=first != "TRUNCATE")
    return dict.fromkeys(_named(tokens, database, tables), effect)


def _is_harmless(tokens: list[Token]) -> bool:
    """Return whether its first words tell that it changes no rows, whatever comes behind them."""
    first = tokens[0].word if tokens else ""
    of_rows = _kind(tokens)[0] in ("TABLE", "TABLES", "DATABASE", "SCHEMA", "")
    return first in _NOTHING - {"SET", "ANALYZE"} or (first in _OBJECTS and not of_rows)


def _kind(tokens: list[Token]) -> tuple[str, int]:
    """Return the kind of object that a statement is about, and where it is named."""
    return next(((t.word, n) for n, t in enumerate(tokens[:20]) if t.word in _KINDS), ("", 0))


def _of_object(tokens: list[Token], database: str, tables: Collection[Ref]) -> Mapping[Ref, TableEffect] | None:
    """Return the effect of a statement on an object other than a table; None if it is about tables."""
    first, (kind, at) = tokens[0].word, _kind(tokens)
    before = {t.word for t in tokens[1:at]}
    if kind in ("DATABASE", "SCHEMA"):
        gone = {t.text.lower() for t in tokens[at + 1 :]} if first == "DROP" else set()
        return {
            ref: TableEffect(why="its database was dropped", rekeyed=True) for ref in tables if ref[0].lower() in gone
        }
    if kind not in ("TABLE", "TABLES", ""):
        return {}
    if "TEMPORARY" in before or (first == "CREATE" and "REPLACE" not in before):
        return {}
    return _altered(tokens[at + 1 :], database, tables) if first == "ALTER" and not before else None


def _named(tokens: list[Token], database: str, tables: Collection[Ref]) -> list[Ref]:
    """Return the tables whose names occur, alone (of `database`) or behind that of their database."""
    alone, full = set(), set()
    texts = ["", *(t.text.lower() for t in tokens)]
    for before, name in pairwise(texts):
        if before != ".":
            alone.add(name)
    for at in range(len(texts) - 2):
        if texts[at + 1] == ".":
            full.add((texts[at], texts[at + 2]))
            alone |= {texts[at + 2]} if texts[at] in _BEFORE_NAMES else set()  # `.name` is one of this database
    return [
        (schema, name)
        for schema, name in tables
        if (schema.lower(), name.lower()) in full or (schema.lower() == database.lower() and name.lower() in alone)
    ]


def _altered(tokens: list[Token], database: str, tables: Collection[Ref]) -> Mapping[Ref, TableEffect] | None:
    """Return the effect of an ALTER TABLE; None unless all of it is known to leave the rows as they are."""
    if [t.word for t in tokens[:2]] == ["IF", "EXISTS"]:
        tokens = tokens[2:]
    size = 3 if len(tokens) > 1 and tokens[1].text == "." else 1
    waits = {"WAIT": 2, "NOWAIT": 1}.get(tokens[size].word, 0) if len(tokens) > size else 0
    specs = [_spec(spec) for spec in _specs(tokens[size + waits :])]
    if not all(specs):
        return None
    edit = TableEffect(
        tuple(n for f in specs if f for n in f.added),
        tuple(n for f in specs if f for n in f.dropped),
        placed=any(f is not None and f.placed for f in specs),
    )
    return dict.fromkeys(_named(tokens[:size], database, tables), edit)


def _specs(tokens: list[Token]) -> Iterator[list[Token]]:
    """Yield the parts between commas that are in no brackets."""
    part: list[Token] = []
    depth = 0
    for token in tokens:
        depth += {"(": 1, ")": -1}.get(token.word, 0)
        if token.word == "," and not depth:
            yield part
            part = []
        else:
            part.append(token)
    yield part


def _spec(tokens: list[Token]) -> TableEffect | None:
    """Return one part of ALTER TABLE, None if it is not known to leave rows as they are."""
    words = [t.word for t in tokens]
    if not words:
        return None
    first, second = words[0], words[1] if len(words) > 1 else ""
    if first in _SETTINGS or first == "ENGINE":
        return _settings(words)
    if words == ["FORCE"]:
        return TableEffect()
    if first == "ALTER" and "DEFAULT" in words:
        return TableEffect()
    if first in ("ADD", "DROP", "RENAME") and second in _INDEX:
        return TableEffect()
    if first == "ADD" and second in ("CONSTRAINT", "CHECK", "FOREIGN") and "PRIMARY" not in words:
        return TableEffect()
    if first in ("ADD", "DROP") and second not in _NO_COLUMN:
        return _column(first, tokens[1:])
    return None


def _settings(words: list[str]) -> TableEffect | None:
    """Return the effect of table settings (none), with or without =; several may follow each other."""
    while words:
        name, size = words[0], 3 if words[1:2] == ["="] else 2
        is_known = name in _SETTINGS or (name == "ENGINE" and words[size - 1 : size] == ["INNODB"])
        if not is_known or len(words) < size:
            return None
        words = words[size:]
    return TableEffect()


def _column(verb: str, tokens: list[Token]) -> TableEffect | None:
    """Return the effect of ADD or DROP of one column."""
    for skipped in (["COLUMN"], ["IF", "NOT", "EXISTS"], ["IF", "EXISTS"]):
        if [t.word for t in tokens[: len(skipped)]] == skipped:
            tokens = tokens[len(skipped) :]
    if not tokens or tokens[0].word in ("(", *_KINDS):
        return None
    name = tokens[0].text.lower()
    if verb == "DROP":
        return TableEffect(dropped=(name,))
    return TableEffect(added=(name,), placed=any(t.word in ("FIRST", "AFTER") for t in tokens))
