"""Prometheus' text format, version 0.0.4."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Family:
    """A metric: `samples` are (what follows the name, labels, value)."""

    name: str
    kind: Literal["counter", "gauge", "summary"]
    help: str
    samples: Sequence[tuple[str, Labels, float]] = ()


def exposed(families: Iterable[Family]) -> str:
    return "".join(line + "\n" for family in families for line in _lines(family))


def _lines(family: Family) -> Iterator[str]:
    said = family.help.replace("\\", "\\\\").replace("\n", "\\n")
    yield f"# HELP {family.name} {said}"
    yield f"# TYPE {family.name} {family.kind}"
    for suffix, labels, value in family.samples:
        yield f"{family.name}{suffix}{_labels(labels)} {_number(value)}"


def _labels(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}" if labels else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
