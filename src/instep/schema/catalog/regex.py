"""Regular expressions that people write for names and values, and that end soon on any text.

Python's engine backtracks, so its time grows with a power of a text's length, and exponentially where repeats are
nested. Nested ones are refused before they run; the others run in Python's engine while the text is short, and beyond
that in one that follows all ways at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from instep.errors import SchemaError

MAX_LENGTH = 200
MAX_REPEATS = 4
MAX_COUNT = 100
MAX_TRIES = 20_000
"""The ways through a text that Python's engine may have to try."""

_HINT = "a glob such as public.log_* is enough for most"
_NUMBER = r"x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|N\{[^}]*\}|0[0-7]{0,2}"
"""A character by its number or its name, behind a backslash."""
_TOKEN = re.compile(
    rf"(?P<back>\\[1-9])|(?P<escape>\\(?:{_NUMBER}|.))"
    r"|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])|(?P<special>\(\?[^:])"
    r"|(?P<open>\((?:\?:)?)|(?P<close>\))|(?P<repeat>(?:[*+?]|\{(?!\})\d*,?\d*\})[?+]?)|(?P<either>\|)|(?P<other>.)",
    re.DOTALL,
)


def check_regex(text: str) -> None:
    """Raise SchemaError, saying why, for an expression that is not valid or not surely quick.

    Refused: more than 200 characters, more than 4 repeats of variable length, `{n}` above 100, a repeat of a group
    that itself repeats or has alternatives, possessive repeats, look-around, back references. `(?i)` at the start is
    allowed.
    """
    if why := _slow(text):
        raise SchemaError(f"the regular expression {text!r} {why}", hint=_HINT)
    try:
        re.compile(text)
    except re.error as error:
        raise SchemaError(f"the regular expression {text!r} is not valid: {error}", hint=_HINT) from error


@lru_cache(1000)
def expression(text: str) -> Expression:
    """Return the expression of a text that `check_regex` accepts."""
    return Expression(text)


@dataclass(frozen=True)
class Expression:
    """A regular expression, whose answers are those of `re`. One that `check_regex` refuses runs in Python's engine
    alone."""

    text: str

    def fullmatch(self, text: str) -> bool:
        """Return whether it matches a whole text."""
        if (len(text) + 1) ** self._repeats <= MAX_TRIES or self._states is None:
            return self._compiled.fullmatch(text) is not None
        return self._states.matches(text, whole=True)

    def search(self, text: str) -> bool:
        """Return whether it matches somewhere in a text."""
        if (len(text) + 1) ** (self._repeats + 1) <= MAX_TRIES or self._states is None:
            return self._compiled.search(text) is not None
        return self._states.matches(text, whole=False)

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        return re.compile(self.text)

    @cached_property
    def _repeats(self) -> int:
        return sum(_is_variable(kind, token) for kind, token, _ in _walk(_body(self.text)))

    @cached_property
    def _states(self) -> _States | None:
        """Return its states; None for what `check_regex` refuses."""
        if _slow(self.text):
            return None
        tokens = [(kind, token) for kind, token, _ in _walk(_body(self.text))]
        return _States(tokens, re.IGNORECASE if self.text != _body(self.text) else re.RegexFlag(0))


def _body(text: str) -> str:
    return text.removeprefix("(?i)")


def _is_variable(kind: str, token: str) -> bool:
    return kind == "repeat" and not re.fullmatch(r"\{\d+\}[?+]?", token)


def _slow(text: str) -> str:
    if len(text) > MAX_LENGTH:
        return f"is longer than {MAX_LENGTH} characters"
    variable = 0
    for kind, token, inner in _walk(_body(text)):
        if kind in ("back", "special"):
            return f"uses {token}, which may be slow"
        if kind == "repeat" and len(token) > 1 and token.endswith("+"):
            return f"uses {token}, which may be slow"
        if kind == "repeat" and inner and token[0] != "?":
            return "repeats a group that itself repeats or has alternatives"
        if kind == "repeat" and any(int(n) > MAX_COUNT for n in re.findall(r"\d+", token)):
            return f"repeats more than {MAX_COUNT} times"
        variable += kind == "repeat" and not re.fullmatch(r"\{\d+\}[?+]?", token)
    return f"has more than {MAX_REPEATS} repeats of variable length" if variable > MAX_REPEATS else ""


def _walk(text: str) -> Iterator[tuple[str, str, bool]]:
    """Yield (kind, token, whether the part that the token follows holds a repeat or alternatives)."""
    groups, last = [False], False
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or "other"
        yield kind, match[0], last
        if kind == "open":
            groups.append(False)
        elif kind == "close" and len(groups) > 1:
            last = groups.pop()
            groups[-1] |= last
            continue
        elif kind in ("repeat", "either"):
            groups[-1] = True
        last = False


_ANCHORS = ("^", "$", r"\A", r"\Z", r"\b", r"\B")
_Part = Callable[[int], int]
"""Adds the states of a part before the state that follows it; returns the first of them."""


@dataclass(frozen=True)
class _State:
    """`token` is what is read, or a place that is asked for; without one it only leads on."""

    token: str = ""
    leads_to: tuple[int, ...] = ()


class _States:
    """The states of an expression; a text is read once, in all states that it can be in."""

    def __init__(self, tokens: Sequence[tuple[str, str]], flags: re.RegexFlag) -> None:
        self._tokens, self._flags = list(reversed(tokens)), flags
        self._states = [_State()]
        self._tests: dict[str, re.Pattern[str]] = {}
        self._first = self._alternatives()(0)

    def matches(self, text: str, *, whole: bool) -> bool:
        """Return whether the expression matches the whole text, or a part of it."""
        fits: dict[tuple[str, str], bool] = {}
        now = self._reached((self._first,), text, 0)
        for at, character in enumerate(text):
            if not whole and 0 in now:
                return True
            ahead = set[int]()
            for number in now:
                state = self._states[number]
                if state.token and state.token not in _ANCHORS:
                    key = state.token, character
                    if key not in fits:
                        fits[key] = self._tests[state.token].fullmatch(character) is not None
                    if fits[key]:
                        ahead.update(state.leads_to)
            now = self._reached(ahead if whole else {*ahead, self._first}, text, at + 1)
            if not now:
                return False
        return 0 in now

    def _reached(self, numbers: Iterable[int], text: str, at: int) -> set[int]:
        """Return these states, and those that they lead to before the next character."""
        reached, waiting = set[int](), list(numbers)
        while waiting:
            if (number := waiting.pop()) in reached:
                continue
            reached.add(number)
            state = self._states[number]
            if not state.token or (state.token in _ANCHORS and self._tests[state.token].match(text, at)):
                waiting += state.leads_to
        return reached

    def _add(self, state: _State) -> int:
        self._states.append(state)
        return len(self._states) - 1

    def _alternatives(self) -> _Part:
        ways = [self._sequence()]
        while self._tokens and self._tokens[-1][0] == "either":
            self._tokens.pop()
            ways.append(self._sequence())
        return ways[0] if len(ways) == 1 else lambda after: self._add(_State("", tuple(way(after) for way in ways)))

    def _sequence(self) -> _Part:
        parts: list[_Part] = []
        while self._tokens and self._tokens[-1][0] not in ("either", "close"):
            kind, token = self._tokens.pop()
            if kind == "open":
                parts.append(self._alternatives())
                self._tokens.pop()
            elif kind == "repeat":
                parts.append(self._repeated(parts.pop(), *_bounds(token)))
            else:
                parts.append(self._one(token))

        def build(after: int) -> int:
            for part in reversed(parts):
                after = part(after)
            return after

        return build

    def _one(self, token: str) -> _Part:
        source = token if token[0] in "\\[" or token in ".^$" else re.escape(token)
        self._tests[token] = re.compile(source, self._flags)
        return lambda after: self._add(_State(token, (after,)))

    def _repeated(self, part: _Part, least: int, most: int | None) -> _Part:
        def build(after: int) -> int:
            first = after
            if most is None:
                first = self._add(_State())
                self._states[first] = _State("", (part(first), after))
            for _ in range((most or least) - least):
                first = self._add(_State("", (part(first), after)))
            for _ in range(least):
                first = part(first)
            return first

        return build


def _bounds(token: str) -> tuple[int, int | None]:
    """Return the least and the most times of a repeat; None: no bound."""
    if token[0] in "*+?":
        return (1 if token[0] == "+" else 0), (1 if token[0] == "?" else None)
    low, comma, high = token.partition("}")[0][1:].partition(",")
    return int(low or 0), (int(high) if high else None if comma else int(low))
