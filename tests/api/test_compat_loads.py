"""What the compatible API loads, and whom it names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from instep.server.fivetran_api import syncs

LOADED = """
import sys
import instep.server.fivetran_api.app
parts = [name.split(".") for name in sys.modules]
print(*{p[1] for p in parts if p[0] == "instep" and p[1:]}, *{p[0] for p in parts})
"""


def test_the_api_loads_no_source_no_destination_and_no_engine() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    found = set(done.stdout.split())
    assert "control" in found
    assert (
        found & {"sources", "destinations", "sync", "spark", "stage", "pyspark", "pyarrow", "duckdb", "psycopg"}
        == set()
    )


def test_nothing_but_loopback_is_named() -> None:
    """The vendor's own address stands nowhere in the code."""
    folder = Path(syncs.__file__).parent
    assert not [file for file in folder.glob("*.py") if "api." + "fivetran" in file.read_text()]
