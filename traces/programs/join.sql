-- A join larger than any cache: each sale looks up its customer at random, and the wanted column lies behind a long document.
PRAGMA page_size=4096; PRAGMA cache_size=90000; PRAGMA journal_mode=off; PRAGMA synchronous=off; PRAGMA temp_store=memory;
CREATE TABLE customer(id INTEGER PRIMARY KEY, document BLOB, region INTEGER);
CREATE TABLE sale(id INTEGER PRIMARY KEY, customer INTEGER, amount INTEGER);
WITH RECURSIVE c(i) AS (SELECT 0 UNION ALL SELECT i+1 FROM c WHERE i<11999) INSERT INTO customer SELECT i, zeroblob(24300), i%97 FROM c;
WITH RECURSIVE c(i) AS (SELECT 0 UNION ALL SELECT i+1 FROM c WHERE i<13999) INSERT INTO sale SELECT i, (i*2654435761)%12000, i%1000 FROM c;
SELECT sum(region), sum(amount) FROM sale JOIN customer ON customer.id = sale.customer;
