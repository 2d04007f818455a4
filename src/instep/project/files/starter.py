"""Writes a starter project: `instep.yml`, the JSON Schema for editors, `.gitignore`."""

from __future__ import annotations

import json
from pathlib import Path

from instep.errors import ProjectError, unwritable
from instep.private import make_state_folder
from instep.project.load import FILE_NAME
from instep.project.sections.models import ProjectFile

SCHEMA_FILE = Path(".instep/schema/project.json")
_STARTER = """\
# yaml-language-server: $schema={schema}
version: 1
project: {name}

# Values may be ${{env:NAME}}, ${{env:NAME:-default}} or ${{file:/path}}; secrets must be. A .env file beside this
# one is read.
sources:
  shop:
    type: postgres              # or mysql, mariadb, sqlite, files, jdbc, airbyte, connector
    host: ${{env:PG_HOST:-localhost}}
    database: shop
    user: replicator
    password: ${{env:PG_PASSWORD}}
    include: ["public.*"]       # what is looked at: exact names, globs, or re:...

destinations:
  lake:
    type: iceberg
    warehouse: lake             # a folder here, or s3://bucket/prefix
    # catalog: ${{env:CATALOG_URI}}   # a REST catalog; without it a SQLite file beside the warehouse

# What happens to schema changes: a preset, and rules before it (the first that matches decides).
# Presets: allow_all, allow_columns, block_all, propagate_all, propagate_columns, approve, stop.
policies:
  careful:
    preset: allow_all
    rules:
      - {{on: [column.removed, column.narrowed], decide: review}}

connections:
  shop_to_lake:
    source: shop
    destination: lake
    policy: careful
    # exclude: {{tables: ["public.tmp_*"], columns: ["*.ssn"]}}
    # tables:
    #   public.orders: {{mode: upsert, cursor: updated_at, lookback: 5m}}
"""


def starter(name: str) -> str:
    """Return the text of a project file that validates."""
    quoted = json.dumps(name, ensure_ascii=False)
    return _STARTER.format(schema=SCHEMA_FILE.as_posix(), name=quoted)


def schema_json() -> str:
    """Return the JSON Schema of `instep.yml`, keys sorted, with a final newline."""
    schema = ProjectFile.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    return json.dumps(schema, indent=2, sort_keys=True) + "\n"


def write_schema(root: Path) -> Path:
    """Write the JSON Schema where the first line of the project file points."""
    path = root / SCHEMA_FILE
    make_state_folder(root)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(schema_json(), encoding="utf-8")
    return path


def write_project(root: Path, text: str | None = None) -> Path:
    """Write the project file and what belongs beside it; ProjectError if there is one already."""
    file = root / FILE_NAME
    try:
        root.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as out:
            out.write(starter(root.resolve().name) if text is None else text)
        write_schema(root)
    except FileExistsError:
        raise ProjectError(f"{file} exists already", hint="edit it, or choose another folder") from None
    except OSError as error:
        raise unwritable(root, error) from None
    ignore = root / ".gitignore"
    if not ignore.exists():
        ignore.write_text(".instep/\n.env\nlake/\n", encoding="utf-8")
    return file


if __name__ == "__main__":
    print(schema_json(), end="")
