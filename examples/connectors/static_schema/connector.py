"""A library's loans. The tables are known beforehand, so `schema()` declares all of them."""

from datetime import date, datetime, timedelta, timezone

from fivetran_connector_sdk import Connector
from fivetran_connector_sdk import Logging as log
from fivetran_connector_sdk import Operations as op

BATCH = 50


def schema(configuration: dict):
    return [
        {
            "table": "book",
            "primary_key": ["isbn"],
            "columns": {
                "isbn": "STRING",
                "title": "STRING",
                "published": "NAIVE_DATE",
                "price": {"type": "DECIMAL", "precision": 8, "scale": 2},
                "pages": "SHORT",
                "in_print": "BOOLEAN",
                "subtitle": "STRING",
            },
        },
        {
            "table": "loan",
            "primary_key": ["id"],
            "columns": {
                "id": "LONG",
                "isbn": "STRING",
                "lent_at": "UTC_DATETIME",
                "due_at": "NAIVE_DATETIME",
                "fee": "DOUBLE",
                "reader": "JSON",
                "barcode": "BINARY",
            },
        },
    ]


def update(configuration: dict, state: dict):
    for number in range(int(configuration["books"])):
        op.upsert(table="book", data=book(number))
    last = state.get("last_loan", 0)
    log.info(f"reading on after loan {last}")
    until = last + int(configuration["loans_per_sync"])
    while last < until:
        for number in range(last + 1, min(last + BATCH, until) + 1):
            op.upsert(table="loan", data=loan(number, int(configuration["books"])))
        last = min(last + BATCH, until)
        op.checkpoint(state={"last_loan": last})


def book(number: int) -> dict:
    return {
        "isbn": f"978-{number:04}",
        "title": f"Volume {number}",
        "published": date(1990, 1, 1) + timedelta(days=100 * number),
        "price": f"{number}.50",
        "pages": 100 + number,
        "in_print": number % 3 != 0,
    }  # no subtitle: its column is there all the same, because it is declared


def loan(number: int, books: int) -> dict:
    lent = datetime(2026, 1, 1, 9, 30, tzinfo=timezone.utc) + timedelta(hours=number)
    return {
        "id": number,
        "isbn": f"978-{number % books:04}",
        "lent_at": lent.isoformat(),
        "due_at": (lent + timedelta(days=28)).strftime("%Y-%m-%dT%H:%M:%S"),
        "fee": number / 4,
        "reader": {"card": number * 7, "branch": "north" if number % 2 else "south"},
        "barcode": number.to_bytes(2, "big"),
    }


connector = Connector(update=update, schema=schema)
