"""Statements: what DDL text says, in every spelling that TiDB takes."""

import pytest

from tidegate.model.errors import SqlError
from tidegate.model.mysql import MysqlType
from tidegate.model.table import PartitionDef, PartitionInfo, TableName
from tidegate.schema import statement as d
from tidegate.schema import statement as p
from tidegate.schema import statement as s
from tidegate.schema.columns import complete_type, parse_type, render_type
from tidegate.schema.parse_ddl import parse_ddl


def one(query: str) -> s.Statement:
    (statement,) = parse_ddl(query, "db")
    return statement


def columns(body: str) -> tuple[d.ColumnDef, ...]:
    statement = one(f"create table t ({body})")
    assert isinstance(statement, s.CreateTable)
    return statement.columns


def specs(text: str) -> tuple[p.Spec, ...]:
    statement = one(f"alter table t {text}")
    assert isinstance(statement, s.AlterTable)
    return statement.specs


T = TableName("db", "t")


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("int", "int(11)"),
        ("INTEGER unsigned", "int(10) unsigned"),
        ("int4", "int(11)"),
        ("int(6) unsigned zerofill", "int(6) unsigned"),
        ("int(6) zerofill", "int(6) unsigned"),
        ("tinyint unsigned", "tinyint(3) unsigned"),
        ("int1", "tinyint(4)"),
        ("middleint", "mediumint(9)"),
        ("int8 signed", "bigint(20)"),
        ("bool", "tinyint(1)"),
        ("boolean", "tinyint(1)"),
        ("dec", "decimal(10,0)"),
        ("fixed(7)", "decimal(7,0)"),
        ("numeric(6,2) unsigned", "decimal(6,2) unsigned"),
        ("float", "float"),
        ("float(24)", "float"),
        ("float(25)", "double"),
        ("float(10,3)", "float(10,3)"),
        ("double precision unsigned", "double unsigned"),
        ("real(20,5)", "double(20,5)"),
        ("bit", "bit(1)"),
        ("bit(64)", "bit(64)"),
        ("year", "year(4)"),
        ("year(4)", "year(4)"),
        ("date", "date"),
        ("datetime(0)", "datetime"),
        ("timestamp(6)", "timestamp(6)"),
        ("time(3)", "time(3)"),
        ("char", "char(1)"),
        ("character(3)", "char(3)"),
        ("nchar(3)", "char(3)"),
        ("nchar varcharacter(3)", "varchar(3)"),
        ("national varchar(3)", "varchar(3)"),
        ("national character varying(3)", "varchar(3)"),
        ("char varying(3)", "varchar(3)"),
        ("char(3) byte", "binary(3)"),
        ("char(5) binary", "char(5)"),
        ("char(5) character set binary", "binary(5)"),
        ("varchar(50) charset binary", "varbinary(50)"),
        ("text character set binary", "blob"),
        ("varchar(5) collate binary", "varbinary(5)"),
        ("binary", "binary(1)"),
        ("long", "mediumtext"),
        ("long varchar", "mediumtext"),
        ("long varbinary", "mediumblob"),
        ("text(60)", "tinytext"),
        ("text(70)", "text"),
        ("text(20000)", "mediumtext"),
        ("blob(255)", "tinyblob"),
        ("blob(70000)", "mediumblob"),
        ("json", "json"),
        ("vector", "vector"),
        ("vector(3)", "vector(3)"),
        ("vector<float>(3)", "vector(3)"),
        ("enum('a','it''s', \"c\", _utf8mb4'd')", "enum('a','it''s','c','d')"),
        ("enum(b'1100001', x'62')", "enum('a','b')"),
        ("set('x', 'y z') charset utf8mb4", "set('x','y z')"),
        ("serial", "bigint(20) unsigned"),
    ],
)
def test_types(written: str, shown: str) -> None:
    """Every spelling of a type is the one that information_schema prints."""
    (column,) = columns(f"c {written}")
    assert render_type(complete_type(column.type, "utf8mb4")) == shown


@pytest.mark.parametrize(
    "text",
    ["int(11)", "int(10) unsigned", "decimal(10,4)", "datetime(6)", "enum('a,b','c''d')", "varbinary(8)", "bit(1)"],
)
def test_full_types_come_back(text: str) -> None:
    """parse_type undoes render_type for full forms."""
    assert render_type(parse_type(text)) == text


@pytest.mark.parametrize("text", ["varchar", "char", "binary", "decimal", "bit", "enum", "set", "datetime", "longblob"])
def test_short_types_stay_open(text: str) -> None:
    """What canal-json's short form leaves out stays unknown."""
    found = parse_type(text)
    assert (found.flen, found.decimal, found.elems) == (-1, -1, None)
    assert render_type(found) == text


@pytest.mark.parametrize(
    ("written", "default"),
    [
        ("7", d.DefaultNumber("7")),
        ("-1", d.DefaultNumber("-1")),
        ("+2", d.DefaultNumber("2")),
        (".5", d.DefaultNumber("0.5")),
        ("1.5e+10", d.DefaultNumber("1.5e+10")),
        ("true", d.DefaultNumber("1")),
        ("FALSE", d.DefaultNumber("0")),
        ("null", d.Null()),
        ("'it''s \\n\\%'", d.DefaultText("it's \n\\%")),
        ('"say ""x"""', d.DefaultText('say "x"')),
        ("_UTF8MB4'a' 'b'", d.DefaultText("ab")),
        ("_utf8mb4 'a'", d.DefaultText("a")),
        ("N'x'", d.DefaultText("x")),
        ("date '2020-01-01'", d.DefaultText("2020-01-01")),
        ("x'00ff'", d.Blob(b"\x00\xff")),
        ("0x1f", d.Blob(b"\x1f")),
        ("_binary x'41'", d.Blob(b"A")),
        ("b'101'", d.Blob(b"\x05")),
        ("0b1", d.Blob(b"\x01")),
        ("CURRENT_TIMESTAMP", d.Now(0)),
        ("now(3)", d.Now(3)),
        ("LOCALTIME()", d.Now(0)),
        ("(5)", d.DefaultNumber("5")),
        ("(uuid())", d.Expression("uuid()")),
        ("(a + (1 * 2))", d.Expression("a + (1 * 2)")),
        ("UUID()", d.Expression("UUID()")),
        ("next value for `s`.`q`", d.Expression("next value for `s`.`q`")),
        ("nextval(q)", d.Expression("nextval(q)")),
    ],
)
def test_defaults(written: str, default: d.Default) -> None:
    """Every way to write a default value, between other options."""
    (column,) = columns(f"c varchar(9) not null default {written} comment 'x'")
    assert (column.default, column.nullable, column.comment) == (default, False, "x")


def test_column_options() -> None:
    """Options in any order, references, checks and generated columns with their expression as written."""
    found = columns(
        "a bigint primary key auto_random(5, 54) comment 'k', "
        "b int default 1 on update now(3) references x (y) on delete set null on update cascade unique key, "
        "c int as (a+b) stored not null, d int generated always as (char_length(concat(b, ')'))) virtual, "
        "e varchar(3) constraint k check (e > '(') not enforced collate utf8mb4_bin column_format fixed storage disk, "
        "f int not null auto_increment key, g serial"
    )
    a, b, c, dd, e, f, g = found
    assert (a.primary, a.comment, b.unique, b.default) == (True, "k", True, d.DefaultNumber("1"))
    assert (c.generated, c.stored, c.nullable) == ("a+b", True, False)
    assert (dd.generated, dd.stored) == ("char_length(concat(b, ')'))", False)
    assert e.type.charset == "utf8mb4"
    assert (f.primary, f.auto_increment) == (True, True)
    assert (g.unique, g.nullable, g.auto_increment, g.type.code) == (True, False, True, MysqlType.LONGLONG)


def test_executed_comments_in_kept_text() -> None:
    """Text that is kept as written holds what TiDB executes, without the marks of its comment; other comments stay."""
    (column,) = columns("c int as (a /*T! + /* x */ 1 */ /*! * 2 */)")

    assert column.generated == "a + /* x */ 1 * 2"


def test_names_of_any_kind() -> None:
    """Backquotes, doubled backquotes, keywords, digits, other alphabets and ANSI quotes are names."""
    statement = one('create table `d``b`.`t "x` (`a b` int, `primary` int, comment int, 表 int, 1a int, "q" int)')
    assert isinstance(statement, s.CreateTable)
    assert statement.table == TableName("d`b", 't "x')
    assert [column.name for column in statement.columns] == ["a b", "primary", "comment", "表", "1a", "q"]


def test_executed_comments() -> None:
    """What TiDB executes inside comments is SQL; other comments, and such signs in strings, are not."""
    statement = one(
        "/* x */ create /*!40101 table */ t ( -- y\n a int /*T![auto_rand] auto_random(5) */ primary key "
        "/*T![clustered_index] nonclustered */, # z\n b varchar(20) default '/*T! */ -- no' ) /*T! comment='in' */"
    )
    assert isinstance(statement, s.CreateTable)
    assert statement.columns[0].clustered is False
    assert statement.columns[1].default == d.DefaultText("/*T! */ -- no")
    assert statement.options.comment == "in"


def test_keys() -> None:
    """Keys of all kinds; expressions stand as '', partial and vector indexes identify nothing."""
    statement = one(
        "create table t (a int, b varchar(9), constraint pk primary key using btree (a, b(3) desc) clustered, "
        "unique key u (b) invisible comment 'x', key ((lower(b)), a), index i using hash (a), fulltext key f (b) with "
        "parser ngram, constraint fk foreign key (a) references x.y (z) match full on delete no action, "
        "unique index w (a) where b > 'x', vector index v ((vec_cosine_distance(b))) using hnsw, "
        "key m ((cast(b as char(64) array))), constraint check (a > 0) enforced)"
    )
    assert isinstance(statement, s.CreateTable)
    assert statement.indexes == (
        d.IndexDef("PRIMARY", ("a", "b"), unique=True, primary=True, clustered=True),
        d.IndexDef("u", ("b",), unique=True, visible=False),
        d.IndexDef(None, ("", "a")),
        d.IndexDef("i", ("a",)),
        d.IndexDef("f", ("b",)),
        d.IndexDef("fk", ("a",), foreign=True),
        d.IndexDef("w", ("a",)),
        d.IndexDef("v", ()),
        d.IndexDef("m", ("",)),
    )


def test_table_options() -> None:
    """Charset, collation and comment are kept from a long list of options; TTL and unknown ones are passed."""
    statement = one(
        "create table t (a int) engine=InnoDB, auto_increment 5 default charset utf8mb3 collate=utf8_bin "
        "row_format=dynamic comment 'c' pre_split_regions=2 placement policy=`pp` ttl = `a` + interval 1 day "
        "ttl_enable='ON' union=(x,y) some_new_option='z' on commit delete rows"
    )
    assert isinstance(statement, s.CreateTable)
    assert statement.options == d.TableOptions("utf8", "c")


@pytest.mark.parametrize(
    ("text", "partition"),
    [
        ("hash(`a`) partitions 2", PartitionInfo("HASH", "`a`", (), (PartitionDef("p0"), PartitionDef("p1")), 2)),
        ("linear key () partitions 1", PartitionInfo("KEY", "", (), (PartitionDef("p0"),), 1)),
        ("key algorithm=2 (a, b)", PartitionInfo("KEY", "", ("a", "b"), (PartitionDef("p0"),), 1)),
        (
            "range (year(a)) (partition x values less than (1+2) comment 'c', partition y values less than maxvalue)",
            PartitionInfo("RANGE", "year(a)", (), (PartitionDef("x", ("1+2",)), PartitionDef("y", ("MAXVALUE",)))),
        ),
        (
            "range columns (a, b) (partition x values less than (1, _utf8mb4'b,'))",
            PartitionInfo("RANGE", "", ("a", "b"), (PartitionDef("x", ("1", "'b,'")),)),
        ),
        (
            "list columns (a,b) (partition x values in ((1,'x'),(2,null)), partition y default)",
            PartitionInfo(
                "LIST",
                "",
                ("a", "b"),
                (PartitionDef("x", (), (("1", "'x'"), ("2", "NULL"))), PartitionDef("y", (), (("DEFAULT",),))),
            ),
        ),
    ],
)
def test_partitions(text: str, partition: PartitionInfo) -> None:
    """Every method of partitioning, bounds as SQL text."""
    statement = one(f"create table t (a int, b varchar(9)) partition by {text}")
    assert isinstance(statement, s.CreateTable)
    assert statement.partition == partition
    assert specs(f"partition by {text}") == (p.PartitionBy(partition),)


X = (PartitionDef("x", ("9",)),)


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("drop a", p.DropColumn("a")),
        ("drop column if exists a restrict", p.DropColumn("a", if_exists=True)),
        ("rename column a to b", p.RenameColumn("a", "b")),
        ("rename key a to b", p.RenameIndex("a", "b")),
        ("rename u", p.RenameTo(TableName("db", "u"), qualified=False)),
        ("rename as x.u", p.RenameTo(TableName("x", "u"), qualified=True)),
        ("alter a set default 5", p.SetDefault("a", d.DefaultNumber("5"))),
        ("alter column a set default (uuid())", p.SetDefault("a", d.Expression("uuid()"))),
        ("alter column a drop default", p.SetDefault("a", None)),
        ("alter index i invisible", p.SetVisibility("i", visible=False)),
        ("drop primary key", p.DropPrimaryKey()),
        ("drop key if exists k", p.DropIndex("k", if_exists=True)),
        ("drop foreign key k", p.NoChange("DROP FOREIGN KEY")),
        ("add constraint c check (a > 1)", p.NoChange("ADD CHECK")),
        ("add unique (a)", p.AddIndex(d.IndexDef(None, ("a",), unique=True))),
        ("add index if not exists i (a)", p.AddIndex(d.IndexDef("i", ("a",)), if_not_exists=True)),
        ("convert to charset utf8mb4 collate utf8mb4_bin", p.ConvertCharset("utf8mb4")),
        ("convert to character set default", p.ConvertCharset(None)),
        ("collate utf8_general_ci", d.TableOptions("utf8")),
        ("comment = 'x' auto_increment = 9", d.TableOptions(comment="x")),
        ("order by a, b", p.NoChange("ORDER")),
        ("set tiflash replica 1 location labels 'a', 'b'", p.NoChange("SET")),
        ("remove ttl", p.NoChange("TTL")),
        ("cache", p.NoChange("CACHE")),
        ("add partition (partition x values less than (9))", p.AddPartitions(X)),
        ("add partition partitions 3", p.AddPartitions((), 3)),
        ("drop partition a, b", p.DropPartitions(("a", "b"))),
        ("truncate partition all", p.TruncatePartitions(())),
        ("reorganize partition a into (partition x values less than (9))", p.ReorganizePartitions(("a",), X)),
        ("coalesce partition 2", p.CoalescePartitions(2)),
        ("exchange partition a with table u without validation", p.ExchangePartition("a", TableName("db", "u"))),
        ("remove partitioning", p.RemovePartitioning()),
        ("first partition less than (5)", p.NotSupported("FIRST PARTITION")),
        ("merge first partition less than (5)", p.NotSupported("MERGE FIRST PARTITION")),
        ("split maxvalue partition less than (5)", p.NotSupported("SPLIT MAXVALUE PARTITION")),
    ],
)
def test_specs(text: str, spec: p.Spec) -> None:
    """Every spec of ALTER TABLE."""
    assert specs(text)[0] == spec


def test_many_specs() -> None:
    """Specs come in order; ADD takes columns in parentheses; LOCK and ALGORITHM are passed over."""
    found = specs(
        "add (a int, key k (a), b int), add column c int first, modify d int after c, algorithm=instant, lock=none"
    )
    assert [type(item) for item in found[:3]] == [p.AddColumns, p.AddColumns, p.ModifyColumn]
    first = found[0]
    assert isinstance(first, p.AddColumns)
    assert ([column.name for column in first.columns], len(first.indexes)) == (["a", "b"], 1)
    assert specs("") == ()


@pytest.mark.parametrize(
    ("query", "statement"),
    [
        (
            "create schema if not exists x default character set = utf8mb4",
            s.CreateDatabase("x", "utf8mb4", if_not_exists=True),
        ),
        ("alter database charset utf8", s.AlterDatabase("db", "utf8")),
        ("alter database `x` collate latin1_bin", s.AlterDatabase("x", "latin1")),
        ("drop database if exists x", s.DropDatabase("x", if_exists=True)),
        ("create table x.t like t", s.CreateTableLike(TableName("x", "t"), T, doubtful=True)),
        (
            "create table if not exists u (like x.t)",
            s.CreateTableLike(TableName("db", "u"), TableName("x", "t"), False, True),
        ),
        ("drop tables t, x.u cascade;", s.DropTables((T, TableName("x", "u")))),
        ("truncate t", s.TruncateTable(T)),
        (
            "rename table t to x.u, x.u to v",
            s.RenameTables(
                (
                    s.RenamePair(T, TableName("x", "u"), doubtful=True),
                    s.RenamePair(TableName("x", "u"), TableName("db", "v"), doubtful=False),
                )
            ),
        ),
        ("recover table t", s.RecoverTable(T)),
        ("flashback table t to u", s.RecoverTable(T, "u")),
        ("flashback schema x to y", s.RecoverDatabase("x", "y")),
        (
            "create or replace algorithm=merge definer=`a`@`%` sql security invoker view v as select 1",
            s.CreateView(TableName("db", "v")),
        ),
        ("drop view if exists t", s.DropViews((T,))),
        ("create sequence q start 1", s.Ignored("CREATE SEQUENCE")),
        ("create temporary table t (a int)", s.Ignored("CREATE TEMPORARY TABLE")),
        (
            "create unique index i on t (a) lock=none",
            s.AlterTable(T, False, (p.AddIndex(d.IndexDef("i", ("a",), unique=True)),)),
        ),
        ("drop index i on t", s.AlterTable(T, False, (p.DropIndex("i"),))),
    ],
)
def test_statements(query: str, statement: s.Statement) -> None:
    """Every statement but CREATE TABLE and ALTER TABLE, which have tests of their own."""
    assert one(query) == statement


def test_several_statements() -> None:
    """Statements part at semicolons; blank text has none."""
    assert len(parse_ddl("; truncate t ;; drop table t; ", "db")) == 2
    assert parse_ddl(" /* nothing */ ", "db") == ()


def test_plain_backslashes() -> None:
    """A text that only reads with plain backslashes is read so."""
    (column,) = columns("a varchar(9) comment 'ends in \\'")
    assert column.comment == "ends in \\"


@pytest.mark.parametrize(
    ("query", "where"),
    [
        ("create table t (a int", "offset 21"),
        ("create table t (a in)", "offset 18"),
        ("create table t (a enum(1))", "offset 24"),
        ("create table 't' (a int)", "offset 13"),
        ("alter table t drop", "offset 18"),
        ("drop table a b", "offset 13"),
        ("select 1", "offset 0"),
        ("create table t (a int default 'x)", "offset 30"),
        ("alter table t add a int default", "offset 31"),
    ],
)
def test_errors_tell_the_place(query: str, where: str) -> None:
    """What cannot be read is an SqlError that names the offset."""
    with pytest.raises(SqlError, match=where):
        parse_ddl(query, "db")
