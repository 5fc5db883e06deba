"""Value expressions of event filters: what they make of rows, and which of them are refused."""

import pickle

import pytest

from tests.engine.test_mount import column, table
from tidegate.engine.event_expression import SqlExpressions, event_filter
from tidegate.model.errors import ExpressionColumnNotFound, ExpressionParseFailed, RowFilterFailed, TidegateError
from tidegate.model.event import Field, Values
from tidegate.model.mysql import MysqlType as T
from tidegate.model.table import TableName
from tidegate.schema.stored.definition import Name, StoredColumn, StoredType
from tidegate.schema.stored.snapshot import TableVersion


def text(column_id: int, name: str, collate: str) -> StoredColumn:
    """A VARCHAR."""
    return StoredColumn(column_id, Name.of(name), type=StoredType(int(T.VARCHAR), 0, 20, 0, "utf8mb4", collate))


def number(column_id: int, name: str, flag: int = 0, **members: object) -> StoredColumn:
    """A BIGINT."""
    return column(column_id, name, int(T.LONGLONG), flag, **members)


TABLE = table(
    number(2, "v"),
    text(3, "s", "utf8mb4_bin"),
    text(4, "c", "utf8mb4_general_ci"),
    StoredColumn(5, Name.of("d"), type=StoredType(int(T.DECIMAL), 0, 10, 2, "binary", "binary")),
    number(6, "made", generated_expr_string="`v` + 1"),
    StoredColumn(7, Name.of("at"), type=StoredType(int(T.TIMESTAMP), 0, 19, 0, "binary", "binary")),
    StoredColumn(8, Name.of("e"), type=StoredType(int(T.ENUM), 0, -1, 0, "utf8mb4", "utf8mb4_bin", ["new", "old"])),
    StoredColumn(9, Name.of("big"), type=StoredType(int(T.LONGLONG), 32, 20, 0, "binary", "binary")),
    StoredColumn(10, Name.of("f"), type=StoredType(int(T.DOUBLE), 0, 22, -1, "binary", "binary")),
    number(11, "coming", state=3),
    StoredColumn(12, Name.of("j"), type=StoredType(int(T.JSON), 0, -1, 0, "utf8mb4", "utf8mb4_bin")),
    StoredColumn(13, Name.of("b"), type=StoredType(int(T.BIT), 32, 8, 0, "binary", "binary")),
)
ROW: Values = (1, 11, "abc", "ABC", "12.50", "2024-01-31 23:30:00", 2, 2**64 - 1, 1.0, 5, '{"a": 1}', 3)
VERSION = TableVersion(2, "db", TABLE, 1)


def leaves_out(expression: str, row: Values = ROW, **given: object) -> bool:
    """Whether the expression leaves the row out, in a task as well as here."""
    expressions = pickle.loads(pickle.dumps(SqlExpressions(**given)))  # type: ignore[arg-type]
    expressions.check(expression)
    return expressions.test(expression, VERSION)(row)


@pytest.mark.parametrize(
    "expression",
    [
        "v > 10",
        "V = 11 and id = 1",
        "db.t.v in (1, 11)",
        "s = 'abc' and s <> 'ABC'",
        "c = 'abc'",
        "s like 'a%'",
        "d = 12.5",
        "d between 12 and 13",
        "at = '2024-01-31 23:30:00'",
        "e = 'old' and e = 2",
        "big > 9223372036854775807",
        "f = 1",
        "id",
        "json_extract(j, '$.a') = 1",
        "b = b'11'",
        "isnull(null)",
        "at < now()",
        "case when v > 10 then 1 else 0 end",
    ],
)
def test_one_leaves_the_row_out(expression: str) -> None:
    """Values of every type compare as in MySQL, texts by their collation."""
    assert leaves_out(expression)


@pytest.mark.parametrize(
    "expression", ["v", "f", "null", "null = 1", "'1'", "1.0", "not v > 10", "2 > 1 and null", "-1"]
)
def test_anything_but_the_integer_one_does_not(expression: str) -> None:
    """NULL, other numbers and texts are no verdict, as in TiCDC."""
    assert not leaves_out(expression)


def test_null_is_no_value() -> None:
    """A comparison with a column that is NULL leaves the row in; IS NULL says it."""
    row = (1, *[None] * (len(ROW) - 1))

    assert not leaves_out("v > 10 or s = 'abc'", row)
    assert leaves_out("v is null and d is null and e is null", row)


def test_timestamps_are_on_the_clocks_of_the_zone() -> None:
    """Events have them in UTC; the expression reads them where the changefeed writes them."""
    assert leaves_out("at = '2024-02-01 07:30:00'", time_zone="Asia/Shanghai")
    assert leaves_out("day(at) = 31")


def test_the_sql_mode_decides_what_quotes_mean() -> None:
    """With ANSI_QUOTES double quotes name columns."""
    assert leaves_out('"v" = 11', sql_mode=frozenset({"ANSI_QUOTES"}))
    assert not leaves_out('"v" = 11')


@pytest.mark.parametrize(
    ("expression", "kind", "told"),
    [
        ("v >", ExpressionParseFailed, "'v >' is not an expression: near"),
        ("1) or (1", ExpressionParseFailed, "not an expression"),
        ("v = 1 group by v", ExpressionParseFailed, "expected a condition"),
        ("v = 1; drop table t", ExpressionParseFailed, "not an expression"),
        ("v in (select 1)", ExpressionParseFailed, "no subqueries"),
        ("sum(v) = 1", ExpressionParseFailed, "Invalid use of group function"),
        ("nothing(v)", ExpressionParseFailed, "does not exist"),
        ("w = 1", ExpressionColumnNotFound, r"db\.t: Unknown column 'w'.*rows of it carry: id, v, s"),
        ("u.v = 1", ExpressionColumnNotFound, "Unknown column"),
        ("made = 1", ExpressionColumnNotFound, "Unknown column 'made'"),
        ("coming = 1", ExpressionColumnNotFound, "Unknown column 'coming'"),
        ("json_extract(s, '$.a') = 1", RowFilterFailed, r"has no value .* for a row of db\.t"),
    ],
)
def test_expressions_that_cannot_be_meant(expression: str, kind: type[TidegateError], told: str) -> None:
    """Each has TiCDC's code and says what is wrong with which text."""
    with pytest.raises(kind, match=told):
        leaves_out(expression)


def test_a_file_brings_it_all() -> None:
    """Rules, transactions, case and SQL mode come from a changefeed file; a bad expression is told at once."""
    rule = {"matcher": ["DB.T"], "ignore-insert-value-expr": '"v" = 11'}
    given = {"sql-mode": "ansi_quotes", "filter": {"event-filters": [rule], "ignore-txn-start-ts": [7]}}
    found = event_filter(given, case_sensitive=False)
    folded = event_filter(given, case_sensitive=True)

    assert found.start_ts == {7}
    assert [len(list(each.matching(TableName("db", "t")))) for each in (found, folded)] == [1, 0]
    with pytest.raises(ExpressionParseFailed):
        event_filter({"filter": {"event-filters": [{**rule, "ignore-delete-value-expr": "("}]}}, case_sensitive=False)
    unknown = {"filter": {"event-filters": [{**rule, "ignore-delete-value-expr": "w"}]}}
    with pytest.raises(ExpressionColumnNotFound):
        event_filter(unknown, case_sensitive=False).verify([VERSION])


def fields(protocol: str) -> tuple[Field, ...]:
    """Columns as a message of that protocol tells them."""
    kinds = {
        "id": (T.LONG, "int"),
        "s": (T.VARCHAR, "varchar"),
        "d": (T.DECIMAL, "decimal"),
        "at": (T.TIMESTAMP, "timestamp"),
        "e": (T.ENUM, "enum"),
        "big": (T.LONGLONG, "bigint unsigned"),
        "f": (T.DOUBLE, "double"),
        "j": (T.JSON, "json"),
        "b": (T.BIT, "bit"),
        "y": (T.BLOB, "blob"),
        "m": (T.ENUM, "enum('new','old')"),
    }
    if protocol == "canal-json":
        return tuple(Field(name, int(code), mysql_type=word) for name, (code, word) in kinds.items())
    told = {"big": {"unsigned": True}, "y": {"binary": True}}
    return tuple(Field(name, int(code), 0, **told.get(name, {})) for name, (code, _) in kinds.items())


MESSAGE: Values = (1, "abc", "12.50", "2024-01-31 23:30:00", 2, 2**64 - 1, 1.0, '{"a": 1}', 2**40 + 3, b"\x00\xff", 2)


def drops(expression: str, protocol: str, row: Values = MESSAGE, **given: object) -> bool:
    """Whether the expression leaves out a row that a message brought."""
    expressions = SqlExpressions(**given)  # type: ignore[arg-type]
    return expressions.test_of_fields(expression, TableName("db", "t"), fields(protocol))(row)


@pytest.mark.parametrize("protocol", ["open-protocol", "canal-json"])
@pytest.mark.parametrize(
    "expression",
    [
        "id = 1 and t.s = 'abc' and s <> 'ABC'",
        "d = 12.5 and d < 13",
        "at = '2024-01-31 23:30:00' and hour(at) = 23",
        "big > 9223372036854775807",
        "f = 1 and json_extract(j, '$.a') = 1",
        "b = 1099511627779",
        "y = x'00ff' and length(y) = 2",
        "isnull(null)",
    ],
)
def test_what_messages_tell_is_enough(expression: str, protocol: str) -> None:
    """Values of the types that messages carry compare as those of the upstream's table do."""
    assert drops(expression, protocol)
    assert not drops("id > 1 or s is null", protocol)


@pytest.mark.parametrize("protocol", ["open-protocol", "canal-json"])
def test_timestamps_of_messages_are_on_the_clocks_of_the_zone(protocol: str) -> None:
    """They were written in the zone of the changefeed, and functions of time see them there."""
    for zone in ("UTC", "Asia/Shanghai"):
        assert drops("at = '2024-01-31 23:30:00'", protocol, time_zone=zone)
    assert drops("unix_timestamp(at) = 1706743800", protocol)
    assert drops("unix_timestamp(at) = 1706715000", protocol, time_zone="Asia/Shanghai")


def test_members_that_messages_do_not_tell() -> None:
    """ENUM columns cannot be named, unless the message has the members."""
    for protocol, name in (("open-protocol", "e"), ("open-protocol", "m"), ("canal-json", "e")):
        with pytest.raises(ExpressionParseFailed, match=rf"db\.t: column {name} is ENUM.*do not contain its members"):
            drops(f"{name} = 'old'", protocol)
    assert drops("m = 'old' and m = 2", "canal-json")


def test_columns_that_messages_do_not_have() -> None:
    """A DELETE may bring its key alone."""
    [key, *_] = fields("canal-json")
    with pytest.raises(ExpressionColumnNotFound, match=r"'s' in 'expression'; columns that rows of it carry: id$"):
        SqlExpressions().test_of_fields("s = 'a'", TableName("db", "t"), (key,))
