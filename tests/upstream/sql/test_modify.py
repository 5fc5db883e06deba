"""MODIFY of stored values does as a real TiDB: ENUM and SET become their numbers, days of no month stay if they may."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pymysql
import pytest

from tests.recorded_tidb import recorded
from tidegate_upstream.tidb.cluster import Cluster
from tidegate_upstream.tidb.listener import Upstream

NUMBERS = [
    pytest.param(one, id=f"{one['from'][:4]} {one['to']}")
    for one in recorded("modify")
    if one["from"].startswith(("enum", "set")) and "int" in one["to"]
]


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with (
        Upstream(Cluster.open(None, nodes=("n1",))) as upstream,
        closing(
            pymysql.connect(
                host="127.0.0.1", port=upstream.ports["n1"], user="root", autocommit=True, database="test", conv={}
            )
        ) as connection,
        connection.cursor() as cursor,
    ):
        yield cursor


def modified(client: Any, old: str, new: str, values: list[str]) -> list[Any]:
    """The values of a column after it has become another one."""
    client.execute("DROP TABLE IF EXISTS m")
    client.execute(f"CREATE TABLE m (id INT PRIMARY KEY, v {old})")
    for number, value in enumerate(values):
        client.execute(f"INSERT INTO m VALUES ({number}, {value})")
    client.execute(f"ALTER TABLE m MODIFY v {new}")
    client.execute("SELECT v FROM m ORDER BY id")
    return [value for (value,) in client.fetchall()]


@pytest.mark.parametrize("one", NUMBERS)
def test_names_become_their_numbers(client: Any, one: dict[str, Any]) -> None:
    """ENUM and SET become their numbers in every type of integers, and NULL stays NULL."""
    client.execute("SET sql_mode = ''")
    values = [f"'{before}'" for before, *_ in one["rows"]]

    found = modified(client, one["from"], one["to"], [*values, "NULL"])

    assert found == [*(after for *_, after, _ in one["rows"]), None]


@pytest.mark.parametrize("old", ["VARCHAR(30)", "DATE", "BIGINT"])
@pytest.mark.parametrize(
    ("mode", "kept"), [("ALLOW_INVALID_DATES", "2024-02-31 00:00:00"), ("", "0000-00-00 00:00:00")]
)
def test_days_of_no_month(client: Any, old: str, mode: str, kept: str) -> None:
    """A day that its month does not have stays under ALLOW_INVALID_DATES, whatever type it comes from."""
    client.execute("SET sql_mode = 'ALLOW_INVALID_DATES'")
    client.execute(f"SET sql_mode = '{mode}'" if old != "DATE" else "SET sql_mode = 'ALLOW_INVALID_DATES'")
    value = "20240231" if old == "BIGINT" else "'2024-02-31'"

    assert modified(client, old, "DATETIME", [value]) == ["2024-02-31 00:00:00" if old == "DATE" else kept]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("0000-00-00 00:00:00.123", "0000-00-00 00:00:00.123"),
        ("00000000000000.5", "0000-00-00 00:00:00.500"),
        ("2024-00-00 00:00:00.25", "2024-00-00 00:00:00.250"),
        ("0000-00-00 00:00:00.9996", "0000-00-00 00:00:00.000"),
        ("2024-00-10 23:59:59.9996", "0000-00-00 00:00:00.000"),
        ("0000-00-00 00:00:00.0004", "0000-00-00 00:00:00.000"),
    ],
)
def test_fractions_of_zero_dates(client: Any, text: str, kept: str) -> None:
    """A zero date keeps its fraction; one that rounds up to the next second is no date."""
    client.execute("SET sql_mode = ''")

    assert modified(client, "VARCHAR(40)", "DATETIME(3)", [f"'{text}'"]) == [kept]


@pytest.mark.parametrize(
    ("old", "new", "value", "kept"),
    [
        ("VARCHAR(30)", "VARCHAR(5)", "'0123456789'", "01234"),
        ("CHAR(30)", "CHAR(5)", "'0123456789'", "01234"),
        ("TEXT", "VARCHAR(5)", "'0123456789'", "01234"),
        ("INT", "SMALLINT", "70000", "32767"),
    ],
)
def test_what_does_not_fit(client: Any, old: str, new: str, value: str, kept: object) -> None:
    """Without a strict mode it is cut, as the row is rewritten; in strict mode the DDL is refused."""
    client.execute("SET sql_mode = ''")
    assert modified(client, old, new, [value]) == [kept]
    client.execute("SET sql_mode = 'STRICT_TRANS_TABLES'")
    with pytest.raises(pymysql.err.MySQLError):
        modified(client, old, new, [value])
