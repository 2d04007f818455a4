"""Which transactions a MySQL server has done, from the text of `gtid_executed`."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field


@dataclass(frozen=True)
class GtidSet:
    """By source (hexadecimal, without dashes; with a tag behind a colon, if it has one) the (first, last) numbers, in
    order."""

    ranges: dict[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str) -> GtidSet:
        """From `uuid:1-5:7,uuid:tag:1-3`."""
        found: dict[str, list[tuple[int, int]]] = {}
        for part in filter(None, (p.strip() for p in text.replace("\n", "").split(","))):
            source, *rest = part.split(":")
            name = source.replace("-", "").lower()
            for piece in rest:
                first, dash, last = piece.partition("-")
                if first.isdecimal():
                    found.setdefault(name, []).append((int(first), int(last if dash else first)))
                else:
                    name = f"{source.replace('-', '').lower()}:{piece}"
        return cls({name: tuple(sorted(ranges)) for name, ranges in found.items()})

    def has(self, gtid: str) -> bool:
        """Whether `source:number` is in it."""
        name, _, number = gtid.rpartition(":")
        ranges = self.ranges.get(name, ())
        at = bisect_right(ranges, (int(number), 1 << 63)) - 1
        return at >= 0 and ranges[at][0] <= int(number) <= ranges[at][1]
