alter table sale rename column buyer to client;
update sale set client = 'Somebody else' where id % 500 = 0;
insert into sale values (5001, 'Buyer 1', 'Item 1', 9.5, '2026-06-01');
