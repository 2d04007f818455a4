"""A migration script as statements, each with its line. What cannot be one is said, never passed over.

The words of one SQL statement, read from left to right.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import sqlglot
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

Kind = Literal["word", "quoted", "string", "number", "sign"]
_PAIRS = {"(": ")", "[": "]"}


class UnparsableStatement(Exception):
    """A statement that is not understood, and why."""


@dataclass(frozen=True)
class Word:
    """`text` is without quotes; `start` and `end` are its places in the script, `end` behind the last character."""

    text: str
    kind: Kind
    line: int
    start: int
    end: int

    @property
    def upper(self) -> str:
        """The keyword that it may be; "" for names in quotes, strings and numbers."""
        return self.text.upper() if self.kind in ("word", "sign") else ""


class SqlWords:
    """`fold` is what the dialect does to names without quotes. Raises Unclear where something else is expected."""

    def __init__(self, words: Sequence[Word], script: str, dialect: str) -> None:
        self._words, self._script, self.dialect = words, script, dialect
        self._at = 0

    @property
    def fold(self) -> Callable[[str], str]:
        return str.lower if self.dialect == "postgres" else str

    @property
    def next(self) -> Word | None:
        return self._words[self._at] if self._at < len(self._words) else None

    def is_next(self, *keywords: str) -> bool:
        """Return whether these keywords come next."""
        following = self._words[self._at : self._at + len(keywords)]
        return len(following) == len(keywords) and all(w.upper == k for w, k in zip(following, keywords, strict=True))

    def skip(self, *keywords: str) -> bool:
        """Skip these keywords, if they come next; return whether they did."""
        if not self.is_next(*keywords):
            return False
        self._at += len(keywords)
        return True

    def any(self, keywords: Collection[str]) -> str:
        """Skip one of these keywords and return it; "" if none is next."""
        word = self.next
        if word is None or word.upper not in keywords or not word.upper:
            return ""
        self._at += 1
        return word.upper

    def expect(self, *keywords: str) -> None:
        if not self.skip(*keywords):
            raise UnparsableStatement(f"{' '.join(keywords)} is expected {self._position()}")

    def _position(self) -> str:
        return f"before {self.next.text!r}" if self.next else "at the end"

    def advance(self) -> Word:
        if (word := self.next) is None:
            raise UnparsableStatement("it ends too early")
        self._at += 1
        return word

    def name(self) -> str:
        """Return a name, in quotes or without."""
        word = self.advance()
        if word.kind == "quoted" or (word.kind == "string" and self.dialect == "sqlite"):
            return word.text
        if word.kind != "word":
            raise UnparsableStatement(f"a name is expected, not {word.text!r}")
        return self.fold(word.text)

    def path(self) -> tuple[str, ...]:
        """Return a name with its qualifiers."""
        names = [self.name()]
        while self.skip("."):
            names.append(self.name())
        return tuple(names)

    def table(self) -> tuple[str, ...]:
        """Return (name,) or (schema, name): a database before them is left out."""
        return self.path()[-2:]

    def string(self) -> str | None:
        """Return the text of a string; None for NULL."""
        if self.skip("NULL"):
            return None
        word = self.advance()
        if word.kind not in ("string", "quoted"):
            raise UnparsableStatement(f"a text is expected, not {word.text!r}")
        return word.text

    @property
    def mark(self) -> int:
        """A place to read from `since`."""
        return self._at

    def since(self, mark: int) -> str:
        """Return the text read since a mark, as it is written."""
        words_read = self._words[mark : self._at]
        return self._script[words_read[0].start : words_read[-1].end] if words_read else ""

    def read_until(self, stop: Collection[str] = ()) -> str:
        """Read up to a comma, a closing bracket or one of the keywords, outside of brackets; answers what is there."""
        first = self._at
        while (word := self.next) is not None and word.upper not in (",", ")") and word.upper not in stop:
            if word.text in _PAIRS and word.kind == "sign":
                self.brackets()
            else:
                self._at += 1
        return self.since(first)

    def brackets(self) -> None:
        """Skip a pair of brackets with their content."""
        depth = 0
        while (word := self.advance()) is not None:
            if word.kind == "sign":
                depth += (word.text in _PAIRS) - (word.text in _PAIRS.values())
            if depth == 0:
                return

    def has(self, *keywords: str) -> bool:
        """Return whether one of the keywords is anywhere ahead."""
        return any(w.upper in keywords for w in self._words[self._at :])

    def end(self) -> None:
        if self.next is not None:
            raise UnparsableStatement(f"{self.next.text!r} is not understood there")


DIALECTS = ("postgres", "mysql", "sqlite")
ROUTINES = {"FUNCTION", "PROCEDURE", "TRIGGER", "EVENT", "PACKAGE"}
_STRINGS = {
    TokenType.STRING,
    TokenType.NATIONAL_STRING,
    TokenType.RAW_STRING,
    TokenType.HEREDOC_STRING,
    TokenType.BYTE_STRING,
    TokenType.HEX_STRING,
    TokenType.BIT_STRING,
    TokenType.UNICODE_STRING,
}
_DOWN = re.compile(r"^[ \t]*--[ \t]*(?:\+goose\s+down|\+migrate\s+down|migrate:down|@undo|//@undo)\b", re.I | re.M)
_UP = re.compile(r"^[ \t]*--[ \t]*(?:\+goose\s+up|\+migrate\s+up|migrate:up)\b", re.I | re.M)
_META = re.compile(r"^[ \t]*\\(\S*).*$", re.M)
_QUIET_META = {"set", "unset", "echo", "timing", "pset", "restrict", "unrestrict", "q", "encoding", "x", "."}
_COPIED = re.compile(r"^([ \t]*copy\s[^;]*\sfrom\s+stdin[^;]*;[^\n]*\n)(.*?)(?=^\\\.[ \t]*$)", re.I | re.M | re.S)
_DELIMITER = re.compile(r"^[ \t]*delimiter[ \t]+(\S+)[ \t]*\r?$", re.I | re.M)
_GLUED = re.compile(r"^[ \t]*--[a-z].*$", re.I | re.M)
"""Comments of tools (`--changeset`): MySQL itself wants a space there."""
_EXECUTED = re.compile(r"/\*M?!")


@dataclass(frozen=True)
class ScriptStatement:
    """A statement of a script."""

    line: int
    words: tuple[Word, ...]
    head: str
    """First words of the statement, for messages."""
    text: str
    """Text of the statement in one line."""


@dataclass(frozen=True)
class ScriptProblem:
    """Statement that is not understood, with its place."""

    line: int
    text: str


@dataclass(frozen=True)
class Script:
    """A migration script, parsed into statements."""

    text: str
    """The script as it was read, for the places of the words."""
    statements: tuple[ScriptStatement, ...]
    problems: tuple[ScriptProblem, ...]


def read(text: str, dialect: str) -> Script:
    """Return the statements of a script, in order. What a tool would only do to take it back (`-- +goose Down`, `--
    migrate:down`) is left out."""
    problems: list[ScriptProblem] = []
    text = _without_down(text)
    if dialect == "postgres":
        text = _without_meta(_COPIED.sub(lambda m: m[1] + _blank(m[2]), text), problems)
    if dialect == "mysql":
        text = _GLUED.sub(lambda m: _blank(m[0]), text)
        text = _without_delimiters(text, problems)
        problems += (
            ScriptProblem(
                text.count("\n", 0, m.start()) + 1, "the contents of an executable comment (/*! ... */) are not read"
            )
            for m in _EXECUTED.finditer(text)
        )
    try:
        words = list(_words(sqlglot.tokenize(text, dialect=dialect), text, dialect))
    except (SqlglotError, RecursionError) as error:
        return Script(text, (), (*problems, ScriptProblem(_line(error), f"it does not parse: {_error_text(error)}")))
    statements = tuple(_statements(text, words))
    return Script(text, statements, tuple(problems))


def _error_text(error: Exception) -> str:
    return str(error).splitlines()[0][:200]


def _line(error: Exception) -> int:
    match = re.search(r"line (\d+)", str(error), re.I)
    return int(match[1]) if match else 1


def _blank(text: str) -> str:
    """Blank out the text but keep its newlines, so that line numbers stay valid."""
    return re.sub(r"[^\n]", " ", text)


def _without_down(text: str) -> str:
    """Remove the down parts of a migration, also from files that have several."""
    at = 0
    while match := _DOWN.search(text, at):
        again = _UP.search(text, match.end())
        end = again.start() if again else len(text)
        text = text[: match.start()] + _blank(text[match.start() : end]) + text[end:]
        at = end
    return text


def _without_meta(text: str, problems: list[ScriptProblem]) -> str:
    """Blank out psql's own commands; those that run other files or query results are reported as problems."""

    def blanked(match: re.Match[str]) -> str:
        if match[1].lower() not in _QUIET_META:
            line = text.count("\n", 0, match.start()) + 1
            problems.append(ScriptProblem(line, f"psql's \\{match[1]} is not followed"))
        return _blank(match[0])

    return _META.sub(blanked, text)


def _without_delimiters(text: str, problems: list[ScriptProblem]) -> str:
    """Blank out the text between `DELIMITER //` and `DELIMITER ;`: bodies of routines, which are not read."""
    marks = [*_DELIMITER.finditer(text)]
    for mark, end in zip(marks, [*(m.start() for m in marks[1:]), len(text)], strict=False):
        if mark[1] != ";":
            problems += _bodies(text, mark.end(), end, mark[1])
            text = text[: mark.end()] + _blank(text[mark.end() : end]) + text[end:]
        text = text[: mark.start()] + _blank(mark[0]) + text[mark.end() :]
    return text


def _bodies(text: str, start: int, end: int, delimiter: str) -> Iterator[ScriptProblem]:
    for piece in text[start:end].split(delimiter):
        if piece.strip():
            line = text.count("\n", 0, start + len(piece) - len(piece.lstrip())) + 1
            yield ScriptProblem(line, f"{' '.join(piece.split()[:4])} ... is not understood")
        start += len(piece) + len(delimiter)


def _words(tokens: Sequence[Token], text: str, dialect: str, offset: int = 0) -> Iterator[Word]:
    """Yield the words; keywords of several words are taken apart. The text behind a command that sqlglot does not
    parse is read once more to find its words."""
    commands = sqlglot.Dialect.get_or_raise(dialect).tokenizer_class.COMMANDS
    last: Token | None = None
    for token in tokens:
        before, last = last, token
        start, end = token.start + offset, token.end + 1 + offset
        raw = text[start:end]
        at = text.count("\n", 0, start) + 1
        if token.token_type == TokenType.STRING and before is not None and before.token_type in commands:
            start = before.end + 1 + offset
            yield from _words(sqlglot.tokenize(text[start:end], dialect=dialect), text, dialect, start)
        elif token.token_type in _STRINGS:
            yield Word(token.text, "string", at, start, end)
        elif token.token_type == TokenType.IDENTIFIER:
            yield Word(token.text, "quoted", at, start, end)
        elif token.token_type == TokenType.NUMBER:
            yield Word(token.text, "number", at, start, end)
        else:
            for part in re.finditer(r"\S+", raw):
                kind: Kind = "word" if re.match(r"[\w$]", part[0]) else "sign"
                yield Word(part[0], kind, at, start + part.start(), start + part.end())


def _statements(text: str, words: Sequence[Word]) -> Iterator[ScriptStatement]:
    """Yield the statements; a semicolon within the body of a routine ends none."""
    read: list[Word] = []
    depth = 0
    for at, word in enumerate(words):
        if word.text == ";" and word.kind == "sign" and depth <= 0:
            yield from _statement(text, read)
            read, depth = [], 0
            continue
        read.append(word)
        if read[0].upper == "CREATE" and any(w.upper in ROUTINES for w in read[:8]):
            after = words[at + 1].upper if at + 1 < len(words) else ""
            ends = len(read) > 1 and read[-2].upper == "END"
            depth += word.upper in ("BEGIN", "CASE") and not ends
            depth -= word.upper == "END" and after not in ("IF", "LOOP", "WHILE", "REPEAT", "FOR")
    yield from _statement(text, read)


def _statement(text: str, words: list[Word]) -> Iterator[ScriptStatement]:
    if words:
        head = " ".join(w.text for w in words[:5] if w.kind in ("word", "quoted"))
        whole = " ".join(text[words[0].start : words[-1].end].split())
        yield ScriptStatement(words[0].line, tuple(words), head, whole)
