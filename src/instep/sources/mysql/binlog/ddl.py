"""What a statement in the binary log does to tables whose rows are followed.

A statement changes rows, or what columns they have, without a row being logged. Only what is known to leave rows as
they are is taken for harmless; after all else a table that the statement names is read as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

Ref = tuple[str, str]
_TOKEN = re.compile(
    r"""`(?P<back>(?:[^`]|``)*)`|"(?P<double>(?:[^"\\]|\\.|"")*)"|'(?P<single>(?:[^'\\]|\\.|'')*)'"""
    r"""|(?P<word>[\w$@]+)|(?P<mark>\S)""",
    re.DOTALL,
)
_COMMENT = re.compile(r"/\*M?!\d*|/\*(?!M?!).*?\*/|\*/|--(?=\s)[^\n]*|\#[^\n]*", re.DOTALL)
_QUOTED = re.compile(r"""`(?:[^`]|``)*`|"(?:[^"\\]|\\.|"")*"|'(?:[^'\\]|\\.|'')*'""", re.DOTALL)
_NOTHING = frozenset({
    "BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "START", "XA", "FLUSH", "GRANT", "REVOKE", "ANALYZE",
    "CHECK", "OPTIMIZE", "SET", "KILL", "RESET", "PURGE", "COMMENT",
})  # fmt: skip
_CHANGES = frozenset({"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "CALL", "WITH", "SELECT", "DO", "EXECUTE"})
_KINDS = frozenset({
    "TABLE", "TABLES", "VIEW", "TRIGGER", "PROCEDURE", "FUNCTION", "EVENT", "USER", "ROLE", "SERVER", "INDEX",
    "DATABASE", "SCHEMA", "SEQUENCE", "PACKAGE", "TABLESPACE", "LOGFILE", "INSTANCE", "RESOURCE",
})  # fmt: skip
_INDEX = frozenset({"INDEX", "KEY", "UNIQUE", "FULLTEXT", "SPATIAL"})
_NO_COLUMN = frozenset({"PARTITION", "PERIOD", "SYSTEM", "PRIMARY", "(", *_INDEX, "CONSTRAINT", "FOREIGN", "CHECK"})
_SETTINGS = frozenset({
    "COMMENT", "AUTO_INCREMENT", "ALGORITHM", "LOCK", "ROW_FORMAT", "NOWAIT", "WAIT", "FORCE", "STATS_PERSISTENT",
    "STATS_AUTO_RECALC", "STATS_SAMPLE_PAGES", "KEY_BLOCK_SIZE", "PAGE_COMPRESSED", "MAX_ROWS", "MIN_ROWS",
})  # fmt: skip


@dataclass(frozen=True)
class Edit:
    """What becomes of a table: columns that come and go, `placed` anywhere but behind the others; or `why` its rows
    may be other ones without having been logged."""

    added: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    placed: bool = False
    why: str = ""


@dataclass(frozen=True)
class _Token:
    text: str
    plain: bool

    @property
    def word(self) -> str:
        """In capitals; "" for what is in quotes."""
        return self.text.upper() if self.plain else ""


def edits(statement: str, database: str, tables: Collection[Ref]) -> Mapping[Ref, Edit]:
    """By table, only those of `tables` that the statement does something to. `database` is the one it was run in."""
    tokens = _tokens(statement)
    if [t.word for t in tokens[:2]] == ["SET", "STATEMENT"]:
        tokens = tokens[next((n + 1 for n, t in enumerate(tokens) if t.word == "FOR"), 0) :]
    if not tokens or tokens[0].word in _NOTHING:
        return {}
    first = tokens[0].word
    if first in _CHANGES:
        only = _emptied(tokens)
        why = "a statement was logged in place of its rows (binlog_format was not ROW)"
        return {ref: Edit(why=why) for ref in (_named(tokens, database, tables) if only else tables)}
    if first in ("CREATE", "DROP", "ALTER", "RENAME") and (found := _of_object(tokens, database, tables)) is not None:
        return found
    what = f"{first} {_kind(tokens)[0]}".strip()
    why = "it was truncated" if first == "TRUNCATE" else f"{what or 'a statement'} may change rows unlogged"
    return {ref: Edit(why=why) for ref in _named(tokens, database, tables)}


def _tokens(statement: str) -> list[_Token]:
    text = "".join(_uncommented(statement))
    found = []
    for match in _TOKEN.finditer(text):
        quoted = next((match[name] for name in ("back", "double", "single") if match[name] is not None), None)
        if quoted is not None:
            found.append(_Token(quoted.replace("``", "`").replace('""', '"'), plain=False))
        else:
            found.append(_Token(match["word"] or match["mark"], plain=True))
    return found


def _uncommented(statement: str) -> Iterator[str]:
    """Without comments; what is in those that the server executes stays."""
    at = 0
    while at < len(statement):
        quoted, comment = _QUOTED.search(statement, at), _COMMENT.search(statement, at)
        if comment is None or (quoted is not None and quoted.start() < comment.start()):
            end = quoted.end() if quoted is not None else len(statement)
            yield statement[at:end]
        else:
            yield statement[at : comment.start()] + " "
            end = comment.end()
        at = end


def _emptied(tokens: list[_Token]) -> bool:
    """`DELETE FROM t` and nothing else: what the server logs for a table in memory after it was started."""
    words = [t.word for t in tokens[:2]]
    return words == ["DELETE", "FROM"] and all(t.text == "." or t.word not in (",", "WHERE") for t in tokens[2:6])


def _kind(tokens: list[_Token]) -> tuple[str, int]:
    """The kind of object that a statement is about, and where it is named."""
    return next(((t.word, n) for n, t in enumerate(tokens[:20]) if t.word in _KINDS), ("", 0))


def _of_object(tokens: list[_Token], database: str, tables: Collection[Ref]) -> Mapping[Ref, Edit] | None:
    """None if it is about tables, and nothing more is known."""
    first, (kind, at) = tokens[0].word, _kind(tokens)
    before = {t.word for t in tokens[1:at]}
    if kind in ("DATABASE", "SCHEMA"):
        gone = {t.text.lower() for t in tokens[at + 1 :]} if first == "DROP" else set()
        return {ref: Edit(why="its database was dropped") for ref in tables if ref[0].lower() in gone}
    if kind not in ("TABLE", "TABLES", ""):
        return {}
    if "TEMPORARY" in before or (first == "CREATE" and "REPLACE" not in before):
        return {}
    return _altered(tokens[at + 1 :], database, tables) if first == "ALTER" and not before else None


def _named(tokens: list[_Token], database: str, tables: Collection[Ref]) -> list[Ref]:
    """The tables whose names occur, alone (of `database`) or behind that of their database."""
    alone, full = set(), set()
    texts = ["", *(t.text.lower() for t in tokens)]
    for before, name in pairwise(texts):
        if before != ".":
            alone.add(name)
    for at in range(len(texts) - 2):
        if texts[at + 1] == ".":
            full.add((texts[at], texts[at + 2]))
    return [
        (schema, name) for schema, name in tables
        if (schema.lower(), name.lower()) in full or (schema.lower() == database.lower() and name.lower() in alone)
    ]  # fmt: skip


def _altered(tokens: list[_Token], database: str, tables: Collection[Ref]) -> Mapping[Ref, Edit] | None:
    """ALTER TABLE, if all of it is known to leave the rows as they are."""
    if [t.word for t in tokens[:2]] == ["IF", "EXISTS"]:
        tokens = tokens[2:]
    size = 3 if len(tokens) > 1 and tokens[1].text == "." else 1
    found = [_spec(spec) for spec in _specs(tokens[size:])]
    if not all(found):
        return None
    edit = Edit(
        tuple(n for f in found if f for n in f.added), tuple(n for f in found if f for n in f.dropped),
        placed=any(f is not None and f.placed for f in found),
    )  # fmt: skip
    return dict.fromkeys(_named(tokens[:size], database, tables), edit)


def _specs(tokens: list[_Token]) -> Iterator[list[_Token]]:
    """The parts between commas that are in no brackets."""
    part: list[_Token] = []
    depth = 0
    for token in tokens:
        depth += {"(": 1, ")": -1}.get(token.word, 0)
        if token.word == "," and not depth:
            yield part
            part = []
        else:
            part.append(token)
    yield part


def _spec(tokens: list[_Token]) -> Edit | None:
    """One part of ALTER TABLE, None if it is not known to leave rows as they are."""
    words = [t.word for t in tokens]
    if not words:
        return None
    first, second = words[0], words[1] if len(words) > 1 else ""
    if first in _SETTINGS or (first == "ENGINE" and words[-1] == "INNODB"):
        return Edit()
    if first == "ALTER" and "DEFAULT" in words:
        return Edit()
    if first in ("ADD", "DROP", "RENAME") and second in _INDEX:
        return Edit()
    if first == "ADD" and second in ("CONSTRAINT", "CHECK", "FOREIGN") and "PRIMARY" not in words:
        return Edit()
    if first in ("ADD", "DROP") and second not in _NO_COLUMN:
        return _column(first, tokens[1:])
    return None


def _column(verb: str, tokens: list[_Token]) -> Edit | None:
    """ADD or DROP of one column."""
    for skipped in (["COLUMN"], ["IF", "NOT", "EXISTS"], ["IF", "EXISTS"]):
        if [t.word for t in tokens[: len(skipped)]] == skipped:
            tokens = tokens[len(skipped) :]
    if not tokens or tokens[0].word in ("(", *_KINDS):
        return None
    name = tokens[0].text.lower()
    if verb == "DROP":
        return Edit(dropped=(name,))
    last = [t.word for t in tokens[-2:]]
    return Edit(added=(name,), placed="FIRST" in last or "AFTER" in last)
