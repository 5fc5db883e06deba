"""Merging file by file: the same table as a dict would hold, whatever the key, the batches and the layout of files."""

import json
from decimal import Decimal
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.sink.delta.lake import column, table
from tidegate.model.mysql import MysqlType
from tidegate.model.table import ColumnType
from tidegate.objectstore import deltalog
from tidegate.sink.delta import files as data_files
from tidegate.sink.delta import merge as merging
from tidegate.sink.delta.columns import first_schema
from tidegate.sink.delta.files import between, by_key, distinct, logical_schema, match, read
from tidegate.sink.delta.merge import merge
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.rows import NetChanges

pytestmark = pytest.mark.slow

LAKE = DeltaOptions(root="", feed="f")
BIG = ColumnType(MysqlType.LONGLONG)
NAME = ColumnType(MysqlType.VARCHAR, flen=60)
EXACT = ColumnType(MysqlType.DECIMAL, flen=20, decimal=4)
BYTES = ColumnType(MysqlType.VARCHAR, flen=20, charset="binary")
DAY = ColumnType(MysqlType.DATE)

KEYS = {
    "int": ((BIG,), st.integers(-40, 40)),
    "text": (
        (NAME,),
        st.sampled_from(["", "a", "A", "b", "ä", "\U0001f30a", "z" * 40]) | st.text("ab\x7f", max_size=3),
    ),
    "decimal": ((EXACT,), st.decimals(-3, 3, places=1).map(lambda one: Decimal(f"{one:.4f}"))),
    "binary": ((BYTES,), st.binary(max_size=2)),
    "composite": ((BIG, NAME), st.tuples(st.integers(0, 4), st.sampled_from("abc"))),
    "three": ((NAME, BYTES, BIG), st.tuples(st.sampled_from("ab"), st.sampled_from([b"", b"\xff"]), st.integers(0, 3))),
}


def values(key: object) -> tuple:
    return key if isinstance(key, tuple) else (key,)


def defined(kind: str) -> tuple:
    """A table's columns, with a value behind the key, and the names of the key."""
    types, _ = KEYS[kind]
    names = [f"k{at}" for at in range(len(types))]
    columns = [column(at, name, type_) for at, (name, type_) in enumerate(zip(names, types, strict=True), 1)]
    info = table(*columns, column(9, "v", BIG), key=tuple(names))
    return first_schema(info, LAKE), names


def changes(columns: tuple, names: list[str], batch: dict) -> NetChanges:
    """A batch (key → value, None for gone) as net changes: rows that live first."""
    schema = logical_schema(columns)
    ordered = sorted(batch.items(), key=lambda one: one[1] is None)
    rows = [(*values(key), value) for key, value in ordered]
    arrays = [pa.array([row[at] for row in rows], schema.types[at]) for at in range(len(schema))]
    whole = pa.Table.from_arrays(arrays, schema=schema)
    return NetChanges(whole.select(names), whole.slice(0, sum(one is not None for one in batch.values())), len(rows))


class Stored:
    """A lake table that merges into itself, beside a dict that does the same."""

    def __init__(self, uri: str, kind: str) -> None:
        self.uri, self.model = uri, {}
        schema, self.names = defined(kind)
        self.columns = schema.columns
        deltalog.create(uri, schema.fields(), metadata={}, configuration=schema.configuration(LAKE))

    def files(self) -> tuple[deltalog.DataFile, ...]:
        """The table's files as of now."""
        return deltalog.load(self.uri).files()

    def merge(self, batch: dict) -> list[deltalog.Action]:
        """Bring a batch into the table and the model; give the actions."""
        actions = merge(self.uri, self.files(), self.columns, changes(self.columns, self.names, batch))
        version = deltalog.load(self.uri).version + 1
        deltalog.commit(self.uri, version, actions, operation="MERGE", metadata={})
        for key, value in batch.items():
            if value is None:
                self.model.pop(key, None)
            else:
                self.model[key] = value
        return actions

    def rows(self) -> list[tuple]:
        """What the files hold, in their order."""
        return [tuple(row.values()) for file in self.files() for row in read(self.uri, file, self.columns).to_pylist()]

    def check(self) -> None:
        """Fails unless table and model are the same."""
        expected = sorted(((*values(key), value) for key, value in self.model.items()), key=repr)
        assert sorted(self.rows(), key=repr) == expected


@pytest.mark.parametrize("kind", KEYS)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), rows_per_file=st.sampled_from([3, 8, 1000]), small=st.sampled_from([0, 4, 1000]))
def test_merging_file_by_file_gives_what_a_dict_gives(tmp_path_factory, kind, data, rows_per_file, small):
    """Random batches into files of any size leave each key once, with its last value, in files ordered by key."""
    _, keys = KEYS[kind]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_files, "ROWS_PER_FILE", rows_per_file)
        patch.setattr(data_files, "SMALL_ROWS", small)
        patch.setattr(merging, "SMALL_FILES_MAX", 2)
        stored = Stored(str(tmp_path_factory.mktemp("lake") / "t"), kind)
        batches = st.dictionaries(keys, st.none() | st.integers(0, 99), max_size=30)
        for batch in data.draw(st.lists(batches, max_size=5)):
            stored.merge(batch)
            stored.check()
        for file in stored.files():
            rows = read(stored.uri, file, stored.columns)
            assert by_key(rows, stored.names) is rows
            assert 0 < file.rows <= rows_per_file


@pytest.fixture
def ten_files(tmp_path, monkeypatch):
    """Keys 0 to 99 in ten files of ten."""
    monkeypatch.setattr(data_files, "ROWS_PER_FILE", 10)
    monkeypatch.setattr(data_files, "SMALL_ROWS", 0)
    stored = Stored(str(tmp_path / "t"), "int")
    stored.merge(dict.fromkeys(range(100), 0))
    assert len(stored.files()) == 10
    return stored


def test_only_touched_files_are_written(ten_files):
    """A change of one row rewrites the one file that holds it, and opens no other."""
    opened = []
    original = data_files.read
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "read", lambda uri, file, some: opened.append(file.path) or original(uri, file, some))
        actions = ten_files.merge({35: 1})

    assert [next(iter(action)) for action in actions] == ["remove", "add"]
    assert len(set(opened)) == 1
    ten_files.check()


def test_a_gap_between_touched_keys_costs_nothing(ten_files):
    """Changes at both ends of a table leave the files between them alone, though these lie within their bounds."""
    actions = ten_files.merge({0: 1, 99: 1})

    assert sum("remove" in action for action in actions) == 2
    ten_files.check()


def test_new_rows_go_where_they_belong(ten_files):
    """A new row between the bounds of a file that is rewritten anyway becomes part of it, so files stay apart."""
    for key in range(30, 40, 2):
        ten_files.model.pop(key)
        ten_files.merge({key: None})
    ten_files.merge({31: 1, 32: 5})
    bounds = sorted((file.lows["k0"], file.highs["k0"]) for file in ten_files.files())

    assert all(one[1] < other[0] for one, other in pairwise(bounds))
    ten_files.check()


def test_a_file_that_grows_is_split(ten_files):
    """Files never grow beyond their limit, however many rows come between two neighbours."""
    stored = ten_files
    stored.merge(dict.fromkeys(range(30, 40)))
    stored.merge({30: 1, 39: 1})
    stored.merge({30: 2, **dict.fromkeys(range(31, 39), 2), 39: 2})

    assert max(file.rows for file in stored.files()) <= 10
    stored.check()


def test_files_are_limited_by_bytes_too(tmp_path, monkeypatch):
    """Wide rows make files of fewer rows; a row larger than the limit stands alone."""
    monkeypatch.setattr(data_files, "FILE_BYTES", 1000)
    columns = defined("text")[0].columns
    rows = pa.table({"k0": ["a", "b" * 5000, "c", "d"], "v": [1, 2, 3, 4]}, schema=logical_schema(columns))
    adds = list(data_files.write(str(tmp_path), rows, columns, ["k0"]))

    assert len(adds) >= 2
    assert sum(json.loads(one["add"]["stats"])["numRecords"] for one in adds) == 4


def test_columns_that_repeat_have_dictionaries(tmp_path):
    """Others are written without one."""
    columns = defined("text")[0].columns
    values = {"k0": [f"key {number}" for number in range(1000)], "v": [number % 7 for number in range(1000)]}
    list(data_files.write(str(tmp_path), pa.table(values, schema=logical_schema(columns)), columns, ["k0"]))

    group = pq.read_metadata(next(tmp_path.glob("*.parquet"))).row_group(0)
    assert [group.column(number).has_dictionary_page for number in range(2)] == [False, True]


def test_small_files_become_one(tmp_path, monkeypatch):
    """Many small files fold into one as soon as a merge passes by, though it touches none of them."""
    monkeypatch.setattr(merging, "SMALL_FILES_MAX", 100)
    stored = Stored(str(tmp_path / "t"), "int")
    for at in range(12):
        stored.merge({at: at})
    assert len(stored.files()) == 12
    monkeypatch.setattr(merging, "SMALL_FILES_MAX", 8)
    stored.merge({100: 1})

    assert len(stored.files()) == 1
    stored.check()


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(2, 5, (1, 3)), (3, 3, (1, 2)), (8, 9, (4, 4)), (None, 5, (0, 4)), ("2", "5", (0, 4))],
)
def test_bounds_enclose_keys(low, high, expected):
    """A stretch of the ordered keys is found by bounds; unknown bounds, or of another type, enclose all."""
    assert between(pa.array([1, 3, 5, 7]), low, high) == expected


def test_match_tells_both_sides():
    """Matched rows come with the number of the key that they have, for keys of several columns too."""
    stored = pa.table({"a": [1, 1, 2, 3], "b": ["x", "y", "x", "x"]})
    keys = pa.table({"a": [3, 1, 9], "b": ["x", "y", "y"]})
    places, by = match(stored, keys)

    assert list(zip(places.tolist(), by.tolist(), strict=True)) == [(1, 1), (3, 0)]


def test_distinct_sees_every_column():
    """Keys that differ in one column are different."""
    assert distinct(pa.table({"a": [2, 1, 1], "b": [1, 2, 1]}))
    assert not distinct(pa.table({"a": [2, 1, 2], "b": [1, 2, 1]}))
