"""The outputs of a connector's process as lines of the log, without secrets.

A line is cleaned as a whole before it is cut: a cut could leave half a secret on either side of it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import TextIO

from instep.sources.connector.config import Hidden
from instep.sources.connector.frames import Frame
from instep.sources.connector.segment import LogLine

LONGEST_LINE = 1 << 20
"""Characters of a line that are read; what comes behind them is left out."""
LOGGED_LINE = 10_000
"""Characters of a line of the log."""
_LEVELS = {"DEBUG": "debug", "INFO": "info", "WARNING": "warning", "ERROR": "error", "CRITICAL": "error"}
_LEVEL = re.compile(rf"(?:.{{0,80}}?[-|\s\[])?({'|'.join(_LEVELS)})(?=:|\]|\s+-\s|\s*\|)")


def output_lines(descriptor: int, hidden: Hidden, origin: str, level: str) -> Iterator[LogLine]:
    """Yield every line of an output until it ends, a long one as several. The descriptor is closed then."""
    with os.fdopen(descriptor, encoding="utf-8", errors="replace") as output:
        while line := output.readline(LONGEST_LINE):
            if not line.strip():
                continue
            text = hidden.clean(line.rstrip("\n"))
            if not line.endswith("\n") and len(line) == LONGEST_LINE:
                text = text[: -2 * LOGGED_LINE]
                _skip_line(output)
            for at in range(0, len(text), LOGGED_LINE):
                yield LogLine(level_of(line, level), text[at : at + LOGGED_LINE], origin)


def _skip_line(output: TextIO) -> None:
    """Leave out what comes of this line."""
    while (more := output.readline(LONGEST_LINE)) and not more.endswith("\n"):
        pass


def level_of(line: str, otherwise: str) -> str:
    """Return the log level at the beginning of a line, or between its time and its text, as Python's
    `logging` writes it."""
    match = _LEVEL.match(line)
    return _LEVELS[match[1]] if match else otherwise


def line_of(frame: Frame, hidden: Hidden) -> LogLine:
    """Return the log line of a frame, cleaned before it is cut."""
    return LogLine(str(frame.head["level"]), hidden.clean(str(frame.head["message"]))[:LOGGED_LINE])
