"""Untrusted text for a terminal: names from a database must not move the cursor."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Set
from datetime import date, time
from typing import Any

from instep.errors import escaped_json

_PIECE = re.compile(r"(?:`[^`]*`|[^\s`]|`)+")


def folded(line: str, width: int) -> str:
    """Return one line as several of at most `width` cells, all indented as the first, the others by 4 more. A command
    in backquotes or between ` · ` stays in one piece, and so does a word, however long."""
    from rich.cells import cell_len

    if cell_len(line) <= width:
        return line
    text = line.lstrip()
    indent = line[: len(line) - len(text)]
    between = " · " if " · " in text else " "
    pieces = text.split(between) if between != " " else _PIECE.findall(text)
    rows = [indent + "".join(pieces[:1])]
    for piece in pieces[1:]:
        if cell_len(rows[-1] + between + piece) <= width:
            rows[-1] += between + piece
        else:
            rows.append(f"{indent}    {piece}")
    return "\n".join(rows)


def text_of(value: Any) -> str:
    r"""Return a database value as people read it; bytes as `\x61`."""
    return f"\\x{value.hex()}" if isinstance(value, bytes) else str(value)


def json_text(data: Mapping[str, Any]) -> str:
    """Return a JSON document that any parser reads: moments as ISO 8601, and what JSON has no form for (NaN) as
    text."""
    return escaped_json(json.dumps(_plain(data), indent=2, ensure_ascii=False, allow_nan=False))


def _plain(value: Any) -> Any:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case Mapping():
            return {str(k): _plain(v) for k, v in value.items()}
        case list() | tuple() | Set():
            return [_plain(v) for v in value]
        case date() | time():
            return value.isoformat()
    return text_of(value)
