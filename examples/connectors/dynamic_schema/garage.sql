CREATE TABLE car (plate TEXT PRIMARY KEY, model TEXT NOT NULL, built INTEGER, tank REAL, sold DATE);
CREATE TABLE repair (plate TEXT, number INTEGER, cost DECIMAL(9,2), note TEXT, photo BLOB, PRIMARY KEY (plate, number));
CREATE TABLE empty_shelf (id INTEGER PRIMARY KEY, label TEXT);
INSERT INTO car VALUES ('AB 1', 'Falcon', 2019, 47.5, '2026-02-01'), ('CD 2', 'Heron', 2021, NULL, NULL);
INSERT INTO repair VALUES ('AB 1', 1, '120.50', 'brakes', x'0102'), ('AB 1', 2, '80.00', NULL, NULL), ('CD 2', 1, '9.99', 'wiper', x'ff');
