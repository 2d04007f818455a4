"""Companies with lists in them: each list is a table of its own, whose rows bear the company's key."""

import json
from pathlib import Path

from fivetran_connector_sdk import Connector
from fivetran_connector_sdk import Operations as op

HERE = Path(__file__).parent


def schema(configuration: dict):
    return [
        {"table": "company", "primary_key": ["company_id"], "columns": {"company_id": "INT"}},
        {"table": "department", "primary_key": ["company_id", "code"], "columns": {"company_id": "INT"}},
        {"table": "office", "primary_key": ["company_id", "position"], "columns": {"company_id": "INT"}},
    ]


def update(configuration: dict, state: dict):
    companies = json.loads((HERE / configuration["file"]).read_text(encoding="utf-8"))
    known = state.get("offices", {})
    offices = {}
    for company in companies:
        yield op.upsert(table="company", data=parent(company))
        for child in company["departments"]:
            yield op.upsert(table="department", data={"company_id": company["company_id"], **child})
        yield from children(company, known.get(str(company["company_id"]), 0))
        offices[str(company["company_id"])] = len(company["offices"])
    yield op.checkpoint({"offices": offices})


def parent(company: dict) -> dict:
    """What is not a list; an object in an object becomes columns of its own."""
    flat = {name: value for name, value in company.items() if not isinstance(value, (list, dict))}
    for name, part in company.items():
        if isinstance(part, dict):
            flat |= {f"{name}_{inner}": value for inner, value in part.items()}
    return flat


def children(company: dict, before: int):
    """An office has no key of its own but its place in the list: places that are gone are deleted."""
    for position, office in enumerate(company["offices"]):
        data = {"company_id": company["company_id"], "position": position, **office}
        yield op.upsert(table="office", data=data)
    for position in range(len(company["offices"]), before):
        yield op.delete(table="office", keys={"company_id": company["company_id"], "position": position})


connector = Connector(update=update, schema=schema)
