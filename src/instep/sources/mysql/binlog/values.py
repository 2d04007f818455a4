"""Values in row images of the binary log: how long each is, and those of keys as SQL."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from struct import unpack_from
from typing import Final

from instep.sources.mysql.binlog.wire import RowImages, TableMap, counted_number
from instep.sources.mysql.types import literal

TIMESTAMP2, DATETIME2, TIME2, BIT, DECIMAL, VARCHAR, STRING, ENUM, SET = 17, 18, 19, 16, 246, 15, 254, 247, 248
_FIXED: Final = {1: 1, 2: 2, 3: 4, 4: 4, 5: 8, 6: 0, 7: 4, 8: 8, 9: 3, 10: 3, 11: 3, 12: 8, 13: 1, 14: 3}
_JSON: Final = 245
_BLOBS: Final = frozenset({140, 242, 245, 249, 250, 251, 252, 255})
_DIGITS: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_INTEGERS: Final = {"tinyint": 1, "smallint": 2, "mediumint": 9, "int": 3, "bigint": 8}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
Value = Callable[[bytes], str]
Size = int | Callable[[bytes, int], tuple[int, int]]
"""The bytes of a value, or a function that tells where one begins and ends."""


class UnreadableImage(Exception):
    """An image that cannot be taken apart by what is known of its table."""


@dataclass(frozen=True)
class KeyColumn:
    """A column as the catalog has it: `native` is its type, `charset` that of its texts, "" for bytes."""

    name: str
    native: str
    charset: str = ""


def size_of(kind: int, meta: int) -> Size:
    """Return the size for a column of this kind in a table map."""
    if kind in _FIXED:
        return _FIXED[kind]
    if kind in (TIMESTAMP2, DATETIME2, TIME2):
        return {TIMESTAMP2: 4, DATETIME2: 5, TIME2: 3}[kind] + (meta + 1) // 2
    if kind == BIT:
        return (meta >> 8) + bool(meta & 0xFF)
    if kind == DECIMAL:
        return _decimal_size(meta & 0xFF, meta >> 8)
    if kind in _BLOBS:
        return _counted(meta)
    if kind in (VARCHAR, 141):
        return _counted(2 if meta > 255 else 1)
    if kind in (STRING, 253, ENUM, SET):
        real, longest = _string(meta)
        return longest if real in (ENUM, SET) else _counted(2 if longest > 255 else 1)
    raise UnreadableImage(f"it has a column of a kind that is not known ({kind})")


def _counted(width: int) -> Callable[[bytes, int], tuple[int, int]]:
    def ends(data: bytes, at: int) -> tuple[int, int]:
        begin = at + width
        return begin, begin + int.from_bytes(data[at:begin], "little")

    return ends


def _string(meta: int) -> tuple[int, int]:
    """Return (the real kind, bytes at most): two bits of the length are hidden in the kind."""
    first, second = meta & 0xFF, meta >> 8
    if first & 0x30 != 0x30:
        return first | 0x30, second | (((first & 0x30) ^ 0x30) << 4)
    return first, second


def _decimal_size(precision: int, scale: int) -> int:
    whole = precision - scale
    return whole // 9 * 4 + _DIGITS[whole % 9] + scale // 9 * 4 + _DIGITS[scale % 9]


@dataclass(frozen=True)
class Images:
    """Layout by which the key is cut out of the images of one mapped table: `sizes` of all columns, `values` of the
    key's by place in the row, in the order of the key."""

    sizes: tuple[Size, ...]
    values: dict[int, Value]
    json: int = 0
    """Number of JSON columns."""
    plans: dict[bytes, _Plan] = field(default_factory=dict, compare=False, repr=False)

    def keys(self, rows: RowImages) -> list[tuple[str | None, ...]]:
        """Return the key in each image, None for what an image lacks. Raises UnreadableImage."""
        data, at, decoded, end = rows.data, 0, [], len(rows.data)
        plans = [self._plan(bits) for bits in rows.present]
        before: tuple[str | None, ...] = ()
        while at < end:
            for number, plan in enumerate(plans):
                if number and rows.partial:
                    at = self._behind_options(data, at)
                key, at = plan.image(data, at)
                if number and not plan.complete:
                    key = tuple(b if k is None else k for k, b in zip(key, before, strict=True))
                before = key
                decoded.append(key)
        if at != end:
            raise UnreadableImage("a row does not end where it should")
        return decoded

    def _behind_options(self, data: bytes, at: int) -> int:
        """Return the place behind the options of a partial update, which name the JSON columns given as differences.

        These are as long as they say, like whole ones.
        """
        options, at = counted_number(data, at)
        return at + (self.json + 7) // 8 if options & 1 else at

    def _plan(self, bits: bytes) -> _Plan:
        if bits not in self.plans:
            self.plans[bits] = _Plan.of(self, bits)
        return self.plans[bits]

    def is_key_changed(self, rows: RowImages) -> bool | None:
        """Return whether an update has changed a key; None if that is unknown."""
        try:
            keys = self.keys(rows)
        except (UnreadableImage, IndexError, ValueError):
            return None
        return any(before != after for before, after in zip(keys[::2], keys[1::2], strict=True))


@dataclass(frozen=True)
class _Plan:
    """Plan for taking images with these columns apart: `places` one by one, or without a NULL by `steps`: bytes to
    leave out, then a value's size, and its place if it is the key's; `rest` are the bytes behind."""

    images: Images
    places: tuple[int, ...]
    steps: tuple[tuple[int, Size, int | None], ...]
    rest: int
    complete: bool

    @classmethod
    def of(cls, images: Images, bits: bytes) -> _Plan:
        places = tuple(n for n in range(len(images.sizes)) if bits[n >> 3] >> (n & 7) & 1)
        steps, skipped = [], 0
        for place in places:
            size, key = images.sizes[place], place if place in images.values else None
            if isinstance(size, int) and key is None:
                skipped += size
            else:
                steps.append((skipped, size, key))
                skipped = 0
        return cls(images, places, tuple(steps), skipped, images.values.keys() <= set(places))

    def image(self, data: bytes, at: int) -> tuple[tuple[str | None, ...], int]:
        """Return (the key, where the image ends)."""
        width = (len(self.places) + 7) // 8
        nulls = int.from_bytes(data[at : at + width], "little") & ((1 << len(self.places)) - 1)
        at += width
        values = self.images.values
        texts: dict[int, str | None] = dict.fromkeys(values)
        if nulls:
            return self._sparse(data, at, nulls, texts)
        for skipped, size, key in self.steps:
            at += skipped
            begin, end = (at, at + size) if isinstance(size, int) else size(data, at)
            if key is not None:
                texts[key] = values[key](data[begin:end])
            at = end
        return tuple(texts.values()), at + self.rest

    def _sparse(
        self, data: bytes, at: int, nulls: int, texts: dict[int, str | None]
    ) -> tuple[tuple[str | None, ...], int]:
        for number, place in enumerate(self.places):
            if nulls >> number & 1:
                continue
            size = self.images.sizes[place]
            begin, end = (at, at + size) if isinstance(size, int) else size(data, at)
            if place in texts:
                texts[place] = self.images.values[place](data[begin:end])
            at = end
        return tuple(texts.values()), at


def images(mapped: TableMap, places: Sequence[int], key: Sequence[KeyColumn]) -> Images:
    """Return how images are read. Raises UnreadableImage where the log and the catalog give a key column different
    types."""
    sizes = tuple(size_of(kind, meta) for kind, meta in zip(mapped.kinds, mapped.metas, strict=True))
    readers = {
        place: value_of(mapped.kinds[place], mapped.metas[place], c) for place, c in zip(places, key, strict=True)
    }
    return Images(sizes, readers, mapped.kinds.count(_JSON))


def value_of(kind: int, meta: int, column: KeyColumn) -> Value:
    """Return a function that turns a value's bytes into SQL. Raises UnreadableImage."""
    base = re.split(r"[ (]", column.native.lower(), maxsplit=1)[0]
    if base in _INTEGERS and kind == _INTEGERS[base]:
        signed = "unsigned" not in column.native.lower()
        return lambda data: str(int.from_bytes(data, "little", signed=signed))
    fits = _OTHERS.get(base)
    if fits is not None:
        kinds, make = fits
        if (_string(meta)[0] if kind == STRING else kind) in kinds:
            return make(meta, column)
    raise UnreadableImage(
        f"the log has its key column {column.name} ({column.native}) as a kind that does not fit ({kind})"
    )


def _text(meta: int, column: KeyColumn) -> Value:
    prefix = f"_{column.charset} " if column.charset else ""
    return lambda data: f"{prefix}x'{data.hex()}'"


def _padded(meta: int, column: KeyColumn) -> Value:
    """Return the value with the trailing zeros that the log leaves out."""
    longest = _string(meta)[1]
    return lambda data: f"x'{data.ljust(longest, bytes(1)).hex()}'"


def _float(meta: int, column: KeyColumn) -> Value:
    form = "<f" if column.native.lower().startswith("float") else "<d"

    def text(data: bytes) -> str:
        digits = repr(float(unpack_from(form, data)[0]))
        return digits if "e" in digits else f"{digits}e0"

    return text


def _decimal(meta: int, column: KeyColumn) -> Value:
    precision, scale = meta & 0xFF, meta >> 8
    whole = precision - scale
    groups = [whole % 9, *[9] * (whole // 9)], [*[9] * (scale // 9), scale % 9]

    def text(data: bytes) -> str:
        negative = not data[0] & 0x80
        digits = bytes((data[0] ^ 0x80, *data[1:]))
        if negative:
            digits = bytes(b ^ 0xFF for b in digits)
        parts, at = [], 0
        for sizes in groups:
            part = ""
            for size in sizes:
                width = _DIGITS[size]
                part += f"{int.from_bytes(digits[at : at + width], 'big'):0{size}d}" if size else ""
                at += width
            parts.append(part)
        number = f"{'-' if negative else ''}{parts[0].lstrip('0') or '0'}"
        return f"{number}.{parts[1]}" if scale else number

    return text


def _date(meta: int, column: KeyColumn) -> Value:
    def text(data: bytes) -> str:
        bits = int.from_bytes(data, "little")
        return f"'{bits >> 9:04d}-{bits >> 5 & 15:02d}-{bits & 31:02d}'"

    return text


def _fraction(data: bytes, digits: int) -> str:
    """Return the fraction of a second, from big-endian bytes of two digits each."""
    return f".{int.from_bytes(data, 'big'):0{len(data) * 2}d}"[: digits + 1] if digits else ""


def _datetime(meta: int, column: KeyColumn) -> Value:
    def text(data: bytes) -> str:
        bits = int.from_bytes(data[:5], "big") - (1 << 39)
        year, month = divmod(bits >> 22, 13)
        day = f"{year:04d}-{month:02d}-{bits >> 17 & 31:02d}"
        return f"'{day} {bits >> 12 & 31:02d}:{bits >> 6 & 63:02d}:{bits & 63:02d}{_fraction(data[5:], meta)}'"

    return text


def _timestamp(meta: int, column: KeyColumn) -> Value:
    """Return a decoder of timestamps to UTC, the time zone of the session."""

    def text(data: bytes) -> str:
        seconds = int.from_bytes(data[:4], "big")
        moment = f"{_EPOCH + timedelta(seconds=seconds):%Y-%m-%d %H:%M:%S}" if seconds else "0000-00-00 00:00:00"
        return f"'{moment}{_fraction(data[4:], meta)}'"

    return text


def _time(meta: int, column: KeyColumn) -> Value:
    def text(data: bytes) -> str:
        width = 8 * len(data)
        bits = int.from_bytes(data, "big") - (1 << (width - 1))
        sign, bits = ("-", -bits) if bits < 0 else ("", bits)
        low = width - 24
        fraction = (bits & ((1 << low) - 1)).to_bytes(low // 8, "big")
        bits >>= low
        return f"'{sign}{bits >> 12 & 1023:02d}:{bits >> 6 & 63:02d}:{bits & 63:02d}{_fraction(fraction, meta)}'"

    return text


def _members(native: str) -> list[str]:
    return [m.replace("''", "'") for m in re.findall(r"'((?:[^']|'')*)'", native)]


def _enum(meta: int, column: KeyColumn) -> Value:
    members = ["", *_members(column.native)]

    def text(data: bytes) -> str:
        number = int.from_bytes(data, "little")
        if number >= len(members):
            raise UnreadableImage(f"its key column {column.name} has another list of values than then")
        return literal(members[number])

    return text


def _set(meta: int, column: KeyColumn) -> Value:
    members = _members(column.native)

    def text(data: bytes) -> str:
        bits = int.from_bytes(data, "little")
        if bits >> len(members):
            raise UnreadableImage(f"its key column {column.name} has another list of values than then")
        return literal(",".join(m for n, m in enumerate(members) if bits >> n & 1))

    return text


def _uuid(meta: int, column: KeyColumn) -> Value:
    """Return the text of a UUID; MariaDB stores versions 1 to 5 in reversed parts, so that they sort by time."""

    def text(data: bytes) -> str:
        data = data.ljust(16, bytes(1))
        if data[6] & 0x80 and 0 < data[8] <= 0x5F:
            data = data[12:] + data[10:12] + data[8:10] + data[6:8] + data[:6]
        digits = data.hex()
        return f"'{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}'"

    return text


_OTHERS: dict[str, tuple[frozenset[int], Callable[[int, KeyColumn], Value]]] = {
    "char": (frozenset({STRING}), _text),
    "varchar": (frozenset({VARCHAR}), _text),
    "binary": (frozenset({STRING}), _padded),
    "varbinary": (frozenset({VARCHAR}), _text),
    **{name: (frozenset({252}), _text) for name in ("tinytext", "text", "mediumtext", "longtext")},
    **{name: (frozenset({252}), _text) for name in ("tinyblob", "blob", "mediumblob", "longblob")},
    "float": (frozenset({4}), _float),
    "double": (frozenset({5}), _float),
    "decimal": (frozenset({DECIMAL}), _decimal),
    "date": (frozenset({10, 14}), _date),
    "datetime": (frozenset({DATETIME2}), _datetime),
    "timestamp": (frozenset({TIMESTAMP2}), _timestamp),
    "time": (frozenset({TIME2}), _time),
    "year": (frozenset({13}), lambda meta, column: lambda data: str(data[0] + 1900 if data[0] else 0)),
    "bit": (frozenset({BIT}), lambda meta, column: lambda data: str(int.from_bytes(data, "big"))),
    "enum": (frozenset({ENUM}), _enum),
    "set": (frozenset({SET}), _set),
    "uuid": (frozenset({STRING}), _uuid),
}
