"""A connector's rows into segments of Parquet, with full typing: python connector.py [ROWS] [--inferred] [FOLDER]

FOLDER holds another connector, which is given `{"rows": ROWS}`. Prints rows, seconds, the seconds of CPU of the
connector's process and of ours, which a busy machine does not change, and the most memory of both.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

from instep.sources.connector.config import MIB, ConnectorConfig
from instep.sources.connector.spool import Segments

CONNECTOR = """
from datetime import date, timedelta
from fivetran_connector_sdk import Connector, Operations as op

TYPES = {"id": "LONG", "customer": "INT", "weight": "DOUBLE", "paid": "BOOLEAN", "note": "STRING", "town": "STRING",
         "day": "NAIVE_DATE", "total": {"type": "DECIMAL", "precision": 12, "scale": 2}, "at": "UTC_DATETIME",
         "lines": "JSON"}
TOWNS = ("Aarhus", "Bergen", "Cork", "Dover", "Evora")


def schema(configuration):
    return [{"table": "orders", "primary_key": ["id"], "columns": TYPES if configuration["declared"] == "yes" else {}}]


def update(configuration, state):
    first = date(2026, 1, 1)
    days = [(first + timedelta(n)).isoformat() for n in range(365)]
    for i in range(int(configuration["rows"])):
        day = days[i % 365]
        op.upsert("orders", {"id": i, "customer": i % 9973, "weight": i / 7, "paid": i % 3 == 0, "note": f"order {i}",
                             "town": TOWNS[i % 5], "day": day, "total": f"{i % 10**7}.{i % 100:02d}",
                             "at": f"{day}T{i % 24:02d}:{i % 60:02d}:00Z",
                             "lines": {"product": i % 50, "count": i % 4}})
        if i % 100_000 == 99_999:
            op.checkpoint({"id": i})


connector = Connector(update=update, schema=schema)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="?", default="1000000")
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--inferred", action="store_true", help="no column has a declared type")
    said = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="connector-") as scratch:
        folder = said.folder or Path(scratch, "source")
        if said.folder is None:
            folder.mkdir()
            folder.joinpath("connector.py").write_text(CONNECTOR, encoding="utf-8")
        given = {"rows": said.rows, "declared": "no" if said.inferred else "yes"}
        measure(ConnectorConfig.resolved(path=str(folder), configuration=given), str(Path(scratch, "spool")))


def measure(config: ConnectorConfig, spool: str) -> None:
    begun = time.monotonic()
    segments = Segments(config, spool, {}, lambda counts: None, lambda line: None)
    while (segment := segments.next()) is not None:
        segments.acknowledge(segment)
    ended = segments.close()
    seconds = time.monotonic() - begun
    ours = resource.getrusage(resource.RUSAGE_SELF)
    assert ended is not None
    rows = segments.counts.upserts
    print(f"{rows:,} rows in {seconds:.1f} s: {rows / seconds:,.0f} rows/s")
    print(f"CPU: connector {ended.cpu:.1f} s, ours {ours.ru_utime + ours.ru_stime:.1f} s")
    print(f"memory: connector {ended.peak // MIB} MiB, ours {ours.ru_maxrss // 1024} MiB")


if __name__ == "__main__":
    main()
