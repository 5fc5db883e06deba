"""DDL texts that somebody who may write to a topic could send, labelled with a table that the feed takes (shop.orders).

The feed takes shop.*; secret.t is another's table on the same server.
"""

from typing import Final

HOSTILE: Final = r"""
CREATE USER 'eve'@'%' IDENTIFIED BY 'x'
GRANT ALL ON *.* TO 'eve'@'%'
REVOKE ALL ON *.* FROM 'app'@'%'
DROP USER 'app'@'%'
SET GLOBAL read_only = 1
SET PASSWORD FOR 'root'@'localhost' = PASSWORD('x')
CREATE TRIGGER shop.tr BEFORE INSERT ON shop.orders FOR EACH ROW SET NEW.id = 1
CREATE PROCEDURE shop.p() DELETE FROM secret.t
CREATE FUNCTION shop.f() RETURNS INT RETURN 1
CREATE FUNCTION sys_exec RETURNS INTEGER SONAME 'lib_mysqludf_sys.so'
CREATE EVENT shop.e ON SCHEDULE EVERY 1 SECOND DO DELETE FROM secret.t
INSTALL PLUGIN x SONAME 'x.so'
LOAD DATA INFILE '/etc/passwd' INTO TABLE shop.orders
SELECT * FROM mysql.user INTO OUTFILE '/tmp/x'
DELETE FROM secret.t
INSERT INTO mysql.user SELECT * FROM mysql.user
DROP TABLE secret.t
DROP TABLE shop.orders, secret.t
DROP VIEW secret.v
TRUNCATE TABLE secret.t
DROP DATABASE secret
DROP DATABASE tidegate
DROP DATABASE mysql
DROP DATABASE shop
ALTER DATABASE secret CHARACTER SET latin1
CREATE DATABASE mine
DROP TABLE tidegate.progress
TRUNCATE TABLE tidegate.ddl_history
ALTER TABLE secret.t DROP COLUMN a
CREATE INDEX i ON secret.t (a)
DROP INDEX i ON secret.t
RENAME TABLE shop.orders TO secret.orders
RENAME TABLE secret.t TO shop.stolen
RENAME TABLE shop.orders TO mysql.orders
ALTER TABLE shop.orders RENAME TO secret.orders
CREATE TABLE shop.n LIKE secret.t
CREATE TABLE secret.n (id int primary key)
CREATE TABLE mysql.n (id int primary key)
CREATE TABLE shop.n AS SELECT * FROM secret.t
CREATE TABLE shop.n AS SELECT * FROM shop.orders
CREATE VIEW shop.v AS SELECT * FROM mysql.user
CREATE VIEW shop.v AS SELECT * FROM shop.orders WHERE id IN (SELECT id FROM secret.t)
CREATE VIEW shop.v AS SELECT (SELECT max(a) FROM secret.t) AS a FROM shop.orders
CREATE VIEW shop.v AS WITH x AS (SELECT * FROM secret.t) SELECT * FROM x
CREATE VIEW shop.v AS TABLE secret.t
CREATE VIEW shop.v AS SELECT 1 UNION SELECT a FROM secret.t
CREATE VIEW shop.v AS SELECT LOAD_FILE('/etc/passwd') AS a
CREATE VIEW shop.v AS SELECT SLEEP(1000) AS a
CREATE VIEW shop.v AS SELECT sys_exec('id') AS a
CREATE VIEW shop.v AS SELECT secret.f(1) AS a
CREATE VIEW shop.v AS SELECT @@datadir AS a
CREATE VIEW shop.v AS SELECT * FROM information_schema.tables
CREATE VIEW secret.v AS SELECT 1
ALTER TABLE shop.orders ADD COLUMN b text DEFAULT (LOAD_FILE('/etc/passwd'))
ALTER TABLE shop.orders ADD COLUMN b int DEFAULT (SLEEP(1000))
ALTER TABLE shop.orders ADD COLUMN b int AS (f(id)) STORED
ALTER TABLE shop.orders ADD FOREIGN KEY (id) REFERENCES secret.t (id)
CREATE TABLE shop.n (id int primary key, foreign key (id) references mysql.user (x))
ALTER TABLE shop.orders EXCHANGE PARTITION p0 WITH TABLE secret.t
ALTER TABLE secret.r EXCHANGE PARTITION p0 WITH TABLE shop.orders
ALTER TABLE shop.orders COMMENT 'x'; DROP TABLE secret.t
ALTER TABLE shop.orders COMMENT 'x'; GRANT ALL ON *.* TO eve
/*!50000 DROP TABLE secret.t */
/*! GRANT ALL ON *.* TO eve */
/*T! DROP TABLE secret.t */
ALTER TABLE shop.orders COMMENT 'x' /*!, RENAME TO secret.orders */
ALTER TABLE /*T![zzz] shop.orders COMMENT 'x' -- */ secret.t DROP COLUMN a
CREATE TABLE shop.n (id int) ENGINE = 'InnoDB UNION = (secret.t)'
CREATE TABLE shop.n (id int) COLLATE 'utf8mb4_bin AS SELECT * FROM secret.t'
CREATE TABLE shop.n (id int) /*T![ttl] TTL = d + INTERVAL '*/ AS SELECT * FROM secret.t -- ' DAY */
ANALYZE TABLE secret.t
FLUSH PRIVILEGES
LOCK TABLES secret.t WRITE
KILL 1
SHUTDOWN
PREPARE x FROM 'DROP TABLE secret.t'
CALL secret.p()
not SQL at all
"""
TEXTS: Final = tuple(line for line in HOSTILE.splitlines() if line)
OURS: Final = (
    "DROP TABLE tidegate.progress",
    "DROP DATABASE tidegate",
    "CREATE TABLE mysql.n (id int primary key)",
    "ALTER TABLE mysql.user ADD COLUMN a int",
    "CREATE VIEW shop.v AS SELECT * FROM mysql.user",
    "CREATE VIEW shop.v AS SELECT * FROM performance_schema.threads",
    "CREATE TABLE shop.n LIKE sys.version",
    "RENAME TABLE shop.orders TO mysql.orders",
    "DROP TABLE metrics_schema.up, tidb_cdc.syncpoint_v1",
    "ALTER TABLE shop.orders ADD FOREIGN KEY (id) REFERENCES mysql.user (x)",
    "DROP TABLE `#mysql50#mysql`.user",
    "DROP DATABASE `#mysql50#tidegate`",
    "ALTER TABLE shop.`#mysql50#orders` ADD COLUMN a int",
)
CLUSTER: Final = (
    "FLASHBACK CLUSTER TO TSO 1",
    "FLASHBACK CLUSTER TO TIMESTAMP '2026-01-01 00:00:00'",
    "FLASHBACK DATABASE shop",
    "CREATE PLACEMENT POLICY p FOLLOWERS=1",
    "DROP PLACEMENT POLICY p",
    "ALTER RESOURCE GROUP `default` RU_PER_SEC=1",
    "DROP RESOURCE GROUP g",
    "CREATE SEQUENCE shop.s",
    "DROP SEQUENCE shop.orders",
)
"""Texts about more than the feed's tables, or about nothing that they name."""
IN_FRONT: Final = ("", ";", " ; ; ", "/*T![zzz] CREATE */ ", "/*T![zzz] ALTER TABLE shop.orders */;", "# x\n")
"""What may stand before a statement without being one."""
"""What no filter lets pass: databases of the servers and of ours."""
