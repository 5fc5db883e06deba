"""Net changes as SQL: what is sent, how it is cut, and what it has to change."""

import numpy as np
import pyarrow as pa
import pytest

from tidegate.model.event import Field
from tidegate.model.mysql import MysqlType
from tidegate.sink.sql.rows import (
    DELETE,
    INSERT,
    UPDATE,
    Counted,
    Net,
    StatementLimits,
    Texts,
    WrittenTable,
    condition_texts,
    key_texts,
    literals,
    numerals,
    packed,
    statements,
    to_utc,
    tuples,
)

FIELDS = (Field("id", MysqlType.LONG), Field("v", MysqlType.VARCHAR))
LIMITS = StatementLimits(rows=2, size_bytes=1 << 20, upserts=True, safe=False)


def made(table: WrittenTable, ops: list[int], limits: StatementLimits = LIMITS) -> list[tuple[str, int, Counted]]:
    """The statements of rows 0, 1, .. with these net changes."""
    columns = [literals(pa.array(range(len(ops)))), literals(pa.array([f"v{at}" for at in range(len(ops))]))]
    keys = key_texts(table, columns) if table.key else condition_texts(table, columns, documents=False)
    at = np.arange(len(ops))
    net = Net(np.zeros(len(ops)), np.array(ops), at, np.ones(len(ops), np.int64))
    found = statements(table, net, Texts(tuples(columns), keys, columns, at), limits)
    return [(one.text.decode(), one.rows, one.counted) for one in found]


def table(*, key: tuple[int, ...] = (0,), meets: bool = False) -> WrittenTable:
    """A table of two columns."""
    return WrittenTable("s", "t`", FIELDS, (0, 1), key, meets)


def test_each_kind() -> None:
    """Rows that go are deleted, those that stay updated together, those that come inserted, in this order."""
    assert made(table(), [INSERT, UPDATE, DELETE, UPDATE, DELETE, DELETE]) == [
        ("DELETE FROM `s`.`t``` WHERE `id` IN (2,4)", 2, Counted.AFFECTED),
        ("DELETE FROM `s`.`t``` WHERE `id` IN (5)", 1, Counted.AFFECTED),
        (
            "INSERT INTO `s`.`t``` (`id`,`v`) VALUES (1,'v1'),(3,'v3') ON DUPLICATE KEY UPDATE `v`=VALUES(`v`)",
            2,
            Counted.DUPLICATES,
        ),
        ("INSERT INTO `s`.`t``` (`id`,`v`) VALUES (0,'v0')", 1, Counted.AFFECTED),
    ]


def test_a_lone_update() -> None:
    """A row that is updated alone is found by its key, and its values are sent once."""
    one = ("UPDATE `s`.`t``` SET `v`='v2' WHERE `id`=2", 1, Counted.AFFECTED)
    assert made(table(), [UPDATE, UPDATE, UPDATE])[1:] == [one]
    narrow = StatementLimits(rows=9, size_bytes=1024, upserts=True, safe=False)
    assert made(table(), [UPDATE, UPDATE, UPDATE], narrow)[2] == one
    whole = "UPDATE `s`.`t``` SET `id`=0 WHERE (`id`=0 AND `v`='v0')"
    assert made(table(key=(0, 1)), [UPDATE]) == [(whole, 1, Counted.AFFECTED)]


def test_another_unique_key() -> None:
    """Where rows may meet in another key, all that change are deleted before one is inserted."""
    assert [text.partition(" ")[0] for text, *_ in made(table(meets=True), [UPDATE, INSERT])] == ["DELETE", "INSERT"]


def test_safe_mode() -> None:
    """In safe mode rows are replaced, and no number is asked for."""
    safe = StatementLimits(rows=2, size_bytes=1 << 20, upserts=True, safe=True)
    assert made(table(), [DELETE, UPDATE], safe) == [
        ("DELETE FROM `s`.`t``` WHERE `id` IN (0)", 1, Counted.NONE),
        ("REPLACE INTO `s`.`t``` (`id`,`v`) VALUES (1,'v1')", 1, Counted.NONE),
    ]
    assert [counted for *_, counted in made(table(key=()), [DELETE], safe)] == [Counted.NONE]


def test_without_a_key() -> None:
    """A row without a key is found by all that it holds, texts by their bytes too."""
    ((text, *counted), _) = made(table(key=()), [DELETE, INSERT])
    condition = "`id`<=>0 AND `v`<=>'v0' AND CAST(CONVERT(`v` USING utf8mb4) AS BINARY)<=>CAST('v0' AS BINARY)"
    assert (text, counted) == (f"DELETE FROM `s`.`t``` WHERE {condition} LIMIT 1", [1, Counted.AFFECTED])


def test_keys_of_several_columns() -> None:
    """A key of several columns is a condition a row."""
    assert made(table(key=(0, 1)), [DELETE])[0][0].endswith("WHERE (`id`=0 AND `v`='v0')")


@pytest.mark.parametrize("size_bytes", [1024 + 20, 1024 + 50, 1 << 20])
def test_packed(size_bytes: int) -> None:
    """Pieces hold all rows in order, within rows and bytes; a row that is too long stands alone."""
    rows = pa.array([b"x" * (at % 7 * 5) + b"%d" % at for at in range(40)])
    pieces = list(packed(rows, b",", StatementLimits(9, size_bytes, upserts=True, safe=False), 0))
    assert b",".join(text for text, _ in pieces) == b",".join(rows.to_pylist())
    assert sum(count for _, count in pieces) == 40
    assert all(count <= 9 and (count == 1 or len(text) <= size_bytes - 1024) for text, count in pieces)


def test_literals() -> None:
    """Each kind of value is a literal that the server reads back as the same value."""
    found = {
        "numbers": literals(pa.array([-5, None, 1 << 62])),
        "unsigned": literals(pa.array([(1 << 64) - 1], pa.uint64())),
        "floats": literals(pa.array([0.10000000149011612, 1e300])),
        "texts": literals(pa.array(["it's", "a\\b", None, "kä", ""])),
        "bytes": literals(pa.array([b"no", b"\xff", None, b"", b"\x00'\\"]).slice(1)),
    }
    assert {name: values.to_pylist() for name, values in found.items()} == {
        "numbers": [b"-5", b"NULL", b"4611686018427387904"],
        "unsigned": [b"18446744073709551615"],
        "floats": [b"0.10000000149011612", b"1e+300"],
        "texts": [b"'it\\'s'", b"'a\\\\b'", b"NULL", "'kä'".encode(), b"''"],
        "bytes": [b"x'ff'", b"NULL", b"x''", b"x'00275c'"],
    }


def test_decimals() -> None:
    """A DECIMAL is a number, with all of its digits; a text that is none is quoted."""
    texts = pa.array(["-12345678901234567890.123456789", "0.50", "7", None, "1);x", "1\n", "1e5", "."])
    assert numerals(texts).to_pylist() == [
        *(b"-12345678901234567890.123456789", b"0.50", b"7", b"NULL"),
        *(b"'1);x'", b"'1\n'", b"'1e5'", b"'.'"),
    ]
    assert numerals(pa.array([1.5, None])).to_pylist() == [b"1.5", b"NULL"]


def test_zone() -> None:
    """Clocks of a zone become those of UTC with as many digits; what is no moment stays."""
    texts = pa.array(["2024-07-01 12:00:00.120", "2024-01-01 12:00:00", "0000-00-00 00:00:00", None])
    assert to_utc(texts, zone="Europe/Berlin").to_pylist() == [
        "2024-07-01 10:00:00.120",
        "2024-01-01 11:00:00",
        "0000-00-00 00:00:00",
        None,
    ]
