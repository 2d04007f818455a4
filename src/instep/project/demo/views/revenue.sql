create view revenue as
select status, sum(amount) as amount from shop.order group by status;
