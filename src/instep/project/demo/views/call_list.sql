create view call_list as
select name, phone from shop.customer where not _instep_deleted;
