"""Every statement that is sent to a server of MySQL's protocol, by its name: by the sink of a database, by `verify`,
and by the readers that complete large rows from the upstream and load its tables.

    {name}    a part of the statement: names, already quoted, and lists of them
    %s        a parameter, which the driver writes as a literal; %% is a percent sign in statements with parameters

Names are in backquotes, those of information_schema too: each server has its own reserved words, and a TiDB does not
accept UNTIL, RANK or LEAD as names.  DDLs of the upstream are not here, schema/restore_ddl.py prints them.

Source: MySQL reference manual, "Keywords and Reserved Words"; recorded answers of a TiDB 8.5.
"""

from typing import Final

# Sessions.

VERSION: Final = "SELECT VERSION()"
IN_INFORMATION: Final = "USE `information_schema`"
"""A TiDB shows variables only to sessions that have chosen a database."""
VARIABLE: Final = "SHOW SESSION VARIABLES LIKE '{name}'"
SETTING: Final = "SET SESSION {name} = {value}"
BEGIN: Final = "BEGIN"
COMMIT: Final = "COMMIT"
ROLLBACK: Final = "ROLLBACK"
GRANTS: Final = "SHOW GRANTS FOR CURRENT_USER()"
ACCOUNT: Final = "SELECT CURRENT_USER()"

# Progress.

DATABASE: Final = "tidegate"
PROGRESS: Final = "`tidegate`.`progress`"
CREATE_DATABASE: Final = "CREATE DATABASE IF NOT EXISTS `tidegate`"
CREATE_PROGRESS: Final = (
    "CREATE TABLE IF NOT EXISTS `tidegate`.`progress` (`feed` VARBINARY(200) NOT NULL, `shard` INT NOT NULL, "
    "`epoch` BIGINT NOT NULL, `position` BIGINT UNSIGNED NOT NULL, `state` LONGBLOB, `definitions` LONGBLOB, "
    "PRIMARY KEY (`feed`, `shard`))"
)
BEGIN_PROGRESS: Final = "INSERT IGNORE INTO `tidegate`.`progress` VALUES (%s, %s, 0, 0, NULL, NULL)"
TAKE_PROGRESS: Final = (
    "SELECT `epoch`, `position`, `state`, `definitions` FROM `tidegate`.`progress` "
    "WHERE `feed` = %s AND `shard` = %s FOR UPDATE"
)
STATE: Final = "SELECT `state` FROM `tidegate`.`progress` WHERE `feed` = %s AND `shard` = -1"
RAISE_FEED: Final = "UPDATE `tidegate`.`progress` SET `epoch` = %s WHERE `feed` = %s"
RAISE_SHARDS: Final = "UPDATE `tidegate`.`progress` SET `epoch` = %s WHERE `feed` = %s AND `shard` >= 0"
SHARDS: Final = "SELECT `shard`, `position` FROM `tidegate`.`progress` WHERE `feed` = %s AND `shard` >= 0"
REMOVE_SHARDS: Final = "DELETE FROM `tidegate`.`progress` WHERE `feed` = %s AND `shard` >= 0"
ADD_SHARD: Final = "INSERT INTO `tidegate`.`progress` VALUES (%s, %s, %s, %s, NULL, NULL)"
_MINE: Final = "WHERE `feed` = %s AND `shard` = %s AND `epoch` BETWEEN %s AND %s AND `position` IN (%s, %s)"
MOVE_STATE: Final = f"UPDATE `tidegate`.`progress` SET `state` = %s {_MINE}"  # noqa: S608  constants
MOVE_EPOCH: Final = f"UPDATE `tidegate`.`progress` SET `epoch` = %s {_MINE}"  # noqa: S608
MOVE: Final = f"UPDATE `tidegate`.`progress` SET `position` = %s, `state` = %s {_MINE}"  # noqa: S608
MOVE_ALL: Final = f"UPDATE `tidegate`.`progress` SET `position` = %s, `state` = %s, `definitions` = %s {_MINE}"  # noqa: S608
MOVE_SHARD: Final = (
    "UPDATE `tidegate`.`progress` SET `position` = {position} "
    "WHERE `feed` = x'{feed}' AND `shard` = {shard} AND `epoch` = {epoch} AND `position` = {before}"
)
SHARD_AT: Final = "SELECT `position` FROM `tidegate`.`progress` WHERE `feed` = %s AND `shard` = %s AND `epoch` = %s"
POSITIONS: Final = "SELECT `shard`, `position` FROM `tidegate`.`progress` WHERE `feed` = %s"
CHECKPOINT: Final = "SELECT `position` FROM `tidegate`.`progress` WHERE `feed` = %s AND `shard` = -1"
REACHED: Final = "SELECT MAX(`position`) FROM `tidegate`.`progress` WHERE `feed` = %s HAVING COUNT(*) > 0"
FEEDS: Final = "SELECT `feed` FROM `tidegate`.`progress` WHERE `shard` = -1 ORDER BY `feed`"
EPOCH: Final = "SELECT `epoch` FROM `tidegate`.`progress` WHERE `feed` = %s AND `shard` = -1 FOR UPDATE"
FORGET: Final = "DELETE FROM {table} WHERE `feed` = %s"

# Holds.

HOLDS: Final = "`tidegate`.`holds`"
CREATE_HOLDS: Final = (
    "CREATE TABLE IF NOT EXISTS `tidegate`.`holds` (`feed` VARBINARY(200) NOT NULL, `holder` VARBINARY(36) NOT NULL, "
    "`position` BIGINT UNSIGNED, `seen` TINYINT NOT NULL, `until` DATETIME(6) NOT NULL, PRIMARY KEY (`feed`, `holder`))"
)
HOLDS_OF: Final = (
    "SELECT `holder`, `position`, `seen` FROM `tidegate`.`holds` WHERE `feed` = %s AND `until` > UTC_TIMESTAMP(6)"
)
SEE_HOLD: Final = "UPDATE `tidegate`.`holds` SET `seen` = 1, `position` = %s WHERE `feed` = %s AND `holder` = %s"
ADD_HOLD: Final = "INSERT INTO `tidegate`.`holds` VALUES (%s, %s, %s, 0, UTC_TIMESTAMP(6) + INTERVAL %s SECOND)"
RENEW_HOLD: Final = (
    "UPDATE `tidegate`.`holds` SET `until` = UTC_TIMESTAMP(6) + INTERVAL %s SECOND "
    "WHERE `feed` = %s AND `holder` = %s AND `until` > UTC_TIMESTAMP(6)"
)
SELECT_HOLD: Final = "SELECT `position`, `seen` FROM `tidegate`.`holds` WHERE `feed` = %s AND `holder` = %s"
REMOVE_HOLD: Final = "DELETE FROM `tidegate`.`holds` WHERE `feed` = %s AND `holder` = %s"

# Sync points.

POINTS: Final = "`tidb_cdc`.`syncpoint_v1`"
CREATE_POINTS_DATABASE: Final = "CREATE DATABASE IF NOT EXISTS `tidb_cdc`"
CREATE_POINTS: Final = (
    "CREATE TABLE IF NOT EXISTS `tidb_cdc`.`syncpoint_v1` (`ticdc_cluster_id` VARCHAR(255), `changefeed` VARCHAR(255), "
    "`primary_ts` VARCHAR(18), `secondary_ts` VARCHAR(18), "
    "`created_at` TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, INDEX (`created_at`), "
    "PRIMARY KEY (`changefeed`, `primary_ts`))"
)
NOW_TS: Final = "SELECT @@tidb_current_ts"
NOTE_POINT: Final = (
    "INSERT INTO `tidb_cdc`.`syncpoint_v1` (`ticdc_cluster_id`, `changefeed`, `primary_ts`, `secondary_ts`) "
    "VALUES (%s, %s, %s, %s) "
    "ON DUPLICATE KEY UPDATE `secondary_ts` = VALUES(`secondary_ts`), `created_at` = CURRENT_TIMESTAMP"
)
FORGET_POINTS: Final = (
    "DELETE FROM `tidb_cdc`.`syncpoint_v1` "
    "WHERE `changefeed` = %s AND `created_at` < CURRENT_TIMESTAMP - INTERVAL %s SECOND"
)
SHOW_POINT: Final = "SET GLOBAL tidb_external_ts = {ts}"
NEWEST_POINT: Final = (
    "SELECT `primary_ts`, `secondary_ts` FROM `tidb_cdc`.`syncpoint_v1` WHERE `changefeed` = %s "
    "ORDER BY CAST(`primary_ts` AS UNSIGNED) DESC LIMIT 1"
)
POINT_AT: Final = (
    "SELECT `primary_ts`, `secondary_ts` FROM `tidb_cdc`.`syncpoint_v1` WHERE `changefeed` = %s AND `primary_ts` = %s"
)
READABLE_POINTS: Final = (
    "SELECT `primary_ts` FROM `tidb_cdc`.`syncpoint_v1` WHERE `changefeed` = %s AND `secondary_ts` <> '0'"
)

# DDLs and their ledger.

LEDGER: Final = "`tidegate`.`ddl_history`"
CREATE_LEDGER: Final = (
    "CREATE TABLE IF NOT EXISTS `tidegate`.`ddl_history` (`feed` VARCHAR(255) NOT NULL, "
    "`ddl_ts` BIGINT UNSIGNED NOT NULL, `id` CHAR(16) NOT NULL, `state` VARCHAR(16) NOT NULL, "
    "`epoch` BIGINT UNSIGNED NOT NULL, `schema_name` VARCHAR(255) NOT NULL, `table_name` VARCHAR(255) NOT NULL, "
    "`query` MEDIUMTEXT NOT NULL, `executed` MEDIUMTEXT NOT NULL, `connection_id` BIGINT UNSIGNED NOT NULL, "
    "`facts` MEDIUMTEXT NOT NULL, `note` TEXT NOT NULL, "
    "`changed_at` TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3), "
    "PRIMARY KEY (`feed`, `ddl_ts`, `id`)) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
)
DDL: Final = (
    "SELECT `state`, `executed`, `connection_id`, `facts`, `note` FROM `tidegate`.`ddl_history` "
    "WHERE `feed` = %s AND `ddl_ts` = %s AND `id` = %s"
)
PUT_DDL: Final = (
    "REPLACE INTO `tidegate`.`ddl_history` (`feed`, `ddl_ts`, `id`, `state`, `epoch`, `schema_name`, `table_name`, "
    "`query`, `executed`, `connection_id`, `facts`, `note`) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
)
MADE_DATABASE: Final = (
    "SELECT 1 FROM `tidegate`.`ddl_history` WHERE `feed` = %s AND `state` = 'done' AND LOWER(`schema_name`) = %s "
    "AND `executed` LIKE 'CREATE DATABASE%%' LIMIT 1"
)
_LISTED: Final = (
    "SELECT `ddl_ts`, `id`, `state`, `schema_name`, `table_name`, `query`, `note` FROM `tidegate`.`ddl_history` "
    "WHERE `feed` = %s"
)
DDLS: Final = f"{_LISTED} ORDER BY `ddl_ts`, `id`"
WAITING_DDLS: Final = f"{_LISTED} AND `state` NOT IN ('done', 'skipped') ORDER BY `ddl_ts`, `id`"
HAS_AHEAD: Final = (
    "SELECT 1 FROM `tidegate`.`ddl_history` WHERE `feed` = %s "
    "AND (`ddl_ts` > %s OR `state` NOT IN ('done', 'skipped')) LIMIT 1"
)
HAS_BEGUN: Final = (
    "SELECT 1 FROM `tidegate`.`ddl_history` WHERE `feed` = %s AND `ddl_ts` >= %s "
    "AND (`state` IN ('planned', 'running') OR `state` = 'done' AND `ddl_ts` > %s) LIMIT 1"
)
LAST_RAN: Final = (
    "SELECT MAX(`ddl_ts`) FROM `tidegate`.`ddl_history` WHERE `feed` = %s AND `state` IN ('running', 'done')"
)
SETTLE_DONE: Final = (
    "UPDATE `tidegate`.`ddl_history` SET `state` = 'done' WHERE `feed` = %s AND `ddl_ts` = %s AND `id` = %s"
)
SETTLE_AGAIN: Final = "DELETE FROM `tidegate`.`ddl_history` WHERE `feed` = %s AND `ddl_ts` = %s AND `id` = %s"
USE: Final = "USE {schema}"
CONNECTION: Final = "SELECT CONNECTION_ID()"
CLOCK: Final = "SET TIMESTAMP = {seconds}"
LOCK: Final = "SELECT GET_LOCK(%s, 1)"
IS_LOCKED: Final = "SELECT GET_LOCK(%s, 1), RELEASE_LOCK(%s)"
"""0 where another session has the lock; nothing is locked afterwards."""
LOCKED_BY: Final = "SELECT `id`, `command` FROM `information_schema`.`processlist` WHERE `id` = IS_USED_LOCK(%s)"
KILL: Final = "KILL {number}"
RUNNING: Final = (
    "SELECT `id`, `time`, `state` FROM `information_schema`.`processlist` "
    "WHERE `id` <> CONNECTION_ID() AND `info` LIKE %s"
)
JOB: Final = "SELECT `state` FROM `information_schema`.`ddl_jobs` WHERE `query` LIKE %s ORDER BY `job_id` DESC LIMIT 1"

# What tables look like.

_ONE_TABLE: Final = "WHERE LOWER(`table_schema`) = %s AND LOWER(`table_name`) = %s"
COLUMNS: Final = (
    "SELECT `column_name`, `column_type`, `is_nullable` FROM `information_schema`.`columns` "  # noqa: S608
    f"{_ONE_TABLE} ORDER BY `ordinal_position`"
)
KEYS: Final = (
    "SELECT `index_name`, `non_unique`, `column_name` FROM `information_schema`.`statistics` "  # noqa: S608
    f"{_ONE_TABLE} ORDER BY `index_name`, `seq_in_index`"
)
PARTITIONS: Final = (
    "SELECT `partition_name` FROM `information_schema`.`partitions` "  # noqa: S608
    f"{_ONE_TABLE} ORDER BY `partition_ordinal_position`"
)
FILES: Final = (
    "SELECT CAST(CONVERT(`table_schema` USING filename) AS BINARY), "  # noqa: S608
    "CAST(CONVERT(`table_name` USING filename) AS BINARY) "
    f"FROM `information_schema`.`tables` {_ONE_TABLE}"
)
"""A name in InnoDB's form: `my@002dtable`."""
FILE_NUMBERS: Final = (
    "SELECT `name`, `table_id` FROM `information_schema`.{relation} WHERE `name` = %s OR `name` LIKE %s"
)
PLAIN_NAME: Final = "SELECT CONVERT(CONVERT(CAST(%s AS BINARY) USING filename) USING utf8mb4)"
HAS_TABLE: Final = "SELECT 1 FROM `information_schema`.`tables` WHERE `table_schema` = %s AND `table_name` = %s"
OWN_TABLES: Final = "SELECT `table_name` FROM `information_schema`.`tables` WHERE `table_schema` = %s"
FOREIGN_KEYS: Final = (
    "SELECT `table_schema`, `table_name`, `referenced_table_schema`, `referenced_table_name` "
    "FROM `information_schema`.`key_column_usage` WHERE `referenced_table_name` IS NOT NULL"
)
MET_COLUMNS: Final = (
    "SELECT `table_schema`, `table_name`, `column_name`, `column_type`, `is_nullable`, `column_key` "
    "FROM `information_schema`.`columns` WHERE LOWER(`table_schema`) IN ({marks})"
)
COMPARED_COLUMNS: Final = (
    "SELECT `c`.`table_schema`, `c`.`table_name`, `c`.`column_name`, `c`.`column_type`, `c`.`extra`, `c`.`column_key` "
    "FROM `information_schema`.`columns` `c` JOIN `information_schema`.`tables` `t` "
    "ON `c`.`table_schema` = `t`.`table_schema` AND `c`.`table_name` = `t`.`table_name` "
    "WHERE `t`.`table_type` IN ('BASE TABLE', 'SYSTEM VERSIONED') "
    "ORDER BY `c`.`table_schema`, `c`.`table_name`, `c`.`ordinal_position`"
)
"""Views and sequences have no rows of their own."""

# Values that a DDL changes, kept beside their table.

TYPED_COLUMNS: Final = (
    "SELECT `column_name`, `column_type`, `character_set_name`, `collation_name` "  # noqa: S608
    f"FROM `information_schema`.`columns` {_ONE_TABLE} ORDER BY `ordinal_position`"
)
TOUCHED_COLUMNS: Final = (
    "SELECT `column_name` FROM `information_schema`.`columns` "  # noqa: S608
    f"{_ONE_TABLE} AND LOWER(`extra`) LIKE '%%on update%%'"
)
CREATE_VALUES: Final = (
    "CREATE TABLE {values} (`n` BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, {columns}) CHARACTER SET utf8mb4"
)
DROP_VALUES: Final = "DROP TABLE IF EXISTS {values}"
KEEP_VALUES: Final = "INSERT INTO {values} ({names}) SELECT {columns} FROM {table} WHERE {some}"
VALUES_AFTER: Final = "SELECT `n`, {columns} FROM {values} WHERE `n` > %s ORDER BY `n` LIMIT {rows}"
VALUES_BETWEEN: Final = "SELECT {columns} FROM {values} WHERE `n` BETWEEN {first} AND {last}"
COMPUTE_VALUES: Final = "INSERT INTO {values} (`n`, {names}) VALUES ({marks}) ON DUPLICATE KEY UPDATE {sets}"
CHANGE_VALUES: Final = "ALTER TABLE {values} MODIFY {column} {type} NULL"
WRITE_VALUES: Final = (
    "UPDATE {table} `t` JOIN {values} `s` ON {joined} SET {sets} WHERE `s`.`n` BETWEEN {first} AND {last}"
)
WRITE_VALUE: Final = "UPDATE {table} SET {sets} WHERE {key}"
FORGET_VALUES: Final = "DELETE FROM {values} WHERE `n` BETWEEN {first} AND {last}"
FILL: Final = "UPDATE {table} SET {sets} WHERE {some} LIMIT {rows}"

# Rows that are written.

DELETE: Final = "DELETE FROM {table} WHERE "
DELETE_BY_ONE: Final = "DELETE FROM {table} WHERE {key} IN ("
INSERT: Final = "INSERT INTO {table} ({columns}) VALUES "
REPLACE: Final = "REPLACE INTO {table} ({columns}) VALUES "
UPSERT: Final = " ON DUPLICATE KEY UPDATE {sets}"
UPSERTED: Final = "{column}=VALUES({column})"
UPDATE: Final = "UPDATE {table} SET "
SAME_DOCUMENT: Final = "{column}<=>CAST("
AS_DOCUMENT: Final = " AS JSON)"
SAME_BYTES: Final = "CAST(CONVERT({column} USING utf8mb4) AS BINARY)<=>CAST("
AS_BYTES: Final = " AS BINARY)"
SAME_NUMBER: Final = "CAST({column} AS UNSIGNED)<=>{value}"
SAME_MOMENT: Final = "CAST({column} AS CHAR)<=>{value}"
SAME_VALUE: Final = "{column}<=>{value}"
STORED: Final = "SELECT {same} FROM {table} WHERE {key}"

# Rows that are compared.

REPEATABLE: Final = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"
SNAPSHOT: Final = "START TRANSACTION WITH CONSISTENT SNAPSHOT"
AT_TS: Final = "SET SESSION tidb_snapshot = %s"
"""TiDB's historical read; its parameter is a TSO."""
COUNT: Final = "SELECT COUNT(*) FROM {table}"
ENDS: Final = "SELECT MIN({key}), MAX({key}) FROM {table}"
ALL_ROWS: Final = "SELECT {columns} FROM {table}{some}"
ROWS: Final = "SELECT {chunk}, {row} FROM {table}{some}"
SOME_CHUNKS: Final = " WHERE {chunk} IN ({chunks}) ORDER BY 1"
CHUNK: Final = "IFNULL(CRC32(CONCAT_WS(',', {texts})), 0) % {chunks}"

# Rows that are completed.

DEFINITION: Final = "SHOW CREATE TABLE {table}"
WHOLE_ROWS: Final = "SELECT {columns} FROM {table} WHERE {where}"
ZONE: Final = "SET SESSION time_zone = %s"

# Tables that are loaded.

POSITION: Final = "SHOW MASTER STATUS"
"""Its column Position is a TiDB's newest TSO."""
POSITION_NEWER: Final = "SHOW BINARY LOG STATUS"
"""Its name where the old one is gone."""
DATABASES: Final = "SHOW DATABASES"
TABLES: Final = "SHOW FULL TABLES FROM {schema}"
ALL_TABLES: Final = (
    "SELECT `table_schema`, `table_name`, `table_type`, `table_rows`, `data_length` FROM `information_schema`.`tables`"
)
DATABASE_DEFINITION: Final = "SHOW CREATE DATABASE {schema}"
SEQUENCE_DEFINITION: Final = "SHOW CREATE SEQUENCE {table}"
NEXT_NUMBERS: Final = "SHOW TABLE {table} NEXT_ROW_ID"
"""A TiDB's counters of a table or a sequence: database, table, column, the next number, and its kind."""
CLUSTER: Final = "SELECT `variable_value` FROM `mysql`.`tidb` WHERE `variable_name` = 'cluster_id'"
SHOWN_TS: Final = "SELECT @@tidb_snapshot"
REPLICA_READ: Final = "SET SESSION tidb_replica_read = %s"
RESOURCE_GROUP: Final = "SET RESOURCE GROUP {name}"
OF_PARTITION: Final = "{table} PARTITION ({partition})"
SAMPLE: Final = "SELECT {keys} FROM {table} TABLESAMPLE REGIONS() ORDER BY {order}"
"""The first row of each region."""
BORDER: Final = "SELECT {keys} FROM {table}{where} ORDER BY {order} LIMIT 1 OFFSET {rows}"
ANY_ROW: Final = "SELECT 1 FROM {table} LIMIT 1"
LOADED: Final = "SELECT {columns} FROM {table}{where} ORDER BY {order}"
GLOBAL: Final = "SELECT @@global.{name}"
SET_GLOBAL: Final = "SET GLOBAL {name} = %s"
