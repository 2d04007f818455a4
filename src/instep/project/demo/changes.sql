-- What happens to a source while nobody asks the pipeline.
alter table "order" add column discount numeric(6,2) not null default 0.05;
alter table customer rename column phone to mobile;
alter table order_line alter column quantity type bigint;
alter table product drop column legacy_code;
alter table product alter column warranty type text;
create table coupon (code text primary key, percent smallint not null, valid_until date);
insert into coupon select 'SAVE' || i, i % 50, date '2026-01-01' + i from generate_series(1, 500) i;

-- and life goes on
update "order" set status = 'returned', updated_at = timestamptz '2026-06-01' + id * interval '1 second' where id % 100 = 0;
insert into "order" (id, customer_id, status, amount, placed_at, updated_at)
select i, i % 20000 + 1, 'new', 9.99, timestamp '2026-06-02', timestamptz '2026-06-02' + i * interval '1 second' from generate_series(60001, 60600) i;
delete from customer where id % 1000 = 7;
update product set price = price + 1 where id % 10 = 0;
update product set warranty = 'lifetime' where id % 50 = 0;
insert into order_line select 50001 + i, 1, 1, 3000000000 + i, 0.1 from generate_series(1, 20) i;
