"""What the grammar keeps for TiDB's own definitions: details that hang at definitions and take no part in comparing."""

import pytest

from tidegate.model.table import TableName
from tidegate.schema.parse_ddl import parse_ddl
from tidegate.schema.statement import (
    AddCheck,
    AlterCheck,
    CheckDef,
    DropConstraint,
    DropForeignKey,
    DropSequences,
    IndexDef,
    IndexDetail,
    OptionsDetail,
    References,
    RemoveTtl,
    SequenceDef,
    ViewDetail,
)


def one(sql):
    """The one statement of a text."""
    (statement,) = parse_ddl(sql, "d")
    return statement


def test_details_of_keys():
    """Prefixes, expressions, comments and what foreign keys refer to stand beside what change capture compares."""
    index, key = one(
        "create table t (a text, b int, key k (a(9), (b + 1)) using hash comment 'c' global, "
        "foreign key f (b) references e.p (x) on delete set null on update cascade)"
    ).indexes

    assert index == IndexDef("k", ("a", ""))
    assert index.detail == IndexDetail((9, -1), ("", "b + 1"), "c", None, is_global=True, using=2)
    assert key.detail.references == References("e", "p", ("x",), "SET NULL", "CASCADE")


def test_details_of_columns():
    """Collations, ON UPDATE, AUTO_RANDOM and checks of columns."""
    columns = one(
        "create table t (a varchar(9) collate utf8mb4_general_ci, b timestamp(3) on update current_timestamp(3), "
        "c bigint primary key auto_random(6, 54), d int check (d > 0) not enforced, e char(3) binary)"
    ).columns
    collated, updated, random, checked, binary = columns

    assert collated.detail.collate == "utf8mb4_general_ci"
    assert updated.detail.on_update == 3
    assert random.detail.auto_random == (6, 54)
    assert checked.detail.checks == (CheckDef(None, "d > 0", enforced=False, in_column=True),)
    assert binary.type.binary


def test_details_of_tables():
    """Options that only TiDB's definition holds, table checks, GLOBAL TEMPORARY."""
    statement = one(
        "create global temporary table t (a int, constraint k check (a < 9)) auto_increment 5 auto_id_cache=7 "
        "shard_row_id_bits = 3 pre_split_regions = 2 collate utf8mb4_bin ttl = c + interval 3 month ttl_enable = 'OFF' "
        "ttl_job_interval = '1h' on commit delete rows"
    )

    assert statement.detail.checks == (CheckDef("k", "a < 9"),)
    assert statement.detail.global_temporary
    assert statement.options.detail == OptionsDetail(
        "utf8mb4_bin",
        5,
        auto_id_cache=7,
        shard_row_id_bits=3,
        pre_split_regions=2,
        ttl=("c", "3", "MONTH"),
        ttl_enable=False,
        ttl_job_interval="1h",
    )


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("add constraint c check (a > 1) not enforced", AddCheck(CheckDef("c", "a > 1", enforced=False))),
        ("alter check c enforced", AlterCheck("c", enforced=True)),
        ("drop check c", DropConstraint("c")),
        ("drop constraint c", DropConstraint("c")),
        ("drop foreign key if exists f", DropForeignKey("f", if_exists=True)),
        ("remove ttl", RemoveTtl()),
        ("order by a", None),
    ],
)
def test_details_of_specs(text, detail):
    """Specs that no row depends on say what TiDB makes of them."""
    (spec,) = one(f"alter table t {text}").specs
    assert spec.detail == detail


@pytest.mark.parametrize(
    ("sql", "detail"),
    [
        (
            "create sequence if not exists s start with 5 increment by -2 minvalue -9 maxvalue 9 nocache cycle",
            SequenceDef(
                TableName("d", "s"),
                if_exists=True,
                start=5,
                increment=-2,
                minimum=-9,
                maximum=9,
                cache=0,
                cycle=True,
            ),
        ),
        ("alter sequence e.s restart 7 no cycle", SequenceDef(TableName("e", "s"), alter=True, restart=7, cycle=False)),
        ("drop sequence if exists s, e.r", DropSequences((TableName("d", "s"), TableName("e", "r")), if_exists=True)),
        ("create user u", None),
    ],
)
def test_details_of_ignored_statements(sql, detail):
    """Sequences, which change capture passes over, are read for TiDB."""
    assert one(sql).detail == detail


def test_details_of_views():
    """The SELECT as written, own column names, OR REPLACE."""
    statement = one("create or replace sql security invoker view v (a, b) as select 1, (2) with check option")
    assert statement.detail == ViewDetail("select 1, (2)", ("a", "b"), or_replace=True)
