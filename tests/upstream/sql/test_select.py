"""SELECT gives MySQL's rows, names and errors over two small tables.

t   id  a     s     d           u   id  b
    1   10    x     1.50            1   one
    2   20    Y     2.25            2   two
    3   NULL  y     NULL            2   zwei
    4   20    NULL  4.00            9   nine       s compares without case
"""

import pytest

from tests.expr.kit import Tables, answer, column, context, rows, shown
from tidegate.expr.result_type import INT
from tidegate.expr.scope import FixedRelation
from tidegate.model.errors import SqlRefused
from tidegate.model.mysql import MysqlType
from tidegate.model.table import ColumnType
from tidegate.mysql.values import Named

QUERIES: dict[str, list[tuple[str | None, ...]]] = {
    # FROM and joins
    "select 1 from dual": [("1",)],
    "select * from t where id = 2": [("2", "20", "Y", "2.25")],
    "select t.*, u.b from t join u on t.id = u.id order by b": [
        ("1", "10", "x", "1.50", "one"),
        ("2", "20", "Y", "2.25", "two"),
        ("2", "20", "Y", "2.25", "zwei"),
    ],
    "select t.id, b from t left join u on t.id = u.id and b = 'one' order by id": [
        ("1", "one"),
        ("2", None),
        ("3", None),
        ("4", None),
    ],
    "select count(*) from t, u": [("16",)],
    "select x.id, y.id from t x cross join t y where x.id = y.a / 10 order by 2": [("1", "1"), ("2", "2"), ("2", "4")],
    "select count(*) from (t join u on t.id = u.id)": [("3",)],
    "select a.id from t a join t b on a.s = b.s and a.id < b.id": [("2",)],
    "select d.t.id from d.t limit 1": [("1",)],
    # WHERE
    "select id from t where s = 'Y' order by id": [("2",), ("3",)],
    "select id from t where a = null": [],
    "select id from t where a <=> null": [("3",)],
    "select id from t where not a = 20": [("1",)],
    "select id from t where a in (10, null)": [("1",)],
    "select id from t where (id, a) in ((1, 10), (2, 10))": [("1",)],
    "select id from t where s like 'Y%' order by id": [("2",), ("3",)],
    "select _tidb_rowid from t where id = 3": [("3",)],
    # GROUP BY and aggregates
    "select count(*), count(a), sum(a), avg(a), min(s), max(d), sum(d), avg(d) from t": [
        ("4", "3", "50", "16.6667", "x", "4.00", "7.75", "2.583333")
    ],
    "select count(*), sum(a), max(s) from t where id > 9": [("0", None, None)],
    "select count(*) from t where id > 9 group by a": [],
    "select s, count(*) c from t group by s having c > 1": [("Y", "2")],
    "select if(a > 15, 'big', 'small') size, count(*) from t group by size order by size": [
        ("big", "2"),
        ("small", "2"),
    ],
    "select count(distinct a), count(distinct s, a), sum(distinct a) from t": [("2", "2", "30")],
    "select sum(id) + count(*) * 2 from t": [("18",)],
    "select a from t group by a having max(id) = 4": [("20",)],
    "select max(id) from t having max(id) > 5": [],
    # ORDER BY, LIMIT, DISTINCT
    "select id from t order by s, id desc": [("4",), ("1",), ("3",), ("2",)],
    "select id from t order by s collate utf8mb4_bin desc": [("3",), ("1",), ("2",), ("4",)],
    "select id, a x from t order by x desc, 1 limit 2": [("2", "20"), ("4", "20")],
    "select id from t order by a is null, -id": [("4",), ("2",), ("1",), ("3",)],
    "select id from t order by id limit 1, 2": [("2",), ("3",)],
    "select id from t order by id limit 2 offset 3": [("4",)],
    "select id from t limit 0": [],
    "select distinct s from t order by s": [(None,), ("x",), ("Y",)],
    "select distinct a from t order by a desc limit 1": [("20",)],
    # IN (SELECT ..)
    "select id from t where id in (select id from u) order by id": [("1",), ("2",)],
    "select id from t where id not in (select id from u) order by id": [("3",), ("4",)],
    "select id from t where id not in (select a from t)": [],
    "select id from t where id not in (select id from u where id > 9) and a in (select a from t where a = 10)": [
        ("1",)
    ],
    "select id from t where s in (select 'y') order by id": [("2",), ("3",)],
    # the rest
    "select id from t where id = 1 for update": [("1",)],
    "select 1 where 1 = 0": [],
    "select concat(s, '-', d) from t order by id": [("x-1.50",), ("Y-2.25",), (None,), (None,)],
}


@pytest.mark.parametrize("sql", QUERIES)
def test_rows(sql: str) -> None:
    """Each query has its rows, in order where it says so."""
    assert rows(sql) == QUERIES[sql]


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("select a+1, a + 1, ID, t.id, id as x from t", ["a+1", "a + 1", "ID", "id", "x"]),
        ("select 'text', x'41', count( * ), -1", ["text", "x'41'", "count( * )", "-1"]),
        ("select * from t", ["id", "a", "s", "d"]),
        ("select t.*, u.id from t, u", ["id", "a", "s", "d", "id"]),
    ],
)
def test_names(sql: str, names: list[str]) -> None:
    """Columns are named as MySQL names them: alias, column as written, or the item's text."""
    assert [column.name for column in answer(sql).columns] == names


@pytest.mark.parametrize(
    ("sql", "code", "words"),
    [
        ("select nope from t", 1054, "Unknown column 'nope' in 'field list'"),
        ("select id from t where z = 1", 1054, "Unknown column 'z' in 'where clause'"),
        ("select a x from t where x = 1", 1054, "Unknown column 'x' in 'where clause'"),
        ("select t.nope from t", 1054, "Unknown column 't.nope'"),
        ("select id from t order by 2", 1054, "Unknown column '2' in 'order clause'"),
        ("select id from t, u", 1052, "Column 'id' in field list is ambiguous"),
        ("select * from missing", 1146, "Table 'd.missing' doesn't exist"),
        ("select *", 1096, "No tables used"),
        ("select z.* from t", 1051, "Unknown table 'z'"),
        ("select (select id from u)", 1235, "doesn't yet support"),
        ("select id from t where a in (select d from t)", 1235, "doesn't yet support"),
        ("select id from t where id in (select u.id from u where u.id = t.a)", 1054, "Unknown column 't.a'"),
        ("select id from t where exists (select 1 from u)", 1235, "doesn't yet support"),
        ("select id from t where sum(a) > 1", 1111, "Invalid use of group function"),
        ("select * from (select 1) d", 1235, "doesn't yet support Subquery in FROM"),
        ("select 1 limit -1", 1210, "LIMIT"),
        ("select id from t partition (p0)", 1747, "PARTITION"),
        ("select 1 union select 2", 1235, "doesn't yet support 'UNION'"),
        ("with c as (select 1) select * from c", 1235, "doesn't yet support 'WITH'"),
        ("select * from t natural join u", 1235, "doesn't yet support 'NATURAL JOIN'"),
        ("select * from t join u using (id)", 1235, "doesn't yet support 'USING JOIN'"),
        ("select * from t right join u on t.id = u.id", 1235, "doesn't yet support 'RIGHT JOIN'"),
        ("select 1 > any (select 2)", 1235, "doesn't yet support"),
        ("select vec_dims('[1]')", 1305, "does not exist"),
    ],
)
def test_errors(sql: str, code: int, words: str) -> None:
    """Refusals carry MySQL's numbers and words."""
    with pytest.raises(SqlRefused) as caught:
        answer(sql)

    assert caught.value.mysql_code == code
    assert words in caught.value.message


def test_no_database() -> None:
    """A bare table name needs a database."""
    used = context()
    used.database = ""

    with pytest.raises(SqlRefused, match="No database selected"):
        answer("select * from t", used=used)


@pytest.mark.parametrize(
    ("sql", "hints"),
    [
        ("select * from t where id = 7", [{"id": (7,)}]),
        ("select * from t where 7 = ID and a in (1, 2) and s > 'a'", [{"id": (7,), "a": (1, 2)}]),
        ("select * from t where id = 7 or a = 1", [{}]),
        ("select * from t where id = a", [{}]),
        ("select * from t where id in (1, null)", [{"id": (1,)}]),
        ("select * from t, u where t.id = 3 and u.id = 4", [{"id": (3,)}, {"id": (4,)}]),
        ("select * from t left join u on t.id = u.id where t.id = 3 and u.id = 4", [{"id": (3,)}, {}]),
    ],
)
def test_hints(sql: str, hints: list[dict[str, tuple[int, ...]]]) -> None:
    """What WHERE says by = and IN of single columns reaches the relation, where no outer join forbids it."""
    tables = Tables()
    answer(sql, tables)

    assert tables.asked == hints


def test_types_and_collations() -> None:
    """Columns keep type, collation and alias of their table."""
    found = answer("select s, d, a from t as v").columns
    assert [(each.type.code, each.collation, each.table) for each in found] == [
        (MysqlType.VAR_STRING, "utf8mb4_general_ci", "v"),
        (MysqlType.DECIMAL, "utf8mb4_bin", "v"),
        (MysqlType.LONGLONG, "utf8mb4_bin", "v"),
    ]


def test_names_of_enums() -> None:
    """An ENUM sorts and groups by its index, and is text where it meets text."""
    tables = Tables()
    kind = ColumnType(MysqlType.ENUM, elems=("z", "a"))
    held = [(1, Named("a", 2)), (2, Named("z", 1)), (3, None), (4, Named("a", 2))]
    tables.tables["e"] = FixedRelation("e", (column("id", INT), column("v", kind)), held)

    def found(sql: str) -> list[tuple[str | None, ...]]:
        return shown(answer(sql, tables))

    assert found("select id from e order by v, id") == [("3",), ("2",), ("1",), ("4",)]
    assert found("select v, v + 0, count(*) from e group by v order by v desc") == [
        ("a", "2", "2"),
        ("z", "1", "1"),
        (None, None, "1"),
    ]
    assert found("select id from e where v = 'a' and v > 1 order by id") == [("1",), ("4",)]
    assert found("select max(v), min(v) from e") == [("z", "a")]
    assert found("select ifnull(v, 'none') n from e order by n") == [("a",), ("a",), ("none",), ("z",)]
