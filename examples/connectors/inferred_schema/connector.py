"""Sensor readings from a file of JSON lines: nothing is declared."""

import json
from pathlib import Path

from fivetran_connector_sdk import Connector
from fivetran_connector_sdk import Operations as op

HERE = Path(__file__).parent


def update(configuration: dict, state: dict):
    done = state.get("lines", 0)
    lines = (HERE / configuration["file"]).read_text(encoding="utf-8").splitlines()
    for line in lines[done:]:
        op.upsert(table="reading", data=json.loads(line))
    op.checkpoint(state={"lines": len(lines)})


connector = Connector(update=update)
