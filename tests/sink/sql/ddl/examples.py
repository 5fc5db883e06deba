"""Statements of every row of the table of statements by target, over the tables that BASE makes.

t, u    plain        r    partitions by RANGE         h    by HASH         l    by LIST       k    by KEY
x       to be exchanged with those of r
"""

from typing import Final

from tidegate.sink.sql.connection import target_of

MYSQL: Final = target_of("8.0.36", {})
MARIADB: Final = target_of("10.11.19-MariaDB", {})
TIDB: Final = target_of("5.7.25-TiDB-v8.5.1", {})
TARGETS: Final = (MYSQL, MARIADB, TIDB)

_RANGE: Final = "partition by range (id) (partition p0 values less than (10), partition p1 values less than (20))"
_INTERVAL: Final = "interval (10) first partition less than (10) last partition less than (30)"
BASE: Final = (
    "create table t (id int primary key, a int, b varchar(20), d datetime, key i (a), key j (b, a))",
    "create table u (id int primary key, a int, unique key i (a))",
    f"create table r (id int primary key, a int) {_RANGE}",
    "create table h (id int primary key, a int) partition by hash (id) partitions 4",
    "create table l (id int primary key, a int) partition by list (id) (partition p0 values in (1, 2))",
    "create table k (id int primary key, a int) partition by key (id) partitions 4",
    "create table x (id int primary key, a int)",
    "create table y (id int, primary key (id) nonclustered)",
)

EXAMPLES: Final[dict[str, tuple[str, ...]]] = {
    "Databases": (
        "create database d1",
        "create database if not exists d2 charset utf8",
        "alter database d3 collate utf8mb4_general_ci",
        "create database d4 placement policy = east",
        "drop database d3",
        "flashback database d3",
    ),
    "Tables": (
        "create table n (id int primary key, b varchar(5))",
        "create table n (id int primary key) charset latin1",
        "create table n (id int primary key, b char(5) collate utf8mb4_0900_ai_ci, c char(5) charset gb18030)",
        "create table n (id int primary key) engine = myisam row_format = compressed stats_topn = 3 comment = 'x'",
        "create table n (id bigint primary key clustered auto_random(5))",
        "create table n (id int, unique key (id)) shard_row_id_bits = 4 pre_split_regions = 2",
        "create table n (id int primary key nonclustered auto_increment) auto_id_cache = 1 auto_increment = 5",
        "create table n (id int primary key, d datetime) ttl = `d` + interval 1 day",
        "create table n (id int primary key) placement policy = east",
        "create table n like t",
        "create global temporary table n (id int) on commit delete rows",
        "create temporary table n (id int)",
        "drop table t, u",
        "truncate table t",
        "rename table t to n, u to t, n to u",
        "recover table t",
        "flashback table t to n",
        "flashback cluster to timestamp '2026-01-01 00:00:00'",
        "alter table t rename to n",
        "alter table t comment = 'x', auto_increment = 100",
        "alter table t force auto_increment = 5",
        "alter table y shard_row_id_bits = 4",
        "alter table t auto_id_cache = 100",
        "alter table t ttl = `d` + interval 1 day",
        "alter table t remove ttl",
        "alter table t placement policy = east",
        "alter table t set tiflash replica 1",
        "alter table t cache",
        "alter table t charset utf8mb4",
        "alter table t convert to character set utf8mb4 collate utf8mb4_0900_bin",
        "alter table t order by id",
        "alter table t enable keys",
        "alter table t discard tablespace",
        "alter table t read only",
        "alter table t secondary_load",
        "alter table t add stats_extended s correlation(a, b)",
        "alter table t compact tiflash replica",
        "alter table t force",
    ),
    "Columns": (
        "alter table t add column c int not null default 3 after id",
        "alter table t add column if not exists c int",
        "alter table t add column (c int, e varchar(3))",
        "alter table t add column c timestamp(3) default current_timestamp(3) on update current_timestamp(3)",
        "alter table t add column c json",
        "alter table t add column c enum('a', 'b\\\\c')",
        "alter table t add column c varchar(36) default (uuid())",
        "alter table t add column c bigint default (next value for s)",
        "alter table t add column c int as (a + 1) stored",
        "alter table t add column c varchar(5) charset gbk",
        "alter table t add column c int check (c > 0)",
        "alter table t add column c int references u (id) on delete cascade",
        "alter table t add column c vector(3)",
        "alter table t drop column d",
        "alter table t drop column if exists d",
        "alter table t modify column a bigint not null first",
        "alter table t change column a c bigint",
        "alter table t rename column a to c",
        "alter table t alter column a set default 5",
        "alter table t drop column d, add index (a, b), algorithm = inplace, lock = none",
    ),
    "Indexes": (
        "alter table t add index (d)",
        "create unique index n on t (b(5))",
        "alter table t add unique index n (id, a) global",
        "alter table t drop index i",
        "drop index i on t",
        "alter table t rename index i to n",
        "alter table t alter index i invisible",
        "alter table t add index n (a) invisible",
        "alter table t add index n (a) visible",
        "alter table t add index n ((a + 1))",
        "alter table t add index n (a) where a > 1",
        "alter table y drop primary key",
        "alter table t add fulltext index n (b) with parser standard",
        "create table n (id int primary key, v vector(3), vector index w ((vec_cosine_distance(v))))",
        "create vector index n on t ((vec_cosine_distance(b))) using hnsw",
        "alter table t add columnar index n (a) using inverted",
        "alter table u add constraint f foreign key (a) references t (id) on delete cascade",
        "alter table u drop foreign key f",
        "alter table t add constraint n check (a > 0)",
        "alter table t drop check m",
    ),
    "Partitions": (
        "create table n (id int primary key) partition by linear hash (id) partitions 3",
        "create table n (id int) partition by list (id) (partition p0 values in (1), partition p1 default)",
        "create table n (id int, a int, unique key (a) global) partition by hash (id) partitions 3",
        f"create table n (id int) partition by range (id) {_INTERVAL}",
        "alter table r add partition (partition p2 values less than (30))",
        "alter table h add partition partitions 2",
        "alter table h coalesce partition 1",
        "alter table r drop partition p0",
        "alter table r truncate partition p0",
        "alter table k truncate partition p0",
        "alter table r reorganize partition p0, p1 into (partition p values less than (20))",
        "alter table r exchange partition p0 with table x",
        "alter table r exchange partition p0 with table x without validation",
        "alter table t partition by hash (id) partitions 3",
        "alter table u partition by hash (a) partitions 3 update indexes (i global)",
        "alter table y partition by hash (id) partitions 3 update indexes (`primary` local)",
        "alter table r remove partitioning",
        "alter table r partition p0 placement policy = east",
        "alter table r first partition less than (15)",
        "alter table r merge first partition less than (20)",
        "alter table r split maxvalue partition less than (40)",
        "alter table r check partition p0",
        "alter table r split partition p0",
    ),
    "Others": (
        "create view n as select id, a from t where a > 1",
        "create or replace definer = 'u'@'%' sql security invoker view n as select id from t",
        "drop view n",
        "create sequence s",
        "alter sequence s increment = 2",
        "drop sequence s",
        "create placement policy east followers = 4",
        "create resource group g ru_per_sec = 100",
    ),
}
"""By the kind of what they change."""


EMBEDDED_LACKS: Final = frozenset(
    {
        "alter table u partition by hash (a) partitions 3 update indexes (i global)",
        "recover table t",
        "alter table t add column c int as (a + 1) stored",
        "create table n (id int primary key, v vector(3), vector index w ((vec_cosine_distance(v))))",
        "create vector index n on t ((vec_cosine_distance(b))) using hnsw",
        "alter table t add columnar index n (a) using inverted",
        "alter table t drop check m",
        "create table n (id int, a int, unique key (a) global) partition by hash (id) partitions 3",
        f"create table n (id int) partition by range (id) {_INTERVAL}",
        "alter table r first partition less than (15)",
        "alter table r merge first partition less than (20)",
        "alter table r split maxvalue partition less than (40)",
        "alter table t order by id",
        "alter table t force",
    }
)
"""What the embedded TiDB refuses over these tables."""
FIRST: Final = {
    "drop view n": "create view n as select 1 as a",
    "alter table u drop foreign key f": "alter table u add constraint f foreign key (a) references t (id)",
    "flashback table t to n": "drop table t",
}
"""What a statement needs before it."""


def location_of(statement: str) -> str:
    """Return the method of the partitions of the table that a statement alters."""
    return "KEY" if statement.startswith("alter table k ") else ""
