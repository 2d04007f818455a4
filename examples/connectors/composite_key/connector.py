"""Hourly measurements: a row is known by its station and its hour together."""

from datetime import datetime, timedelta, timezone

from fivetran_connector_sdk import Connector
from fivetran_connector_sdk import Logging as log
from fivetran_connector_sdk import Operations as op

FIRST = datetime(2026, 5, 1, tzinfo=timezone.utc)


def schema(configuration: dict):
    return [
        {
            "table": "measurement",
            "primary_key": ["station_id", "measured_at"],
            "columns": {"station_id": "INT", "measured_at": "UTC_DATETIME", "level": "DOUBLE", "checked": "BOOLEAN"},
        }
    ]


def update(configuration: dict, state: dict):
    stations, hours = int(configuration["stations"]), int(configuration["hours_per_sync"])
    begin = state.get("hours", 0)
    for station in range(1, stations + 1):
        for hour in range(begin, begin + hours):
            op.upsert("measurement", {**key(station, hour), "level": station + hour / 10, "checked": False})
    if begin:
        correct(stations, begin - 1)
    op.checkpoint({"hours": begin + hours})


def correct(stations: int, hour: int):
    """What was learnt about the last hour of the sync before: it was checked, and station 1 was out of order."""
    log.info(f"correcting hour {hour}")
    for station in range(2, stations + 1):
        op.update("measurement", {**key(station, hour), "checked": True})
    op.delete("measurement", key(1, hour))


def key(station: int, hour: int) -> dict:
    return {"station_id": station, "measured_at": (FIRST + timedelta(hours=hour)).isoformat()}


connector = Connector(update=update, schema=schema)
