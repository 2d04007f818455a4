"""The words of one SQL statement, read from left to right."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["word", "quoted", "string", "number", "sign"]
_PAIRS = {"(": ")", "[": "]"}


class Unclear(Exception):
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

    def ahead(self, *keywords: str) -> bool:
        """Return whether these keywords come next."""
        there = self._words[self._at : self._at + len(keywords)]
        return len(there) == len(keywords) and all(w.upper == k for w, k in zip(there, keywords, strict=True))

    def take(self, *keywords: str) -> bool:
        """Go past these keywords, if they come next."""
        if not self.ahead(*keywords):
            return False
        self._at += len(keywords)
        return True

    def any(self, keywords: Collection[str]) -> str:
        """Go past one of these keywords and answer it; "" if none is next."""
        word = self.next
        if word is None or word.upper not in keywords or not word.upper:
            return ""
        self._at += 1
        return word.upper

    def need(self, *keywords: str) -> None:
        if not self.take(*keywords):
            raise Unclear(f"{' '.join(keywords)} is expected {self._here()}")

    def _here(self) -> str:
        return f"before {self.next.text!r}" if self.next else "at the end"

    def advance(self) -> Word:
        if (word := self.next) is None:
            raise Unclear("it ends too early")
        self._at += 1
        return word

    def name(self) -> str:
        """Return a name, in quotes or without."""
        word = self.advance()
        if word.kind == "quoted" or (word.kind == "string" and self.dialect == "sqlite"):
            return word.text
        if word.kind != "word":
            raise Unclear(f"a name is expected, not {word.text!r}")
        return self.fold(word.text)

    def path(self) -> tuple[str, ...]:
        """Return a name with what stands before its dots."""
        found = [self.name()]
        while self.take("."):
            found.append(self.name())
        return tuple(found)

    def table(self) -> tuple[str, ...]:
        """(name,) or (schema, name): a database before them is left out."""
        return self.path()[-2:]

    def string(self) -> str | None:
        """Return the text of a string; None for NULL."""
        if self.take("NULL"):
            return None
        word = self.advance()
        if word.kind not in ("string", "quoted"):
            raise Unclear(f"a text is expected, not {word.text!r}")
        return word.text

    @property
    def mark(self) -> int:
        """A place to read from `since`."""
        return self._at

    def since(self, mark: int) -> str:
        """Return what has been read from a place on, as it is written."""
        there = self._words[mark : self._at]
        return self._script[there[0].start : there[-1].end] if there else ""

    def until(self, stop: Collection[str] = ()) -> str:
        """Read up to a comma, a closing bracket or one of the keywords, outside of brackets; answers what is there."""
        first = self._at
        while (word := self.next) is not None and word.upper not in (",", ")") and word.upper not in stop:
            if word.text in _PAIRS and word.kind == "sign":
                self.brackets()
            else:
                self._at += 1
        return self.since(first)

    def brackets(self) -> None:
        """Go past a pair of brackets with what is in them."""
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
            raise Unclear(f"{self.next.text!r} is not understood there")
