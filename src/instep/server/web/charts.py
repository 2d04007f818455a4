"""Charts as SVG, drawn at the server: colours come from classes, and each mark says its value in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

WIDTH, HEIGHT, LEFT, BOTTOM = 640, 150, 84, 22
"""Of a bar chart, in its own units; the left and lower margins are for texts."""


@dataclass(frozen=True)
class Bar:
    """One bar: what it is about, its value, and the value in words."""

    label: str
    value: float
    text: str
    bad: bool = False
    """It is marked as a failure."""


def bars(title: str, given: Sequence[Bar], most: str) -> Markup:
    """Return a chart of bars from left to right; `most` is the greatest value in words."""
    if not given:
        return Markup("")
    top = max(one.value for one in given) or 1
    step = (WIDTH - LEFT) / max(len(given), 12)
    height = HEIGHT - BOTTOM - 10
    mark = Markup('<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"><title>{}</title></rect>')
    drawn = Markup("")
    for at, one in enumerate(given):
        tall = max(1.0, height * one.value / top)
        kind, text = ("bar bad", f"{one.text}, failed") if one.bad else ("bar", one.text)
        left = LEFT + at * step + step * 0.15
        drawn += mark.format(kind, left, HEIGHT - BOTTOM - tall, step * 0.7, tall, f"{one.label}: {text}")
    frame = Markup(
        '<line class="axis" x1="{l}" y1="{b}" x2="{w}" y2="{b}"/><text x="{t}" y="16" text-anchor="end">{most}</text>'
        '<text x="{t}" y="{b}" text-anchor="end">0</text><text x="{l}" y="{f}">{first}</text>'
        '<text x="{w}" y="{f}" text-anchor="end">{last}</text>'
    ).format(
        l=LEFT,
        b=HEIGHT - BOTTOM,
        w=WIDTH,
        t=LEFT - 8,
        f=HEIGHT - 5,
        most=most,
        first=given[0].label,
        last=given[-1].label if len(given) >= 12 else "",
    )
    return _picture(WIDTH, HEIGHT, title, frame + drawn)


def span(begin: float, length: float, label: str) -> Markup:
    """Return a bar of a timeline: both are shares of the whole, from 0 to 1."""
    rect = Markup('<rect class="bar" x="{:.2f}" y="3" width="{:.2f}" height="10" rx="2"/>').format(
        200 * min(begin, 0.99), max(2.0, 200 * min(length, 1 - begin))
    )
    return _picture(200, 16, label, Markup('<rect class="track" x="0" y="7" width="200" height="2"/>') + rect)


def _picture(width: int, height: int, title: str, content: Markup) -> Markup:
    return Markup(
        '<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}" preserveAspectRatio="xMinYMid meet">{}</svg>'
    ).format(width, height, title, content)
