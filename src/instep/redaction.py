"""Secrets in texts: the forms in which programs repeat them, and the one place that blots them out."""

from __future__ import annotations

import base64
import html
import json
import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit

HIDDEN = "[redacted]"
CUT = "…"
"""Stands at the end of a text that was cut before its secrets were taken out: one may have been cut in two."""
SHORTEST = 4
"""Shorter secrets are not looked for in texts: they would be found in every word."""
_LINE = 8
"""Characters of the shortest line that is looked for by itself, of a secret of several lines."""
_OPAQUE, _HEAD = 20, 12
"""A secret of one word with so many characters is known by so many of its first ones: texts are cut off."""
_FRAME = " \t\r\n'\"`|\u2502\u2503,"
"""Characters that stand about a text that was broken into lines."""
_CORE = 4
"""Characters of the shortest base64 form that is looked for."""
_SAFE = ("", "/", "!'()*~", "!#$%&'()*+,/:;=?@[]~")
"""Characters that encoders of URLs leave as they are: those of forms, paths, browsers and whole addresses."""
SECRET_WORDS = "passphrase|passcode|pwd|secret|token|(?:private|api|account|shared|signing).?key"
"""Pattern of what secrets are called, in names and in texts."""
SECRET_NAME = re.compile(
    rf"passw|{SECRET_WORDS}|credential|webhook|access[_-]?key(?!.?id)|connection.?string"
    r"|cookies?$|(^|[_.-])(authorization|salt|sas|pat)$",
    re.IGNORECASE,
)
"""Pattern of a name in a project whose value may not be read by whoever reads the project."""
_NAMED = re.compile(rf"{SECRET_NAME.pattern}|access.?key|authorization|cookie", re.IGNORECASE)
"""Pattern of a name whose value is kept out of texts: there, a value too many that is hidden does no harm."""
_HARMLESS = re.compile(
    r"(?i:true|false|none|null|yes|no|on|off)"
    r"|[+-]?\d{1,15}(\.\d{1,9})?"  # a number
    r"|\d{4}-\d\d(-\d\d)?([T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?)?(Z|[+-]\d\d:?\d\d)?"  # a date, a time
)
_VALUE = re.compile(r"""["'`\u00ab\u2018\u201c\u201e]|(?<=\bvalue )[-+.\d]|(?<= )\((?=[-+.\d])""")
"""Pattern of where a value of a row begins in an error: it is quoted, or a number."""
_OF_VALUES = frozenset(("DataError", "IntegrityError", "InvalidInputException", "ValueError"))
"""Classes of errors that repeat a value of a row: those of drivers, of DuckDB, of Arrow."""
_STREAM = re.compile(r"reading the stream registered as '[^']*' failed: (?:Unknown error: )?")
"""Pattern of what DuckDB writes before the error of a stream that it reads; a traceback follows."""
_WORD = re.compile(r"[A-Za-z_]{1,12}|\d{1,6}|v\d{1,3}")


def names_secret(name: str) -> bool:
    """True if a field of this name holds a secret."""
    return _NAMED.search(name) is not None


def is_harmless(value: str) -> bool:
    """True for values that are never a secret: switches, numbers of up to 15 digits, dates and times."""
    return len(value) < SHORTEST or _HARMLESS.fullmatch(value) is not None


def is_plain(value: str) -> bool:
    """True for values that do not look like a secret: harmless ones, short words, and addresses made of these."""
    if is_harmless(value):
        return True
    if "://" in value:
        with suppress(ValueError):
            url = urlsplit(value)
            bare = not (url.username or url.password or url.query or url.fragment)
            return bare and all(_WORD.fullmatch(part) for part in re.split(r"[/._~-]", url.path) if part)
    if re.fullmatch(r"[a-z0-9-]+(\.[a-z0-9-]+)*\.[a-z]{2,8}(:\d{1,5})?", value):
        return True  # a host, whose name is in every address
    return _WORD.fullmatch(value) is not None


def without_value(text: str) -> str:
    """Return what a library says of a value of a row without the value, and without what follows it."""
    begin = _VALUE.search(text)
    return text if begin is None else f"{text[: begin.start()]}{HIDDEN}"


def error_line(error: BaseException) -> str:
    """Return the first line of an error of a library; without the value of a row, if the error may be about one. Of a
    stream that DuckDB reads it is the stream's own error, which is left as it is where it is one of ours."""
    text = str(error).strip()
    line = next(iter(text.splitlines()), type(error).__name__)
    if passed_on := _STREAM.search(line):
        line = line[passed_on.end() :].partition(". Detail: Python exception:")[0]
        if "\ninstep.errors." in text:
            return line
    is_of_value = not _OF_VALUES.isdisjoint(kind.__name__ for kind in type(error).__mro__)
    return without_value(line) if is_of_value else line


class Redactor:
    """Secrets, and texts without them. May be used by several threads at once."""

    def __init__(self, *values: str) -> None:
        self._lock = threading.Lock()
        self._values: set[str] = set()
        self._forms: tuple[str, ...] = ()
        self._encoded: tuple[str, ...] = ()
        self._heads: tuple[str, ...] = ()
        self.add(*values)

    def add(self, *values: str) -> None:
        """Redact these values from now on; values of fewer than 4 characters are skipped."""
        if all(value in self._values for value in values):
            return
        with self._lock:
            new = {part for value in values if value not in self._values for part in _parts(value)}
            self._values |= {*values, *new}
            known = {*self._forms, *(form for part in new for form in _forms(part))}
            self._forms = _longest_first(f for f in known if len(f) >= SHORTEST and f not in HIDDEN)
            encoded = {*self._encoded, *(form for part in new for form in _base64_forms(part))}
            self._encoded = _longest_first(encoded)
            opaque = (p for p in new if len(p) >= _OPAQUE and not re.search(r"\s|://", p))
            self._heads = _longest_first({*self._heads, *opaque})

    def clean(self, text: str) -> str:
        """Return the text without these secrets, in whatever form they stand in it."""
        if CUT in text:
            *parts, last = text.split(CUT)
            text = CUT.join([*(_without_half(part, (*self._encoded, *self._forms)) for part in parts), last])
        for form in self._encoded:
            if form in text:
                text = re.sub(rf"[A-Za-z0-9+/_-]?{re.escape(form)}[A-Za-z0-9+/_-]?(?:=|%3D){{0,2}}", HIDDEN, text)
        for form in self._forms:
            if form in text:
                text = text.replace(form, HIDDEN)
        for secret in self._heads:
            if secret[:_HEAD] in text:
                text = _without_beginnings(text, secret)
        return _without_rests(text, self._heads) if self._heads else text


def cut(text: str, most: int) -> str:
    """Return the text, cut to so many characters and marked as such, so that `clean` knows."""
    return text if len(text) <= most else f"{text[:most]}{CUT}"


def _without_half(text: str, forms: tuple[str, ...]) -> str:
    """Return a text that was cut at its end without the beginning of a secret that it ends with."""
    begin = len(text)
    for form in forms:
        at = text.find(form[:SHORTEST], max(len(text) - len(form), 0))
        while 0 <= at < begin and not form.startswith(text[at:]):
            at = text.find(form[:SHORTEST], at + 1)
        begin = at if 0 <= at < begin else begin
    return text if begin == len(text) else f"{text[:begin]}{HIDDEN}"


def _longest_first(forms: Iterator[str] | set[str]) -> tuple[str, ...]:
    return tuple(sorted(set(forms), key=lambda form: (-len(form), form)))


def _without_beginnings(text: str, secret: str) -> str:
    """Return the text without pieces of the secret that begin as it does and were cut off."""
    done, at = [], 0
    while (begin := text.find(secret[:_HEAD], at)) >= 0:
        end = begin + _HEAD
        while end < len(text) and end - begin < len(secret) and text[end] == secret[end - begin]:
            end += 1
        done += [text[at:begin], HIDDEN]
        at = end
    return "".join([*done, text[at:]])


def _without_rests(text: str, secrets: tuple[str, ...]) -> str:
    """Return the text without what is left of secrets on lines behind the one that they begin on: programs that print
    for a terminal break them where its lines end."""
    lines = text.splitlines(keepends=True)
    for at, line in enumerate(lines):
        word = (line.strip(_FRAME).split(maxsplit=1) or [""])[0].rstrip(_FRAME)
        if len(word) < _HEAD:
            continue
        for secret in secrets:
            end = word.find(secret[-_HEAD:]) + _HEAD
            rest = word[:end] if end >= _HEAD and secret.endswith(word[:end]) else word if word in secret else ""
            if rest:
                lines[at] = line.replace(rest, HIDDEN, 1)
                break
    return "".join(lines)


def _parts(value: str) -> Iterator[str]:
    """Yield the value, and what in it is a secret by itself: lines, the password of an address, leaves of a JSON
    document."""
    if len(value) < SHORTEST:
        return
    yield value
    if (bare := value.strip()) != value and len(bare) >= SHORTEST:
        yield bare
    lines = [line.strip() for line in value.splitlines()]
    if len(lines) > 1:
        yield from (line for line in lines if len(line) >= (SHORTEST if "-----BEGIN" in value else _LINE))
        yield from (joined for joined in ("\n".join(lines), "\r\n".join(lines), " ".join(lines), "".join(lines)))
    if "://" in value:
        yield from _of_address(value)
    if value.lstrip()[:1] in "{[":
        with suppress(ValueError, RecursionError):
            yield from secrets_in(json.loads(value))


def _of_address(value: str) -> Iterator[str]:
    with suppress(ValueError):
        url = urlsplit(value)
        found = [url.password or "", *(v for name, v in parse_qsl(url.query) if names_secret(name) or not is_plain(v))]
        for one in found:
            yield from (form for form in {one, unquote(one)} if len(form) >= SHORTEST)


def secrets_in(document: object, name: str = "", *, named_only: bool = False) -> Iterator[str]:
    """Yield texts of a JSON document that are secrets: those of fields that are called so, and (unless `named_only`)
    those that look like one."""
    if isinstance(document, dict):
        for key, part in document.items():
            inner = str(key) if names_secret(str(key)) or not names_secret(name) else name
            yield from secrets_in(part, inner, named_only=named_only)
    elif isinstance(document, list):
        for part in document:
            yield from secrets_in(part, name, named_only=named_only)
    elif (
        isinstance(document, str)
        and not is_harmless(document)
        and (names_secret(name) or not (named_only or is_plain(document)))
    ):
        yield from _parts(document)


def _forms(value: str) -> Iterator[str]:
    """Yield the value as it is, and as programs write it in JSON, Python, HTML, addresses and hexadecimal numbers."""
    yield value
    yield from _forms_of_bytes(value)
    for text in {json.dumps(value), json.dumps(value, ensure_ascii=False)}:
        yield text[1:-1]
        yield text[1:-1].replace("/", "\\/")
        yield json.dumps(text[1:-1])[1:-1]  # JSON inside of JSON
    yield repr(value)[1:-1]
    yield repr(value)[1:-1].replace("'", "\\'")
    yield html.escape(value)
    yield html.escape(value, quote=False)
    with suppress(UnicodeEncodeError):
        for encoded in (*(quote(value, safe=safe) for safe in _SAFE), quote_plus(value)):
            yield encoded
            yield re.sub("%[0-9A-F]{2}", lambda match: match[0].lower(), encoded)


def _forms_of_bytes(value: str) -> Iterator[str]:
    """Yield the forms in which programs show bytes, unprintable texts, and texts decoded in another encoding."""
    data = value.encode("utf-8", "surrogatepass")
    yield repr(data)[2:-1]
    yield ascii(value)[1:-1]
    yield value.encode("ascii", "backslashreplace").decode()
    yield data.decode("latin-1")
    yield re.sub(r"\\u[0-9a-f]{4}", lambda match: "\\u" + match[0][2:].upper(), json.dumps(value)[1:-1])
    if len(data) >= _LINE:
        yield from (data.hex(), data.hex().upper(), data.hex(" "), data.hex(":"))


def _base64_forms(value: str) -> Iterator[str]:
    """Yield the base64 characters that the value alone decides, wherever it is among other bytes: in both alphabets,
    as one text, in lines of 64 and 76 characters, and as addresses encode them."""
    data = value.encode("utf-8", "replace")
    for before in range(3):
        text = base64.b64encode(b"\0" * before + data).decode().rstrip("=")
        begin, end = -(-before * 8 // 6), (before + len(data)) * 8 // 6
        core = text[begin:end]
        pieces = [core]
        if not before:
            pieces += [core[at : at + size] for size in (64, 76) for at in range(0, len(core), size)]
        for piece in pieces:
            if len(piece) >= (_CORE if piece is core else 2 * _LINE):
                yield from (piece, piece.replace("+", "-").replace("/", "_"), quote(piece, safe=""))


_process = Redactor()
_referenced: set[str] = set()


def hide(*values: str) -> None:
    """Register secret values: `blot` removes them from every text from now on."""
    _process.add(*values)


def blot(text: str) -> str:
    """Return the text without the secrets that this process knows."""
    return _process.clean(text)


def note_referenced(value: str) -> None:
    """Remember that a value came from a reference: whoever wrote the project did not want it to be read there."""
    _referenced.add(value)


def is_referenced(value: str) -> bool:
    """True if a reference has had this value."""
    return value in _referenced
