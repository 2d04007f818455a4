"""YAML that other programs wrote, read as they read it: by PyYAML's safe loader, with a bound on what a few lines may
become."""

from __future__ import annotations

from typing import Any

import yaml

from instep.project.text.tree import MAX_DIGITS

MOST_CHARACTERS = 64 << 20
"""The characters of a document, those that its aliases repeat counted each time, and _EACH for every value."""
_EACH = 16


def read_foreign(text: str | bytes) -> Any:
    """Return the value of one YAML document.

    Raise YAMLError for what is none, for more than MOST_CHARACTERS, and for a number of more than MAX_DIGITS
    characters; ValueError for a date that does not exist, RecursionError for what is nested too deeply. A text that is
    made of a value is then no longer, however aliases repeat one another.
    """
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        if _size(node, {}) > MOST_CHARACTERS:
            raise yaml.constructor.ConstructorError(None, None, "aliases repeat one another", node.start_mark)
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _size(node: yaml.Node, sizes: dict[int, int]) -> int:
    """Return how many characters a node has when each alias stands for what it names."""
    if isinstance(node, yaml.ScalarNode):
        if node.tag == "tag:yaml.org,2002:int" and len(node.value) > MAX_DIGITS:
            raise yaml.constructor.ConstructorError(None, None, "a number is too long", node.start_mark)
        return _EACH + len(node.value)
    known = sizes.get(id(node))
    if known == 0:
        raise yaml.constructor.ConstructorError(None, None, "an alias is within what it names", node.start_mark)
    if known is None:
        sizes[id(node)] = 0
        parts = [one for pair in node.value for one in pair] if isinstance(node, yaml.MappingNode) else node.value
        known = sizes[id(node)] = _EACH + sum(_size(one, sizes) for one in parts)
    return known
