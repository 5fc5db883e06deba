"""Names of keys: no two rows share one, no table's pattern finds another's, tombstones lie in the row's slot."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from tidegate.model.errors import UriInvalid
from tidegate.model.table import TableInfo, TableName
from tidegate.sink.redis_cache import KeptRows
from tidegate.sink.redis_options import LOOKUP_PREFIX, RedisOptions, parse_template, row_key, tombstone_key
from tidegate.sink.redis_server import OPENING, VERSION_BYTES

PLAIN = parse_template("{schema}:{table}:{pk}")
NAMES = st.text(st.sampled_from("ab:/{}%*é\\"), min_size=1, max_size=4)
ROWS = st.tuples(st.builds(TableName, NAMES, NAMES), st.lists(NAMES, min_size=1, max_size=2))


@pytest.mark.parametrize(
    ("template", "name", "values", "wanted"),
    [
        ("{schema}:{table}:{pk}", ("shop", "orders"), (17,), b"shop:orders:17"),
        ("{schema}:{table}:{pk}", ("shop", "pairs"), (1, "a:b"), b"shop:pairs:1:a%3Ab"),
        ("c/{schema}/{table}/{pk}", ("shop", "a/b"), (b"\x00\xff",), b"c/shop/a%2Fb/00ff"),
        ("{{{schema}:{table}}}:{pk}", ("shop", "t"), ("{x}",), b"{shop:t}:%7Bx%7D"),
    ],
)
def test_rows(template: str, name: tuple[str, str], values: tuple[int | str | bytes, ...], wanted: bytes) -> None:
    """Keys are the template's text with names and values, whose separators and braces are escaped."""
    assert row_key(parse_template(template).prefix(TableName(*name)), values) == wanted


@pytest.mark.parametrize(
    "template",
    [
        *("{schema}:{pk}", "{table}:{pk}", "{schema}:{table}", "{table}:{schema}:{pk}", "{schema}:{table}:{pk}:x"),
        *("{schema}{table}:{pk}", "{schema}:{table}-{pk}", "{schema}:{table}:{id}", "{schema"),
        *("}}{{:{schema}:{table}:{pk}", "{{}}:{schema}:{table}:{pk}", "_tidegate:{schema}:{table}:{pk}"),
    ],
)  # fmt: skip
def test_templates_that_are_refused(template: str) -> None:
    """A template by which tables or rows could share keys is an error of the address."""
    with pytest.raises(UriInvalid):
        parse_template(template)


@given(ROWS, ROWS)
def test_keys_tell_rows_apart(one: tuple[TableName, list[str]], other: tuple[TableName, list[str]]) -> None:
    """Rows of different tables or values have different keys, and a pattern finds the keys of its table alone."""
    if len(one[1]) != len(other[1]):
        return
    keys = [row_key(PLAIN.prefix(name), values) for name, values in (one, other)]
    assert (keys[0] == keys[1]) == (one == other)
    assert fits(PLAIN.pattern(one[0]), keys[1]) == (one[0] == other[0])


def fits(pattern: bytes, key: bytes) -> bool:
    """Whether a pattern of SCAN, of which only the last character is not itself, fits a key."""
    assert pattern.endswith(b"*")
    return key.startswith(re.sub(rb"\\(.)", rb"\1", pattern[:-1]))


@given(ROWS, st.sampled_from(["{schema}:{table}:{pk}", "{{{schema}:{table}}}:{pk}"]))
def test_a_tombstone_lies_with_its_row(row: tuple[TableName, list[str]], template: str) -> None:
    """Whatever names, values and braces of a template are, a cluster keeps a row and its tombstone in one slot."""
    key = row_key(parse_template(template).prefix(row[0]), row[1])
    assert key_slot(tombstone_key(key)) == key_slot(key)


class OnePass:
    """A server that counts its scans."""

    def __init__(self, rows: dict[bytes, bytes]) -> None:
        self.rows, self.patterns = rows, list[bytes]()

    def scan(self, pattern: bytes) -> Iterator[list[bytes]]:
        """Every key, one a page."""
        self.patterns.append(pattern)
        yield from ([key] for key in self.rows)

    def read(self, keys: Sequence[bytes], _get: object) -> list[bytes]:
        """The values of keys."""
        return [self.rows[key] for key in keys]


@pytest.mark.parametrize("count", [0, 1, 300])
def test_tables_that_hold_rows_are_found_by_one_scan(count: int) -> None:
    """A key of the table with a version is a row; another one is not, nor is a look-up, nor one of another table."""
    names = [TableName("shop", f"t{number}") for number in range(count)]
    options = RedisOptions(feed="f", hosts=(("h", 1),), template="{schema}:{table}:{pk}", mode="json")
    row = (OPENING + "0" * VERSION_BYTES).encode()
    rows = {b"shop:t1:1": row, b"shop:t10:1": b"{}", b"shop:t2:" + LOOKUP_PREFIX + b"a:1": row, b"shop:t:3": row}
    rows |= {b"shop:t299:1": b"{}", b"shop:t299:2": row, b"shop:t299:3": row}
    server: Any = OnePass(rows)
    filled = KeptRows(options).filled(
        server, [TableInfo(name=name, columns=(), incarnation="", version=1) for name in names]
    )
    assert filled == ([names[1], names[299]] if count == 300 else [])
    assert server.patterns == ([b"shop:t*"] if count == 300 else [b"shop:t0:*"] if count else [])
