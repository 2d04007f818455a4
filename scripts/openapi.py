"""Writes docs/openapi.json, the description of the server's own API: python scripts/openapi.py [FILE]"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from instep.api.app import create_app
from instep.bootstrap import open_project

_PROJECT = """\
sources: {db: {type: sqlite, path: shop.db}}
destinations: {lake: {type: iceberg}}
connections: {shop: {}}
"""
FILE = Path(__file__).parent.parent / "docs" / "openapi.json"


def document() -> str:
    """The description as the file has it."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "instep.yml").write_text(_PROJECT)
        with open_project(Path(folder)) as app:
            return json.dumps(create_app(app).openapi(), indent=1, ensure_ascii=False, sort_keys=True) + "\n"


if __name__ == "__main__":
    (Path(sys.argv[1]) if len(sys.argv) > 1 else FILE).write_text(document())
