"""SHOW CREATE: what is printed reads back as the definition that it was printed from."""

from datetime import timedelta, timezone
from itertools import groupby

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.upstream.sql.recorded import schemas, tables
from tidegate.model.mysql import MysqlType as T
from tidegate.model.table import ColumnInfo, TableInfo
from tidegate.schema.build import DdlContext, build_table
from tidegate.schema.columns import render_type
from tidegate.schema.parse_ddl import parse_ddl
from tidegate.schema.statement import CreateDatabase, CreateTable
from tidegate.schema.stored.create import NextIds, render_create_schema, render_create_table
from tidegate.schema.stored.definition import ElementState, Name, StoredColumn, StoredTable, StoredType
from tidegate.schema.stored.snapshot import table_info
from tidegate_upstream.tidb.cluster import Cluster
from tidegate_upstream.tidb.session import Session

PLAIN = sorted(
    (table for table in tables() if not table.is_view and not table.is_sequence), key=lambda table: table.name.lower
)
GROUPS = {name: tuple(group) for name, group in groupby(PLAIN, key=lambda table: table.name.lower)}


def read_back(text: str) -> TableInfo:
    (statement,) = parse_ddl(text, "d")
    assert isinstance(statement, CreateTable)
    assert not statement.not_supported
    return build_table(statement, "utf8mb4", DdlContext(1, 0, text), 0)


def column_of(column: ColumnInfo) -> tuple[object, ...]:
    """A column without its id, which a new table gives anew, and its origin default, which only old rows have."""
    kind = column.type
    zerofill = kind.zerofill and kind.code is not T.YEAR  # TiDB gives every YEAR the flag
    written = (column.name, render_type(kind), zerofill, kind.charset, column.nullable, column.default)
    return (*written, column.default_is_expr, column.generated, column.stored, column.comment, column.auto_increment)


def indexes_of(table: TableInfo) -> list[tuple[object, ...]]:
    """The indexes; that of a foreign key stands for itself, and comes later than the key in the recording."""
    return sorted(
        (index.name, index.columns, index.unique, index.primary, index.visible, bool(index.clustered))
        for index in table.indexes
        if index.name != "fk1"
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", GROUPS)
def test_recorded_definitions_read_back(name: str) -> None:
    """Parsing what SHOW CREATE TABLE prints of a recorded definition gives that definition's public part."""
    for table in GROUPS[name]:
        expected = table_info(table, "d", 1)
        found = read_back(render_create_table(table))

        assert list(map(column_of, found.columns)) == list(map(column_of, expected.columns))
        assert indexes_of(found) == indexes_of(expected)
        assert (found.name, found.partition, found.charset, found.comment) == (
            expected.name,
            expected.partition,
            expected.charset,
            expected.comment,
        )


PRINTED = {
    "a_auto": """CREATE TABLE `a_auto` (
  `id` bigint(20) NOT NULL /*T![auto_rand] AUTO_RANDOM(5) */,
  `v` int(11) DEFAULT NULL,
  PRIMARY KEY (`id`) /*T![clustered_index] CLUSTERED */
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin /*T![auto_id_cache] AUTO_ID_CACHE=1 */""",
    "ck": """CREATE TABLE `ck` (
  `id` int(11) NOT NULL,
  `v` int(11) DEFAULT NULL,
  PRIMARY KEY (`id`) /*T![clustered_index] CLUSTERED */,
  CONSTRAINT `ck1` CHECK ((`v` > 0)),
  CONSTRAINT `ck2` CHECK ((`v` < 100)) /*!80016 NOT ENFORCED */
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin""",
    "t_gen": """CREATE TABLE `t_gen` (
  `id` int(11) NOT NULL,
  `a` int(11) DEFAULT NULL,
  `b` int(11) DEFAULT NULL,
  `v` int(11) GENERATED ALWAYS AS (`a` + `b`) VIRTUAL,
  `st` int(11) GENERATED ALWAYS AS (`a` * `b`) STORED,
  `vs` varchar(20) GENERATED ALWAYS AS (concat(_utf8mb4'v', `a`)) VIRTUAL,
  `ss` varchar(20) GENERATED ALWAYS AS (concat(_utf8mb4's', `b`)) STORED,
  PRIMARY KEY (`id`) /*T![clustered_index] CLUSTERED */,
  KEY `kv` (`v`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin""",
    "pl": """CREATE TABLE `pl` (
  `id` int(11) DEFAULT NULL,
  `r` varchar(10) DEFAULT NULL,
  `v` int(11) DEFAULT NULL,
  UNIQUE KEY `id` (`id`,`r`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin
PARTITION BY LIST COLUMNS(`r`)
(PARTITION `east` VALUES IN ('e1','e2'),
 PARTITION `west` VALUES IN ('w1'),
 PARTITION `north` VALUES IN ('n1'))""",
    "vw": "CREATE ALGORITHM=UNDEFINED DEFINER=CURRENT_USER SQL SECURITY DEFINER VIEW `vw` (`id`, `v`) "
    "AS SELECT `id` AS `id`,`v` AS `v` FROM `gd`.`a`",
    "sq": "CREATE SEQUENCE `sq` start with 1 minvalue 1 maxvalue 9223372036854775806 increment by 3 cache 1000 "
    "nocycle ENGINE=InnoDB",
}


@pytest.mark.parametrize("name", PRINTED)
def test_form(name: str) -> None:
    """A recorded definition prints in the form of TiDB's SHOW CREATE TABLE."""
    assert PRINTED[name] in {render_create_table(table) for table in tables() if table.name.lower == name}


TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)


@given(name=TEXT.filter(str.strip), comment=TEXT, default=TEXT)
def test_texts_read_back(name: str, comment: str, default: str) -> None:
    """Names, comments and defaults of any characters read back as they are."""
    kind = StoredType(T.VARCHAR, flen=20, charset="utf8mb4", collate="utf8mb4_bin")
    column = StoredColumn(1, Name.of("a"), type=kind, default=default, comment=comment)
    found = read_back(render_create_table(StoredTable(1, Name.of(name), cols=[column], comment=comment)))

    assert (found.name.table, found.comment) == (name, comment)
    assert (found.columns[0].default, found.columns[0].comment) == (default, comment)


def test_elements_that_are_not_public_are_not_shown() -> None:
    """A column or index that a running DDL adds is not in the text."""
    table = next(table for table in tables() if table.name.lower == "t_expr")
    hidden = [msgspec.structs.replace(column, state=ElementState.WRITE_ONLY) for column in table.cols or []]
    indexes = [msgspec.structs.replace(index, state=ElementState.WRITE_REORG) for index in table.index_info or []]
    kept = [(table.cols or [])[0], *hidden[1:]]

    text = render_create_table(msgspec.structs.replace(table, cols=kept, index_info=indexes))

    assert text.count("\n") == 3


def test_default_of_a_timestamp_is_shown_on_the_sessions_clocks() -> None:
    """The default of a TIMESTAMP is kept in UTC and printed in the session's zone; that of a DATETIME stays."""
    table = next(table for table in tables() if table.name.lower == "t_def")

    text = render_create_table(table, timezone(timedelta(hours=8)))

    assert "`p` timestamp NOT NULL DEFAULT '2020-01-01 08:00:00' ON UPDATE CURRENT_TIMESTAMP" in text
    assert "`d` datetime DEFAULT '2020-01-01 00:00:00'" in text


def test_next_ids_are_shown_above_one() -> None:
    """AUTO_INCREMENT and AUTO_RANDOM_BASE stand in the options once they have moved."""
    table = next(table for table in tables() if table.name.lower == "a_auto")

    assert " AUTO_INCREMENT=30001 " in render_create_table(table, ids=NextIds(increment=30001))
    assert render_create_table(table, ids=NextIds(random=7)).endswith("/*T![auto_rand_base] AUTO_RANDOM_BASE=7 */")
    assert render_create_table(table, ids=NextIds(1, 1)) == PRINTED["a_auto"]


def test_references_within_the_database_are_short() -> None:
    """A foreign key names the other table's database only where that is another one."""
    table = next(
        table for table in tables() if table.name.lower == "fkc" and "`fk1` FOREIGN" in render_create_table(table)
    )

    assert "REFERENCES `fkp` (`id`)" in render_create_table(table, schema="gd")
    assert "REFERENCES `gd`.`fkp` (`id`)" in render_create_table(table, schema="other")


def test_databases_read_back() -> None:
    """SHOW CREATE DATABASE of a recorded database reads back with its name and charset."""
    for schema in schemas():
        (statement,) = parse_ddl(render_create_schema(schema), "")

        assert isinstance(statement, CreateDatabase)
        assert (statement.name, statement.charset) == (schema.name.original, schema.charset)


def test_a_sequence_as_default() -> None:
    """NEXT VALUE FOR is printed as the function, in parentheses or without, and reads back."""
    session = Session(Cluster.open(None, nodes=("n1",)).node)
    for statement in ("CREATE DATABASE q", "USE q", "CREATE SEQUENCE `next value`"):
        session.execute(statement)
    for number, default in enumerate(("(NEXT VALUE FOR `next value`)", "next  value for q.`next value`")):
        session.execute(f"CREATE TABLE t{number} (id BIGINT DEFAULT {default})")
        text = session.execute(f"SHOW CREATE TABLE t{number}")[-1].rows[0][1]
        assert "DEFAULT (nextval(`next value`))" in text
        session.execute(text.replace(f"`t{number}`", f"`u{number}`"))
