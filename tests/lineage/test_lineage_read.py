"""One query: what each kind of change does to it."""

from __future__ import annotations

import pytest
from lineage_world import verdict

from instep.lineage.shape import Level

Case = tuple[str, str, Level, str]
NAMED: list[Case] = [
    ("a dropped column", "select city from shop.customer", "breaks", "it names city: city is dropped"),
    ("a renamed column", "select phone from shop.customer", "breaks", "phone is renamed to mobile"),
    ("a retyped column", "select sum(amount) from shop.order", "breaks", "amount becomes string"),
    ("a column that stays behind", "select fax from shop.customer", "silent", "it reads fax: fax gets no new values"),
    ("none of them", "select id, name from shop.customer", "safe", ""),
    ("in a condition", "select id from shop.customer where city = 'Oslo'", "breaks", "it names city"),
    ("in a join", "select c.id from shop.customer c join shop.order o on o.amount = c.id", "breaks", "o.amount"),
    ("in an order", "select id from shop.customer order by city", "breaks", "it names city"),
    ("in a group", "select count(*) from shop.customer group by city", "breaks", "it names city"),
    ("in a window", "select row_number() over (partition by city order by id) n from shop.customer", "breaks", "city"),
    ("in having", "select id from shop.order group by id having max(amount) > 1", "breaks", "amount"),
    ("with its table's name", "select customer.city from shop.customer", "breaks", "customer.city"),
    ("with its full name", "select shop.customer.city from shop.customer", "breaks", "city is dropped"),
    ("of an alias", "select x.city from shop.customer as x", "breaks", "x.city"),
    ("a field of a struct", "select city.zip from shop.customer", "breaks", "city is dropped"),
    ("a field of a struct, qualified", "select c.city.zip.code from shop.customer c", "breaks", "city is dropped"),
    ("in an except list", "select * except (city) from shop.customer", "breaks", "city is dropped"),
    ("a table that is dropped", "select 1 from shop.old", "breaks", "shop.old is dropped"),
    ("a table that stays behind", "select count(*) from shop.left", "silent", "shop.left gets no rows"),
    ("with a catalog before it", "select city from lake.shop.customer", "breaks", "city is dropped"),
    ("without its namespace", "select city from customer", "breaks", "city is dropped"),
    ("of another namespace", "select city from crm.customer", "safe", ""),
    ("a column that nobody has", "select cty from shop.customer", "unknown", "no table that it reads has a column cty"),
    ("perhaps of another table", "select cty from shop.customer join crm.town using (id)", "safe", ""),
    ("metadata of Iceberg", "select _file from shop.customer", "safe", ""),
]
NESTED: list[Case] = [
    ("a CTE", "with c as (select city from shop.customer) select * from c", "breaks", "it names city"),
    ("a * in a CTE, named further on", "with c as (select * from shop.customer) select city from c", "breaks", "city"),
    ("a * in a CTE, unused", "with c as (select * from shop.customer) select id, name from c", "safe", ""),
    ("two CTEs", "with a as (select * from shop.order), b as (select * from a) select amount from b", "breaks", ""),
    ("an alias on the way", "with a as (select fax f from shop.customer) select f from a", "silent", "fax"),
    ("a CTE that hides a table", "with customer as (select 1 as city) select city from customer", "safe", ""),
    ("a CTE with column names", "with c(a, b) as (select id, fax from shop.customer) select b from c", "silent", "fax"),
    ("names for a *", "with c(a, b, d, e, f) as (select * from shop.customer) select a from c", "breaks", "names"),
    ("a subquery in from", "select s.p from (select phone as p from shop.customer) s", "breaks", "phone"),
    ("a correlated subquery", "select (select max(amount) from shop.order o where o.id = c.id) from shop.customer c",
     "breaks", "amount"),
    ("correlated from inside", "select 1 from shop.customer c where exists (select 1 from crm.x where id = c.city)",
     "breaks", "c.city"),
    ("in (select *)", "select 1 from shop.country where id in (select * from shop.order)", "breaks", "subquery"),
    ("exists (select *)", "select id from shop.country c where exists (select * from shop.order)", "safe", ""),
    ("a union", "select id from shop.country union all select phone from shop.customer", "breaks", "phone"),
    ("a union of *", "select * from shop.order union all select 1, 2, 3, 4, 5", "breaks", "number of columns"),
    ("a union of the same *", "select * from shop.order union all select * from shop.order", "silent", "`*`"),
    ("a distinct union", "select fax from shop.customer union select 'x'", "silent", "fax"),
    ("a recursive CTE", "with recursive r as (select id, city from shop.customer union all select c.id, c.city from"
     " shop.customer c join r on r.id = c.id) select id from r", "breaks", "city"),
    ("a lateral view", "select e.item from shop.country lateral view explode(array(address)) e as item", "safe", ""),
    ("a lateral view of it", "select item from shop.customer lateral view explode(split(city, ',')) e as item",
     "breaks", "city"),
    ("a pivot", "select * from (select id, amount from shop.order) pivot (sum(amount) for id in (1, 2))", "breaks",
     "amount"),
    ("a lambda", "select transform(address, x -> x + 1) from shop.country", "safe", ""),
]  # fmt: skip
STARS: list[Case] = [
    ("a *", "select * from shop.order", "silent", "`*` passes it on: vip is added"),
    ("a * of a table", "select o.* from shop.order o join shop.country c on c.id = o.id", "silent", "vip is added"),
    ("a * of the other", "select c.* from shop.order o join shop.country c on c.id = o.id", "safe", ""),
    ("count(*)", "select count(*) from shop.customer", "safe", ""),
    ("* in a struct", "select to_json(struct(*)) from shop.order", "silent", "`*` inside struct() takes it in"),
    ("* in a hash", "select hash(*) from shop.order", "silent", "inside"),
    ("distinct *", "select count(*) from (select distinct * from shop.order)", "silent", "distinct compares"),
    ("inserted", "insert into mart.orders select * from shop.order", "breaks", "no longer fit its column list"),
    ("under names", "create view v (a, b, c, d, e) as select * from shop.order", "breaks", "no longer fit"),
    ("created", "create or replace view v as select * from shop.order", "silent", "vip is added"),
    ("as a table", "create table v using iceberg as select city from shop.customer", "breaks", "city"),
    ("after a CTE", "with a as (select city from shop.customer) insert into t select * from a", "breaks", "city"),
]  # fmt: skip
JOINS: list[Case] = [
    ("using", "select name from shop.customer join crm.fax using (fax)", "silent", "it joins using fax"),
    ("using what goes", "select name from shop.customer join crm.town using (city)", "breaks", "joins using city"),
    ("natural, by a column that comes", "select 1 from shop.order natural join shop.country", "silent", "vip is added"),
    ("natural, by what stays", "select 1 from shop.country natural join shop.left", "silent", "shop.left gets no rows"),
    ("a name that becomes ambiguous", "select vip from shop.order o join shop.country c on c.id = o.id", "breaks",
     "vip becomes ambiguous"),
    ("a renamed one that does", "select mobile from shop.customer c join shop.order o on o.customer_id = c.id",
     "breaks", "mobile becomes ambiguous"),
    ("qualified, it does not", "select c.vip from shop.order o join shop.country c on c.id = o.id", "safe", ""),
    ("a name that an inner table takes", "select 1 from shop.country where exists (select 1 from shop.order"
     " where vip)",
     "silent", "vip means another column then"),
    ("an alias that a column takes", "select upper(note) as vip from shop.order group by vip", "silent", "vip means"),
]  # fmt: skip
CASES = [*NAMED, *NESTED, *STARS, *JOINS]


@pytest.mark.parametrize(("sql", "level", "why"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_query(sql: str, level: Level, why: str) -> None:
    found = verdict(sql)
    assert found.level == level, found.findings
    assert why in " ".join(f.why for f in found.findings if f.level == level)


QUOTED: list[tuple[str, str, str, Level]] = [
    ("Spark ignores case", "spark", "select CITY from SHOP.Customer", "breaks"),
    ("in quotes as well", "spark", "select `City` from `Shop`.`Customer`", "breaks"),
    ("a quoted name with a blank", "spark", "select `full name` from shop.customer", "unknown"),
    ("PostgreSQL folds", "postgres", "select CITY from shop.customer", "breaks"),
    ("PostgreSQL, quoted: another name", "postgres", 'select "CITY" from shop.customer', "unknown"),
    ("PostgreSQL, quoted as it is", "postgres", 'select "city" from shop.customer', "breaks"),
    ("Snowflake, quoted as it is", "snowflake", 'select "Mixed" from shop.country', "safe"),
    ("MySQL ignores it in columns", "mysql", "select CITY from shop.customer", "breaks"),
    ("ClickHouse does not", "clickhouse", "select CITY from shop.customer", "unknown"),
    ("DuckDB", "duckdb", "select c.CITY from shop.customer c", "breaks"),
    ("Trino", "trino", 'select "city" from lake.shop.customer', "breaks"),
    ("BigQuery's except", "bigquery", "select * except (city, phone, fax) from shop.customer", "breaks"),
]


@pytest.mark.parametrize(("dialect", "sql", "level"), [case[1:] for case in QUOTED], ids=[case[0] for case in QUOTED])
def test_the_case_of_names(dialect: str, sql: str, level: Level) -> None:
    found = verdict(sql, dialect)
    assert found.level == level, found.findings


def test_a_finding_says_where() -> None:
    found = verdict("select id,\n  upper(city) as town\nfrom shop.customer\nwhere phone is null").findings
    assert [(f.change, f.line, f.output) for f in found] == [("gone", 2, "town"), ("renamed", 4, "")]


def test_each_change_has_its_own_verdict() -> None:
    found = verdict("select city, fax from shop.customer")
    assert (found.of("gone"), found.of("stale"), found.of("renamed")) == ("breaks", "silent", "safe")
