-- The shop: 8 tables, 200,000 rows, the types that databases really have.
create type order_status as enum ('new', 'paid', 'shipped', 'returned');
create domain email as text check (value like '%@%');

create table category (
  id int primary key, parent_id int, name text not null
);
insert into category select i, nullif(i / 5, 0), 'Category ' || i from generate_series(1, 60) i;

create table product (
  id int primary key, sku char(8) not null, name varchar(80) not null, price numeric(10,2) not null,
  weight real, warranty int, tags text[], attributes jsonb, legacy_code text, photo bytea
);
insert into product
select i, lpad(i::text, 8, '0'), 'Product ' || i, (i % 900) + 0.99, i / 7.0, 12 + i % 24,
       array['tag' || i % 5, null, 'tag, with "quotes"'], jsonb_build_object('colour', i % 9, 'nested', jsonb_build_array(1, null)),
       'L' || i, decode(md5(i::text), 'hex')
from generate_series(1, 2000) i;

create table customer (
  id bigint generated always as identity primary key, uid uuid not null, name text not null, email email,
  phone text, born date, credit numeric, last_ip inet, created_at timestamptz not null
);
insert into customer (uid, name, email, phone, born, credit, last_ip, created_at)
select md5(i::text)::uuid, 'Customer ' || i || case i % 50 when 0 then ' Ünïcode 🛒' else '' end, 'c' || i || '@example.org',
       '+49 ' || (1000000 + i), date '1950-01-01' + i % 20000, i / 3.0, ('10.0.' || i % 250 || '.' || i % 200)::inet,
       timestamptz '2024-01-01' + i * interval '7 minutes'
from generate_series(1, 20000) i;

create table "order" (
  id bigint primary key, customer_id bigint not null, status order_status not null, amount numeric(12,2) not null,
  note text, ship_date date, placed_at timestamp not null, updated_at timestamptz not null
);
insert into "order"
select i, i % 20000 + 1, (array['new', 'paid', 'shipped', 'returned'])[1 + i % 4]::order_status, (i * 37 % 100000) / 100.0,
       case when i % 3 > 0 then 'note ' || i end, date '2024-06-01' + i % 500,
       timestamp '2025-01-01' + i * interval '11 minutes', timestamptz '2025-01-01' + i * interval '11 minutes'
from generate_series(1, 60000) i;

create table order_line (
  order_id bigint not null, line smallint not null, product_id int not null, quantity int not null,
  discount double precision, primary key (order_id, line)
);
insert into order_line
select i / 2 + 1, 1 + i % 2, i % 2000 + 1, 1 + i % 9, case when i % 10 = 0 then 'NaN'::float8 else i % 30 / 100.0 end
from generate_series(0, 99999) i;

create table payment (
  id uuid primary key, order_id bigint not null, paid numeric(38,10) not null, method text not null, lag interval
);
insert into payment
select md5('p' || i)::uuid, i, i / 7.0, (array['card', 'cash', 'transfer'])[1 + i % 3], i * interval '3 seconds'
from generate_series(1, 10000) i;

create table opening_hours (weekday smallint primary key, open time, close timetz, valid daterange);
insert into opening_hours select i, time '08:30', timetz '18:00+01', daterange('2024-01-01', null) from generate_series(1, 7) i;

create table page_view (url text, seconds real, seen_at timestamptz);  -- no key
insert into page_view
select '/product/' || i % 2000, i % 300 / 10.0, timestamptz '2025-06-01' + i * interval '1 minute'
from generate_series(1, 7933) i;

analyze;
