"""Each option of the scheduled detector against each change of a real PostgreSQL: what is read, what is written."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from detection_world import ALL_OFF, ALL_ON, Base

pytestmark = pytest.mark.slow

BOX, CUSTOMER, ITEM = ["id", "size"], ["city", "id", "name"], ["at", "id", "price"]
ADDED = "create table bag (id integer primary key); insert into bag values (7)"
COLUMN = "alter table item add column vat integer"
ONE = "table_options: {public.item: {OPTION: true}}"


@dataclass(frozen=True)
class Case:
    """`lake`: tables of the destination that differ from those of the first sync, None one that is not there;
    `accepted` the same of what is read. `paused`: what the reason names; the detector has then switched itself off."""

    name: str
    options: str
    change: str
    lake: dict[str, list[str] | None] = field(default_factory=dict)
    accepted: dict[str, list[str] | None] = field(default_factory=dict)
    paused: str = ""
    waiting: tuple[str, ...] = ()


CASES = (
    Case("new table, off", ALL_OFF, ADDED),
    Case("new table, on", "app_options: {propagate_table_creations_to_target_app: true}", ADDED,
         {"bag": ["id"]}, {"bag": ["id"]}),
    Case("new table, excluded by name",
         "app_options: {propagate_table_creations: true, excluded_external_table_names: [bag]}",
         ADDED + "; create table sack (id integer primary key)", {"sack": ["id"]}, {"sack": ["id"]}),
    Case("new table, excluded by expression",
         "app_options: {propagate_table_creations: true, excluded_external_table_names_regexes: ['b.g']}",
         ADDED + "; create table sack (id integer primary key)", {"sack": ["id"]}, {"sack": ["id"]}),
    Case("new column, off", ALL_OFF, COLUMN),
    Case("new column, on for its table", ONE.replace("OPTION", "propagate_column_creations_to_target_app"),
         COLUMN + "; alter table box add column depth integer",
         {"item": ["at", "id", "price", "vat"]}, {"item": ["at", "id", "price", "vat"]}),
    Case("new column, excluded by name",
         "table_options: {'*.*': {propagate_column_creations: true, excluded_external_column_names: [vat]}}",
         COLUMN + ", add column tax integer",
         {"item": ["at", "id", "price", "tax"]}, {"item": ["at", "id", "price", "tax"]}),
    Case("new column, excluded by expression",
         "table_options: {public.item: {propagate_column_creations: true, "
         "excluded_external_column_names_regexes: ['v.+']}}",
         COLUMN + ", add column tax integer",
         {"item": ["at", "id", "price", "tax"]}, {"item": ["at", "id", "price", "tax"]}),
    Case("deleted table, off", ALL_OFF, "drop table box", paused="box", waiting=("table.removed",)),
    Case("deleted table, on", "app_options: {auto_unsync_deleted_tables: true}", "drop table box",
         {}, {"box": None}),
    Case("deleted column, off", ALL_OFF, "alter table item drop column price",
         paused="price", waiting=("column.removed",)),
    Case("deleted column, on for its table", ONE.replace("OPTION", "auto_unsync_deleted_columns"),
         "alter table item drop column price", {"item": ["at", "id"]}, {"item": ["at", "id"]}),
    Case("deleted column, on for another table", ONE.replace("OPTION", "auto_unsync_deleted_columns"),
         "alter table box drop column size", paused="size", waiting=("column.removed",)),
    Case("renamed table", ALL_OFF, "alter table box rename to crate",
         {"box": None, "crate": BOX}, {"box": None, "crate": BOX}),
    Case("renamed column", ALL_OFF, "alter table item rename column price to cost",
         {"item": ["at", "cost", "id"]}, {"item": ["at", "cost", "id"]}),
    Case("renamed column beside a new one of the old name", ALL_ON,
         "alter table item rename column price to cost; alter table item add column price text",
         {"item": ["at", "cost", "id", "price"]}, {"item": ["at", "cost", "id", "price"]}),
    Case("wider column", ALL_OFF, "alter table item alter column price type bigint"),
    Case("column of another type", ALL_OFF, "alter table item alter column at type boolean using true",
         waiting=("column.retyped",)),
    Case("metadata only: comment, default, statistics", ALL_OFF,
         "comment on column item.price is 'net'; alter table item alter column price set default 1; analyze item"),
    Case("everything at once, all on", ALL_ON,
         f"{ADDED}; {COLUMN}; drop table box; alter table customer drop column city",
         {"bag": ["id"], "item": ["at", "id", "price", "vat"], "customer": ["id", "name"]},
         {"bag": ["id"], "item": ["at", "id", "price", "vat"], "customer": ["id", "name"], "box": None}),
)  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_option(base: Base, case: Case) -> None:
    base.write(case.options)
    assert base.do("sync").error == ""
    first = {"box": BOX, "customer": CUSTOMER, "item": ITEM}
    assert base.lake() == base.accepted() == first
    base.sql(case.change)
    for _ in range(2):  # what is found once is found again, and done once
        ended = base.detect()
        assert ended.error == ""
        assert base.lake() == {k: v for k, v in {**first, **case.lake}.items() if v is not None}
        assert base.accepted() == {k: v for k, v in {**first, **case.accepted}.items() if v is not None}
        assert case.paused in base.paused()
        assert bool(base.paused()) is bool(case.paused)
        assert base.standing().internal_disabled is bool(case.paused)
        assert base.waiting() == list(case.waiting)
