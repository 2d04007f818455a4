alter table product drop column weight;
alter table product alter column name type varchar(400);
