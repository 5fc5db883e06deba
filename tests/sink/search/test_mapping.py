"""Mappings: what each type becomes, and what the user's rules make of it."""

from typing import Any

import pytest

from tidegate.model.event import Ddl
from tidegate.model.table import TableInfo
from tidegate.schema.state import SchemaState, apply_ddl
from tidegate.sink.search_mapping import IndexRule, field_name, mapping_of

COLUMNS = """id BIGINT UNSIGNED PRIMARY KEY, title VARCHAR(90), body TEXT, price DECIMAL(9, 2), kind ENUM('a', 'b'),
at DATETIME(6), day DATE, doc JSON, raw BLOB, flags BIT(9), n INT, twice INT AS (n * 2), _id INT, `a.b` INT"""


def table(columns: str = COLUMNS) -> TableInfo:
    """A table of these columns."""
    state, _ = apply_ddl(
        SchemaState(), Ddl(schema="shop", table="t", query=f"CREATE TABLE shop.t ({columns})", commit_ts=1), 1
    )
    (found,) = state.tables.values()
    return found


def types(*rules: IndexRule) -> dict[str, Any]:
    """The types of the fields that are searched."""
    return {name: field["type"] for name, field in mapping_of(table(), rules).fields.items()}


def test_types() -> None:
    """Words are text, numbers ranges, moments dates; bytes and generated columns are not searched."""
    assert types() == {
        "id": "unsigned_long",
        "title": "text",
        "body": "text",
        "price": "double",
        "kind": "keyword",
        "at": "date",
        "day": "date",
        "doc": "object",
        "flags": "unsigned_long",
        "n": "long",
        "%5fid": "long",
        "a%2eb": "long",
    }


@pytest.mark.parametrize(
    ("rule", "wanted"),
    [
        (IndexRule(("shop.*",), "text"), {"title", "body"}),
        (IndexRule(("shop.*",), ("TITLE", "n", "raw", "gone")), {"title", "n"}),
        (IndexRule(("shop.*",), ("n",), {"raw": {"type": "binary"}}), {"n", "raw"}),
        (IndexRule(("log.*",), "text"), set(types())),
    ],
)
def test_rules(rule: IndexRule, wanted: set[str]) -> None:
    """The first rule that takes the table says which columns are searched."""
    assert set(types(rule)) == wanted


def test_fields_of_ones_own() -> None:
    """What a rule says of a field is added to it, or stands in its place if it has a type."""
    own = {"Body": {"analyzer": "english"}, "price": {"type": "scaled_float", "scaling_factor": 100}}
    found = mapping_of(table(), [IndexRule(("shop.t",), "text", own, {"number_of_shards": 3})])
    assert found.fields["body"] == {"type": "text", "analyzer": "english"}
    assert found.fields["price"] == {"type": "scaled_float", "scaling_factor": 100}
    assert found.settings == {"number_of_shards": 3}
    assert found.text != mapping_of(table(), []).text


def test_names_of_fields() -> None:
    """Names that mean something else to a server are written %XX, so that no two columns share one."""
    names = ["_id", "%5fid", "a.b", "a%2eb", "a_b"]
    assert len({field_name(name) for name in names}) == len(names)
    assert not any("." in field_name(name) or field_name(name).startswith("_") for name in names)
