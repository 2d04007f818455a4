"""Orders of a shop whose developers change their records between one sync and the next."""

from fivetran_connector_sdk import Connector
from fivetran_connector_sdk import Logging as log
from fivetran_connector_sdk import Operations as op

VERSIONS = (
    {
        "order": [{"id": 1, "city": "Oslo", "pieces": 2}, {"id": 2, "city": "Bern", "pieces": 1}],
    },
    {  # a new column and a new table
        "order": [
            {"id": 2, "city": "Bern", "pieces": 1, "gift": True},
            {"id": 3, "city": "Rome", "pieces": 5, "gift": False},
        ],
        "refund": [{"id": 1, "order_id": 1, "reason": "late"}],
    },
    {  # `city` is gone, `pieces` is a larger number by its declaration, and nobody sends refunds any more
        "order": [{"id": 3, "pieces": 5_000_000_000, "gift": False}, {"id": 4, "pieces": 1, "gift": True}],
    },
)


def schema(configuration: dict):
    """A declaration may follow the records, too: the third version needs more than 32 bits for `pieces`."""
    version = int(configuration.get("version") or 1)
    pieces = "INT" if version < 3 else "LONG"
    return [
        {"table": "order", "primary_key": ["id"], "columns": {"id": "INT", "pieces": pieces}},
        *([{"table": "refund", "primary_key": ["id"]}] if version >= 2 else []),
    ]


def update(configuration: dict, state: dict):
    version = int(configuration.get("version") or 1)
    log.info(f"version {version} of the shop")
    for table, records in VERSIONS[version - 1].items():
        for record in records:
            op.upsert(table=table, data=record)
    op.checkpoint(state={"version": version})


connector = Connector(update=update, schema=schema)
