"""The words of a statement by the sql_mode of its session: what is in quotes, or in a comment, depends on that."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

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
        """In capitals; "" for what is in quotes."""
        return self.text.upper() if self.plain else ""


def tokens_of(statement: str, mode: int) -> tuple[list[Token], bool]:
    """The words, and whether all of the statement was understood: a quote that does not end is a sign of another mode
    than this one. What is in comments that the server executes are words like all others."""
    found, whole = [], UNREADABLE not in statement
    lexicon, at, open_comment = _lexicon(mode & (ANSI_QUOTES | MSSQL | NO_BACKSLASH_ESCAPES)), 0, False
    while match := lexicon.search(statement, at):
        at = match.end()
        comment, kind = match["comment"], match.lastgroup or ""
        if comment == "*/" and not open_comment:
            at -= 1  # a product, and maybe a comment behind it
            found.append(Token("*", plain=True))
        elif comment is not None:
            open_comment = comment != "*/" and (open_comment or comment.startswith(("/*!", "/*M!")))
        elif mark := _MARKS.get(kind):
            found.append(Token(match[kind].replace(mark * 2, mark), plain=False))
        else:
            found.append(Token(match[kind], plain=True))
            whole = whole and found[-1].text not in _QUOTES
    return found, whole


@cache
def _lexicon(mode: int) -> re.Pattern[str]:
    """What finds the next word, mark, quoted text or comment."""
    escaped, plain = r"(?:[^{0}\\]|\\.|{0}{0})*", r"(?:[^{0}]|{0}{0})*"
    single = plain if mode & NO_BACKSLASH_ESCAPES else escaped
    double = plain if mode & (NO_BACKSLASH_ESCAPES | ANSI_QUOTES) else escaped
    square = r"\[(?P<square>(?:[^\]]|\]\])*)\]" if mode & MSSQL else r"(?P<square>(?!))"
    return re.compile(
        f'(?P<comment>{_COMMENT})|`(?P<back>{plain.format("`")})`|"(?P<double>{double.format(chr(34))})"'
        f"|'(?P<single>{single.format(chr(39))})'|{square}|(?P<word>[{_LETTERS}]+)|(?P<mark>\\S)",
        re.DOTALL,
    )
