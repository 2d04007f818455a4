"""What the column `meta` of a row says: which of its columns lack the value that the source has."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from instep.stage.conform import compact_json


def merged(old: str | None, new: str | None, lacking: set[str], columns: Sequence[str]) -> str | None:
    """Return the note of a row with that of its staged values: of `columns` those that are `lacking` a value stay
    noted."""
    note: dict[str, Any] = json.loads(old) if old else {}
    staged = json.loads(new).get("changes", ()) if new else ()
    changes = [c for c in note.get("changes", ()) if c.get("field") not in columns or c["field"] in lacking]
    known = {c.get("field") for c in changes}
    changes += [c for c in staged if c["field"] in lacking and c["field"] not in known]
    note = {**{k: v for k, v in note.items() if k != "changes"}, **({"changes": changes} if changes else {})}
    return compact_json(note) if note else None
