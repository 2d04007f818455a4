"""Every table of a SQLite database: which there are, their keys and types are asked of the database itself."""

import sqlite3
from contextlib import closing
from pathlib import Path

from fivetran_connector_sdk import Connector
from fivetran_connector_sdk import Logging as log
from fivetran_connector_sdk import Operations as op

HERE = Path(__file__).parent
TYPES = {"INTEGER": "LONG", "TEXT": "STRING", "REAL": "DOUBLE", "BLOB": "BINARY", "DATE": "NAIVE_DATE"}


def schema(configuration: dict):
    with closing(connect(configuration)) as database:
        return [declared(database, name) for name in names(database)]


def update(configuration: dict, state: dict):
    with closing(connect(configuration)) as database:
        for name in names(database):
            columns = described(database, name)
            rows = database.execute(f"SELECT * FROM {quoted(name)}").fetchall()
            log.info(f"{name}: {len(rows)} rows")
            op.truncate(table=name)  # what the database no longer has is deleted
            for row in rows:
                data = {c["name"]: sent(value, c["type"]) for c, value in zip(columns, row, strict=True)}
                op.upsert(table=name, data=data)
        op.checkpoint(state={"tables": names(database)})


def connect(configuration: dict) -> sqlite3.Connection:
    """The configured file, or without one the example's own tables, in memory."""
    if file := configuration.get("database"):
        return sqlite3.connect(f"file:{HERE / file}?mode=ro", uri=True)
    database = sqlite3.connect(":memory:")
    database.executescript((HERE / "garage.sql").read_text(encoding="utf-8"))
    return database


def names(database: sqlite3.Connection) -> list:
    found = database.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'")
    return sorted(name for (name,) in found)


def declared(database: sqlite3.Connection, name: str) -> dict:
    columns = described(database, name)
    return {
        "table": name,
        "primary_key": [c["name"] for c in sorted(columns, key=lambda c: c["place"]) if c["place"]],
        "columns": {c["name"]: type_of(c["type"]) for c in columns},
    }


def described(database: sqlite3.Connection, name: str) -> list:
    found = database.execute(f"PRAGMA table_info({quoted(name)})")
    return [{"name": row[1], "type": row[2].upper(), "place": row[5]} for row in found]


def sent(value, type: str):
    """SQLite keeps decimals as numbers; a DECIMAL is sent as text, which rounds nothing."""
    return str(value) if value is not None and type.startswith("DECIMAL") else value


def type_of(text: str):
    if text.startswith("DECIMAL("):
        precision, scale = text[len("DECIMAL(") : -1].split(",")
        return {"type": "DECIMAL", "precision": int(precision), "scale": int(scale)}
    return TYPES.get(text, "STRING")


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


connector = Connector(update=update, schema=schema)
