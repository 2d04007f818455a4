"""The lineage of a change as a picture: source column, destination column, and the models that read it, laid out here.

What the models read, and what the change does to each, is the result of an impact job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from starlette.responses import Response

from instep.server.web.rendering import query, quoted
from instep.server.web.visit import PageRoutes, Visit

pages = PageRoutes()
Level = Literal["breaks", "unknown", "silent", "safe", "none"]
WORDS: Mapping[Level, str] = {
    "breaks": "✕ breaks",
    "unknown": "? cannot be judged",
    "silent": "~ silently changes",
    "safe": "✓ safe",
    "none": "",
}
MOST = 40
"""Models that are drawn."""
_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _TOP = 206, 46, 44, 14, 30
_SHOWN = 25


@pages.page("/changes/{change}/lineage")
async def lineage(visit: Visit) -> Response:
    """Redirect to the picture among the parts of the review."""
    return visit.go(query(f"/changes/{quoted(visit.path['change'])}", tab="lineage"))


@dataclass
class LineageBox:
    """A box of the picture."""

    name: str
    word: str
    level: Level
    layer: int
    """Its column from the left."""
    x: int = 0
    y: int = 0
    width: int = _WIDTH
    height: int = _HEIGHT

    @property
    def shown(self) -> str:
        """Return the name as far as it fits."""
        return self.name if len(self.name) <= _SHOWN else f"…{self.name[-_SHOWN + 1 :]}"


@dataclass(frozen=True)
class LineageLine:
    """A line between two boxes; `path` is SVG's."""

    path: str
    level: Level


@dataclass
class LineagePicture:
    """Boxes and lines with their places, and the same in words."""

    nodes: list[LineageBox] = field(default_factory=list)
    edges: list[LineageLine] = field(default_factory=list)
    heads: list[tuple[str, int]] = field(default_factory=list)
    width: int = 0
    height: int = 0
    text: str = ""
    left: int = 0
    """Models that are not drawn."""


def picture_of(change: Mapping[str, Any], impact: Mapping[str, Any], destination: str) -> LineagePicture:
    """Return the picture of a change. `destination`: the path of its column or table there; `impact`: the document of
    an impact job, {} where they were not checked yet."""
    looked = was_judged(change, impact)
    source = ".".join(filter(None, (*change["table"], change["column"]))) or change["summary"]
    judged = [(model, level_of(model, change["id"])) for model in impact["models"]] if looked else []
    readers = _readers(judged, destination, has_column=bool(change["column"]))
    drawn = readers[:MOST]
    worst: Level = next((one for one in WORDS if any(level == one for _, level in drawn)), "none")
    nodes = [LineageBox(source, change["kind"].replace(".", " "), "none", 0)]
    if destination:
        nodes.append(LineageBox(destination, "at the destination", "none", 1))
    places = {model["name"]: LineageBox(model["name"], WORDS[level], level, 2) for model, level in drawn}
    table = destination.rpartition(".")[0] if change["column"] else destination
    links = _links(drawn, places, nodes[-1], table)
    picture = LineagePicture([*nodes, *places.values()], left=len(readers) - len(drawn))
    if destination:
        links.insert(0, (nodes[0], nodes[-1], worst))
    _lay_out(picture, links)
    picture.text = _text(source, destination, drawn, looked=looked)
    return picture


def was_judged(change: Mapping[str, Any], impact: Mapping[str, Any]) -> bool:
    """Return True if the job has looked at this change; it looks neither at suspected renames nor at rejections."""
    return any(one["id"] == change["id"] for one in impact.get("changes", ()))


def level_of(model: Mapping[str, Any], change: str) -> Level:
    """Return the gravest level of a model's findings about a change."""
    levels = {one["level"] for one in model["findings"] if one["change"] in (change, "")}
    return next((one for one in WORDS if one in levels), "safe")


def _readers(
    judged: Sequence[tuple[Mapping[str, Any], Level]], destination: str, *, has_column: bool
) -> list[tuple[Mapping[str, Any], Level]]:
    """Return the models that the change touches, and those that read its table; the worst first."""
    table = destination.rpartition(".")[0] if has_column else destination
    readers = [one for one in judged if one[1] != "safe" or table in one[0].get("reads", ())]
    return sorted(readers, key=lambda one: (list(WORDS).index(one[1]), one[0]["name"]))


def _links(
    drawn: Sequence[tuple[Mapping[str, Any], Level]], places: Mapping[str, LineageBox], start: LineageBox, table: str
) -> list[tuple[LineageBox, LineageBox, Level]]:
    """Return the lines from the destination to its readers and on to theirs; a reader stands right of what it reads."""
    reads = {model["name"]: [one for one in model.get("reads", ()) if one in places] for model, _ in drawn}
    for _ in range(len(drawn)):
        moved = False
        for name, parents in reads.items():
            layer = max([2, *(places[parent].layer + 1 for parent in parents if parent != name)])
            if layer > places[name].layer and layer < 8:
                places[name].layer, moved = layer, True
        if not moved:
            break
    links: list[tuple[LineageBox, LineageBox, Level]] = []
    for model, level in drawn:
        node = places[model["name"]]
        if table in model.get("reads", ()) or not reads[model["name"]]:
            links.append((start, node, level))
        links += [(places[read], node, level) for read in reads[model["name"]]]
    return links


def _lay_out(picture: LineagePicture, links: Sequence[tuple[LineageBox, LineageBox, Level]]) -> None:
    layers = sorted({node.layer for node in picture.nodes})
    rows = {layer: [node for node in picture.nodes if node.layer == layer] for layer in layers}
    tallest = max(len(nodes) for nodes in rows.values())
    picture.height = _TOP + tallest * (_HEIGHT + _GAP_Y)
    picture.width = len(layers) * (_WIDTH + _GAP_X) - _GAP_X + 4
    names = {0: "Source", 1: "Destination", 2: "Models and views"}
    for at, layer in enumerate(layers):
        free = picture.height - _TOP - len(rows[layer]) * (_HEIGHT + _GAP_Y)
        for place, node in enumerate(rows[layer]):
            node.x = 2 + at * (_WIDTH + _GAP_X)
            node.y = _TOP + free // 2 + place * (_HEIGHT + _GAP_Y)
        picture.heads.append((names.get(layer, "Their readers"), 2 + at * (_WIDTH + _GAP_X)))
    for begin, end, level in links:
        x, y, to_x, to_y = begin.x + begin.width, begin.y + _HEIGHT // 2, end.x, end.y + _HEIGHT // 2
        bend = _GAP_X // 2
        picture.edges.append(LineageLine(f"M{x},{y} C{x + bend},{y} {to_x - bend},{to_y} {to_x},{to_y}", level))


def _text(source: str, destination: str, drawn: Sequence[tuple[Mapping[str, Any], Level]], *, looked: bool) -> str:
    """Return the picture in words."""
    begin = f"{source} is {destination} at the destination." if destination else f"{source} is not at the destination."
    if not looked:
        return f"{begin} The models that read it were not checked yet."
    parts = []
    for level, word in WORDS.items():
        names = [model["name"] for model, of in drawn if of == level]
        if names:
            parts.append(f"{word.partition(' ')[2]}: {', '.join(names)}")
    return f"{begin} {'; '.join(parts) or 'No model reads it'}."
