"""Expressions against a real MariaDB: the data file, and random ones."""

from collections.abc import Iterator
from typing import Any

import pymysql
import pytest

from tests.expr.generator import Generator
from tests.expr.kit import NOW, recorded, value
from tests.mariadb import running_server

DIFFERENCES = {
    "unix_timestamp('1969-01-01')": ("0", None, "MySQL and TiDB: 0 for what lies before 1970"),
    "x'0a'+1": ("11", "1", "x'..' is a number among numbers, for MariaDB only 0x.. is"),
    "cast('10:20:30.55' as time)": ("10:20:31", "10:20:30", "MariaDB cuts fractions off where the others round"),
    "json_object('b',1,'a',null)": ('{"a": null, "b": 1}', '{"b": 1, "a": null}', "TiDB sorts the members"),
    "concat(1e20)": ("100000000000000000000", "1e20", "TiDB writes doubles without an exponent into texts"),
    "replace('x','abc',null)": (None, "x", "MariaDB gives the text back where nothing is replaced"),
    "locate('', 'a', 2)": ("2", "0", "the empty text is everywhere, for MariaDB not behind the end"),
    "if(1, 1/3, 0) * 3": ("0.9999", "1.0000", "here they are rounded before IF, in MariaDB behind it"),
}
"""Expression: (ours, MariaDB's, why)."""


@pytest.fixture(scope="module")
def maria(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A cursor on a server that is at the moment of the tests and gives texts."""
    with running_server(tmp_path_factory.mktemp("mariadb")) as server:
        port, options = server.port, {"charset": "utf8mb4", "autocommit": True, "conv": {}}
        connection = pymysql.connect(host="127.0.0.1", port=port, user="root", **options)
        with connection.cursor() as cursor:
            for setting in (
                "NAMES utf8mb4 COLLATE utf8mb4_bin",
                "time_zone = '+00:00'",
                f"timestamp = {NOW.timestamp():.6f}",
                "sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'",
            ):
                cursor.execute(f"SET {setting}")
            yield cursor
        connection.close()


def theirs(cursor: Any, expression: str) -> str | None:
    try:
        cursor.execute(f"SELECT {expression}")
        found = cursor.fetchone()[0]
    except pymysql.Error as error:
        return f"error {error.args[0]}"
    return found.decode("utf-8", "replace") if isinstance(found, bytes) else found


@pytest.mark.slow
def test_recorded_expressions(maria: Any) -> None:
    """MariaDB has the values of the data file."""
    wrong = [(text, wanted, found) for text, wanted in recorded() if (found := theirs(maria, text)) != wanted]

    assert not wrong


@pytest.mark.slow
@pytest.mark.parametrize("text", DIFFERENCES)
def test_known_differences(maria: Any, text: str) -> None:
    """Each known difference is still one, so the list does not outlive its reasons."""
    assert (value(text), theirs(maria, text)) == DIFFERENCES[text][:2]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 4))])
def test_random_expressions(maria: Any, seed: int) -> None:
    """Four times 400 random expressions have MariaDB's values."""
    generator = Generator(seed)
    texts = [generator.expression() for _ in range(400)]
    wrong = [(text, value(text), found) for text in texts if (found := theirs(maria, text)) != value(text)]

    assert not wrong
