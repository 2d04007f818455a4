-- The till: a second source, SQLite, which has no ids for its columns.
create table sale (
  id integer primary key, buyer text, item text not null, price numeric(10,2) not null, sold_on date not null
);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 5000)
insert into sale
select i, 'Buyer ' || (i * 7919 % 1700), 'Item ' || (i % 90), (i % 500) + 0.5, date('2025-01-01', '+' || (i % 300) || ' days') from n;
