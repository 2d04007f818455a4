"""Names of transactions, which are the same on all servers that replicate from each other."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from struct import pack


@dataclass(frozen=True)
class GtidSet:
    """Set of GTIDs: by source (hexadecimal, without dashes; with a tag behind a colon, if it has one) the (first, last)
    numbers, in order."""

    ranges: dict[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str) -> GtidSet:
        """Parse a set such as `uuid:1-5:7,uuid:tag:1-3`."""
        ranges_of: dict[str, list[tuple[int, int]]] = {}
        for part in filter(None, (p.strip() for p in text.replace("\n", "").split(","))):
            source, *pieces = part.split(":")
            name = source.replace("-", "").lower()
            for piece in pieces:
                first, dash, last = piece.partition("-")
                if first.isdecimal():
                    ranges_of.setdefault(name, []).append((int(first), int(last if dash else first)))
                else:
                    name = f"{source.replace('-', '').lower()}:{piece}"
        return cls({name: tuple(sorted(ranges)) for name, ranges in ranges_of.items()})

    def has(self, gtid: str) -> bool:
        """Return whether the set contains `source:number`."""
        name, _, number = gtid.rpartition(":")
        ranges = self.ranges.get(name, ())
        at = bisect_right(ranges, (int(number), 1 << 63)) - 1
        return at >= 0 and ranges[at][0] <= int(number) <= ranges[at][1]

    @property
    def encoded(self) -> bytes:
        """Return the set as COM_BINLOG_DUMP_GTID takes it, without those that have tags: they are sent again."""
        plain = {name: ranges for name, ranges in self.ranges.items() if ":" not in name}
        parts = [
            bytes.fromhex(name) + pack("<Q", len(ranges)) + b"".join(pack("<QQ", low, high + 1) for low, high in ranges)
            for name, ranges in plain.items()
        ]
        return pack("<Q", len(parts)) + b"".join(parts)
