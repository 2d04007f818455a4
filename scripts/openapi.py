"""Writes the descriptions of both APIs, openapi.json and compatible-openapi.json, into docs/reference.

python scripts/openapi.py [FOLDER]
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from instep.bootstrap import open_project
from instep.server.app import create_app
from instep.server.fivetran_api.app import compatible
from instep.server.rates import Rates

_PROJECT = """\
sources: {db: {type: sqlite, path: shop.db}}
destinations: {lake: {type: iceberg}}
connections: {shop: {}}
"""
FOLDER = Path(__file__).parent.parent / "docs" / "reference"


def documents() -> dict[str, str]:
    """The descriptions as the files have them, by name."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "instep.yml").write_text(_PROJECT)
        with open_project(Path(folder)) as app:
            found = {
                "openapi.json": create_app(app).openapi(),
                "compatible-openapi.json": compatible(app, Rates()).openapi(),
            }
    return {name: json.dumps(made, indent=1, ensure_ascii=False, sort_keys=True) + "\n" for name, made in found.items()}


if __name__ == "__main__":
    for name, text in documents().items():
        (Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER).joinpath(name).write_text(text)
