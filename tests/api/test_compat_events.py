"""The six events of the document about schema configs, word for word, over a real source and a real lake.

A SQLite file has one schema, `main`; the document calls its schema schema_1.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from compat_world import Compat, compatible

TABLE = "create table {} (column_1 text, column_2 text); insert into {} values ('a', 'b')"
ON, OFF = {"enabled": True}, {"enabled": False}


@pytest.fixture
def events(tmp_path: Path, store_line: str) -> Iterator[Compat]:
    with compatible(tmp_path, file=store_line) as opened:
        yield opened


def config(handling: str, **tables: Any) -> Any:
    return {"schema_change_handling": handling, "schemas": {"schema_1": {"enabled": True, "tables": tables}}}


def told(data: Any) -> Any:
    """What the document shows of an answer: no names at the destination, no locks, no empty lists of columns."""
    return {
        "schema_change_handling": data["schema_change_handling"],
        "schemas": {
            name.replace("main", "schema_1"): {
                "enabled": schema["enabled"],
                "tables": {t: _table(table) for t, table in schema["tables"].items()},
            }
            for name, schema in data["schemas"].items()
        },
    }


def _table(table: Any) -> Any:
    columns = {
        name: {"enabled": column["enabled"], "hashed": column["hashed"]} for name, column in table["columns"].items()
    }
    return {"enabled": table["enabled"], **({"columns": columns} if columns else {})}


def rows(compat: Compat, table: str) -> list[dict[str, Any]]:
    """The destination's rows without system columns; none for a table that is not there."""
    destination = compat.app.destination("lake")
    if not destination.schema.inspect([("shop", table)]).tables:
        return []
    found = destination.write.read(("shop", table)).read_all().to_pylist()
    return [{k: v for k, v in row.items() if not k.startswith("_instep_")} for row in found]


def test_events_1_to_6(events: Compat) -> None:
    schemas = "/connections/shop/schemas"

    # A newly created connector doesn't have a schema config.
    events.sql(TABLE.replace("{}", "table_1"))
    assert events.ask("GET", schemas, status=404)["code"] == "NotFound_SchemaConfig"

    # Event 1: the reload generates the default config: schemas and tables only.
    answer = events.ask("POST", f"{schemas}/reload")
    assert (answer["code"], answer["message"]) == ("Success", "Schema configuration has been reloaded")
    assert told(answer["data"]) == config("ALLOW_ALL", table_1=ON)
    events.sync()

    # Event 2: a new table is added in the enabled state, its columns are not; data of both is synced.
    events.sql(TABLE.replace("{}", "table_2"))
    events.sync()
    assert told(events.data("GET", schemas)) == config("ALLOW_ALL", table_1=ON, table_2=ON)
    both = {"column_1": "a", "column_2": "b"}
    assert (rows(events, "table_1"), rows(events, "table_2")) == ([both], [both])

    # Event 3
    answer = events.ask("PATCH", schemas, {"schema_change_handling": "ALLOW_COLUMNS"})
    assert answer["message"] == "Schema configuration has been modified"
    assert told(answer["data"]) == config("ALLOW_COLUMNS", table_1=ON, table_2=ON)

    # Event 4: a new table is added in the disabled state; its data is blocked.
    events.sql(TABLE.replace("{}", "table_3"))
    events.sync()
    assert told(events.data("GET", schemas)) == config("ALLOW_COLUMNS", table_1=ON, table_2=ON, table_3=OFF)
    assert (rows(events, "table_1"), rows(events, "table_2"), rows(events, "table_3")) == ([both], [both], [])

    # Event 5: the patched column is returned.
    patch = {"schemas": {"main": {"tables": {"table_1": {"columns": {"column_1": {"enabled": False}}}}}}}
    off = {"enabled": True, "columns": {"column_1": {"enabled": False, "hashed": False}}}
    expected = config("ALLOW_COLUMNS", table_1=off, table_2=ON, table_3=OFF)
    assert told(events.data("PATCH", schemas, patch)) == expected

    # Event 6: a new column is synced and not added; the blocked one is excluded.
    events.sql("alter table table_1 add column column_3 text; update table_1 set column_1 = 'x', column_3 = 'c'")
    events.sql("update table_2 set column_1 = 'y'")
    events.sync()
    assert told(events.data("GET", schemas)) == expected
    [row] = [r for r in rows(events, "table_1") if r["column_3"] == "c"]
    assert (row["column_1"], row["column_2"]) == (None, "b")
    assert rows(events, "table_2")[-1]["column_1"] == "y"
    assert rows(events, "table_3") == []
