"""What SELECT asks relations for, and the types of its columns; rows, names and errors are in tests/scripts."""

import pytest

from tests.expr.kit import Tables, answer
from tidegate.model.mysql import MysqlType


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
