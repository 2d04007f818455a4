"""YAML text as plain data with the line of every key, by PyYAML's node graph.

The scalars are those of YAML 1.2: `on`, `off`, `yes` and `no` are text, so that rules can say `on:`. Text that
holds `${` becomes a `Reference`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from instep.project.text.references import Reference, is_reference

Path = tuple[str | int, ...]

MAX_VALUES = 200_000
MAX_DIGITS = 300
"""A number with more is text: no key takes one."""
_NULL, _BOOL = frozenset({"", "~", "null", "Null", "NULL"}), {"true": True, "false": False}
_BREAKS = frozenset("\x85\u2028\u2029")
_INT = re.compile(r"[-+]?(0|[1-9]\d*)")
_FLOAT = re.compile(r"[-+]?(\d+\.\d*|\.\d+)([eE][-+]?\d+)?|[-+]?[1-9]\d*[eE][-+]?\d+")


@dataclass
class Tree:
    """A YAML document with the lines of its parts."""

    data: Any = None
    """Dicts, lists and scalars."""
    lines: dict[Path, int] = field(default_factory=dict)
    """The 1-based line of each path."""
    problems: list[tuple[int, str]] = field(default_factory=list)
    """Problems as (line, text)."""

    def line(self, path: Path) -> int:
        """Return the line of the path or of the nearest thing around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def parse(text: str, most: int = MAX_VALUES) -> Tree:
    """Return the tree of one YAML document; syntax errors, duplicate keys and more than `most` values are among its
    problems."""
    tree = Tree()
    try:
        if most < MAX_VALUES:
            _check_count(text, most)
        node = _compose(text)
        if node is not None:
            tree.data = _TreeReader(tree, most).value(node, ())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        tree.problems.append((mark.line + 1 if mark else 1, _yaml_problem(error)))
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        tree.problems.append((line, f"the character #x{_code(error.character):04x} is not allowed"))
    except _TooMuch as error:
        tree.problems.append((error.line, f"too many values: {error.why}"))
    except RecursionError:
        tree.problems.append((1, "nested too deeply"))
    return tree


def _check_count(text: str, most: int) -> None:
    """Raise _TooMuch at the first value too many, before a tree is made of them."""
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    count = 0
    for event in yaml.parse(text, Loader=loader):
        count += isinstance(event, yaml.NodeEvent)
        if count > 2 * most:  # a key and its value
            line = event.start_mark.line + 1 if event.start_mark else 1
            raise _TooMuch(line, f"at most {most:,} are read here")


def _compose(text: str) -> yaml.Node | None:
    """Parse by the fast C parser where there is one; errors are reported in the words of the Python one."""
    try:
        return yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError:
        return yaml.compose(text, Loader=yaml.SafeLoader)


def _yaml_problem(error: yaml.MarkedYAMLError) -> str:
    parts = [part for part in (error.context, error.problem) if part]
    text = ", ".join(parts) or "not valid YAML"
    if "'\\t'" in text:
        text += "; indent with spaces"
    return f"{text}; text with special characters needs quotes" if "mapping" in text else text


def _code(character: str | int) -> int:
    return ord(character) if isinstance(character, str) else character


class _TooMuch(Exception):
    def __init__(self, line: int, why: str = "aliases repeat one another") -> None:
        self.line, self.why = line, why


class _TreeReader:
    def __init__(self, tree: Tree, most: int) -> None:
        self._tree, self._most, self._seen = tree, most, 0
        self._open: list[yaml.Node] = []

    def value(self, node: yaml.Node, path: Path) -> Any:
        line = node.start_mark.line + 1
        self._tree.lines.setdefault(path, line)
        self._seen += 1
        if self._seen > self._most or any(node is around for around in self._open):
            raise _TooMuch(line)
        self._open.append(node)
        try:
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node, path)
            if isinstance(node, yaml.SequenceNode):
                return [self.value(item, (*path, at)) for at, item in enumerate(node.value)]
            return _scalar(node)
        finally:
            self._open.pop()

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        out: dict[str, Any] = {}
        first: dict[str, int] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self._tree.problems.append((line, "a key must be text"))
                continue
            key = str(key_node.value)
            if key in first:
                self._tree.problems.append((line, f"{_dotted((*path, key))}: given twice, first on line {first[key]}"))
                continue
            first[key] = line
            self._tree.lines[(*path, key)] = line
            out[key] = self.value(value_node, (*path, key))
        return out


def _scalar(node: yaml.Node) -> Any:
    text = str(node.value)
    if is_reference(text):
        return Reference(text)
    if node.tag == "tag:yaml.org,2002:str" and getattr(node, "style", None):
        return text
    if getattr(node, "style", None):  # quoted: always text
        return text
    return _plain(text)


def _plain(text: str) -> Any:
    """Return the value of a scalar without quotes."""
    if text in _NULL:
        return None
    if text.lower() in _BOOL and text in ("true", "True", "TRUE", "false", "False", "FALSE"):
        return _BOOL[text.lower()]
    if _INT.fullmatch(text) and len(text) <= MAX_DIGITS:
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


def with_scalar(text: str, path: Path, value: str) -> str | None:
    """Return the document with another text at `path`, and nothing else changed; None where that cannot be done: the
    place has no text of its own, or shares it with another by an anchor."""
    node = _compose(text)
    for part in path:
        pairs = node.value if isinstance(node, yaml.MappingNode) else ()
        node = next((v for k, v in pairs if isinstance(k, yaml.ScalarNode) and k.value == part), None)
    if not isinstance(node, yaml.ScalarNode) or node.start_mark.line != node.end_mark.line:
        return None
    begin, end = _offset(text, node.start_mark), _offset(text, node.end_mark)
    written = yaml.dump(value, Dumper=_Dumper, width=100_000, allow_unicode=True).removesuffix("...\n").strip()
    changed = f"{text[:begin]}{written}{text[end:]}"
    before, after = parse(text), parse(changed)
    return changed if not after.problems and after.data == _put(before.data, path, value) else None


def _offset(text: str, mark: yaml.Mark) -> int:
    """Return the place of a mark; parsers count characters or bytes, but lines and columns alike."""
    lines = text.splitlines(keepends=True)
    return sum(map(len, lines[: mark.line])) + mark.column


def _put(data: Any, path: Path, value: str) -> Any:
    first, *rest = path
    return {**data, first: _put(data[first], tuple(rest), value) if rest else value}


class _Dumper(yaml.SafeDumper):
    """Puts quotes around text that `parse` would take for something else without them: to it `1e3` is a number."""


def _quoted(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    plain = isinstance(_plain(text), str) and not _BREAKS & set(text)
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if plain else '"')


_Dumper.add_representer(str, _quoted)


def dump(document: Mapping[str, Any]) -> str:
    """Return YAML that `parse` reads as the same, in the document's order; what holds no lists and mappings is one
    line."""
    return yaml.dump(
        dict(document), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100_000, default_flow_style=None
    )


def _dotted(path: Path) -> str:
    return ".".join(map(str, path))
