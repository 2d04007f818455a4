"""The logs of server and worker: one JSON object a line on standard error, with the ids of the work, and no secrets.

Every room logs by the standard library; what this module sets up is the one place that sees each line, so that nothing
goes past its redaction: ours, a library's, a traceback.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, TextIO, TypeVar

from instep.errors import escaped_json, one_line, visible
from instep.redaction import HIDDEN, SECRET_WORDS, blot, error_line, names_secret

T = TypeVar("T")
_context: ContextVar[Mapping[str, str]] = ContextVar("instep_log", default=MappingProxyType({}))
_SECRET_NAME = rf"(?:passw(?:or)?d|access.?key|{SECRET_WORDS})".replace(".?", "[_-]?")
_SHAPES = (
    (re.compile(r"(://[^/@\s:]*:)[^/@\s]+@"), rf"\1{HIDDEN}@"),
    (re.compile(r"\b(instep_sk_|whsec_)[A-Za-z0-9+/=_-]+"), rf"\1{HIDDEN}"),
    (re.compile(r"\b(Bearer|Basic)(\s+|%20|\+)[A-Za-z0-9+/=._~%-]{8,}", re.IGNORECASE), rf"\1 {HIDDEN}"),
    # a JSON web token; one within a longer word is looked for only so far: the time must grow with a text, not squared
    (re.compile(r"(?:(?<![\w-])eyJ[\w-]{8,}|(?<=-)eyJ[\w-]{8,500})\.[\w-]+(?:\.[\w-]+)?", re.ASCII), HIDDEN),
    (re.compile(r"(/sign-in/(?:once/|oidc/done\?))[^\s\"']+"), rf"\1{HIDDEN}"),  # a link, and the code of a provider
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL), HIDDEN),
    (
        re.compile(
            rf"({_SECRET_NAME})(\\*[\"\']?\s*[=:]\s*)(?:\'[^\']*\'|\"[^\"]*\"|\\+\"[^\"]*(?<=\\)\"|[^\s,;&\'\"\\]+)",
            re.IGNORECASE,
        ),
        rf"\1\2{HIDDEN}",
    ),
)
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


@dataclass(frozen=True)
class LogSettings:
    """Settings of this process's log."""

    form: str = "auto"
    """Json, text, or auto: text on a terminal, else JSON."""
    level: str = "info"
    """The least that is written."""


def clean(text: str) -> str:
    """Return a text without the values that are hidden, and without what looks like a secret."""
    text = blot(text)
    for shape, instead in _SHAPES:
        text = shape.sub(instead, text)
    return text


def cleaned(value: Any, name: str = "") -> Any:
    """Return a document with the values hidden of names that mark secrets."""
    if isinstance(value, Mapping):
        return {clean(str(key)): cleaned(part, str(key)) for key, part in value.items()}
    if name and names_secret(name) and value not in (None, "", True, False):
        return HIDDEN
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list | tuple | set | frozenset):
        return [cleaned(part) for part in value]
    return value if value is None or isinstance(value, bool | int | float) else clean(str(value))


@contextmanager
def bound(**ids: str) -> Iterator[None]:
    """Add these fields to every log line of this thread within the block; empty ones are left out."""
    before = _context.get()
    token = _context.set({**before, **{name: value for name, value in ids.items() if value}})
    try:
        yield
    finally:
        _context.reset(token)


def context() -> Mapping[str, str]:
    """Return the fields of `bound` here."""
    return _context.get()


def fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return a line's fields beside its text: the ids of the work, and those given as `extra`."""
    given = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    return {**_context.get(), **given}


class AsJson(logging.Formatter):
    """`time` (UTC), `level`, `logger`, `message`, the fields, and `error` and `trace` of an exception."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = {"time": at, "level": record.levelname.lower(), "logger": record.name, "message": record.getMessage()}
        line |= {name: value for name, value in fields(record).items() if name not in line}
        if record.exc_info and record.exc_info[0] is not None:
            line |= {"error": record.exc_info[0].__name__, "trace": _trace(self, record)}
        return escaped_json(json.dumps(cleaned(line), ensure_ascii=False, default=str))


class AsText(logging.Formatter):
    """Log format for a terminal: time, level, text, fields, on one line; below it an exception, indented.

    What a source or connector has said moves no cursor, and no line of it passes for one of the log.
    """

    def format(self, record: logging.LogRecord) -> str:
        pairs = " ".join(
            f"{name}={value}" for name, value in cleaned(fields(record)).items() if value not in ("", None)
        )
        at = datetime.fromtimestamp(record.created, UTC)
        text = f"{at:%H:%M:%S} {record.levelname.lower():7} {record.getMessage()}{'  ' + pairs if pairs else ''}"
        if record.exc_info and record.exc_info[0] is not None:
            trace = visible(clean(_trace(self, record)))
            return "\n    ".join([one_line(clean(text)), *trace.splitlines()])
        return one_line(clean(text))


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    """Return the traceback of a record, without values of rows."""
    assert record.exc_info is not None, "asked before"
    trace = formatter.formatException(record.exc_info)
    return without_values(trace, record.exc_info[1]) if record.exc_info[1] is not None else trace


def without_values(trace: str, error: BaseException) -> str:
    """Return a traceback without the values of rows that its errors repeat."""
    seen, left = set[int](), [error]
    while left:
        one = left.pop()
        seen.add(id(one))
        text, line = str(one), error_line(one)
        if text and line != text.strip().splitlines()[0]:
            trace = trace.replace(text, line)
        left += [other for other in (one.__cause__, one.__context__) if other is not None and id(other) not in seen]
    return trace


def configure(settings: LogSettings, stream: TextIO | None = None) -> None:
    """Log everything of this process to `stream` (standard error) in this form. May be called again."""
    out = stream or sys.stderr
    form = settings.form if settings.form != "auto" else ("text" if out.isatty() else "json")
    writer = logging.StreamHandler(out)
    writer.setFormatter(AsJson() if form == "json" else AsText())
    root = logging.getLogger()
    root.handlers[:] = [writer]
    root.setLevel(logging.WARNING if settings.level in ("debug", "info") else settings.level.upper())
    for name in ("instep", "uvicorn"):
        logging.getLogger(name).setLevel(settings.level.upper())
    logging.captureWarnings(True)


def logged(settings: LogSettings, opener: Callable[[], T]) -> T:
    """Return the result of `opener`, in a process that logs so: a `partial` of this can be sent to another process."""
    configure(settings)
    return opener()


def log_info(text: str) -> None:
    """Log a line for those who watch a worker or server."""
    logging.getLogger("instep").info(text)
