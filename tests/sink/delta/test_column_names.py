"""Random lives of a table's columns: the rows are upstream's at every version, whatever files call the columns."""

import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest

from tests.counts import some
from tests.sink.delta.lake import INT, TEXT, Rows, column, options, run, stored, table
from tests.sink.delta.test_column_mapping import is_mapped, plain, queried
from tidegate.engine.plan import Alter, Create
from tidegate.engine.plan import Rows as Apply
from tidegate.lakes.read import spark_stored
from tidegate.model.mysql import MysqlType
from tidegate.model.table import ColumnInfo, ColumnType, TableInfo
from tidegate.objectstore import deltalog
from tidegate.sink.delta.columns import stored_columns
from tidegate.sink.delta.options import BEFORE, DeltaOptions
from tidegate.sink.delta.rows import unpacked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BIG = ColumnType(MysqlType.LONGLONG)
NAMES = ("a", "b", "A", "c3", "C5", "c7", "c12", "c1000", "v.w", "ü", "x`y")
ALTERS = 8
CHOSEN = {
    "auto": ("auto",),
    "always": ("always",),
    "never": ("never",),
    "an old lake": ("always", "auto"),
    "never any more": ("never", "auto"),
    "never from now on": ("auto", "never"),
    "always from now on": ("auto", "always"),
}
"""`column-mapping` of the runs in which a lake is written, one after the other."""


@dataclass
class Life:
    """Upstream's table: its columns, its rows as values by column id, and what happened, as steps."""

    chance: random.Random
    keyed: bool
    info: TableInfo = field(init=False)
    rows: Rows = field(default_factory=Rows)
    now: dict[int, dict[int, Any]] = field(default_factory=dict)
    ids: int = 3
    steps: list[Any] = field(default_factory=list)
    truth: list[list[dict[str, Any]]] = field(default_factory=list)
    """The rows of a table with a key after each step."""

    def __post_init__(self) -> None:
        first = (column(1, "id"), column(2, "a", TEXT), column(3, "b"))
        self.info = self._table(first, 10)
        self._step(Create(self.info, 10, 1))
        self._change(10)
        for at in range(20, 20 + 10 * ALTERS, 10):
            self._alter(at)
            self._change(at)

    def _table(self, columns: tuple[ColumnInfo, ...], version: int) -> TableInfo:
        names = {one.id: one.name for one in columns}
        return table(*columns, version=version, key=(names[1],) if self.keyed else ())

    def _step(self, step: Any) -> None:
        names = {one.id: one.name for one in self.info.columns}
        rows = [{names[id_]: row[id_] for id_ in names} for row in self.now.values()]
        self.steps.append(step)
        self.truth.append(rows)

    def _change(self, after: int) -> None:
        """Three INSERTs, an UPDATE and a DELETE, perhaps not."""
        names = {one.id: one.name for one in self.info.columns}
        for at in range(3):
            key = after * 10 + at
            row = {one.id: self._value(one) for one in self.info.columns} | {1: key}
            self.now[key] = row
            self.rows.insert(after + 1, **{names[id_]: value for id_, value in row.items()})
        old, new = self.now[key], {one.id: self._value(one) for one in self.info.columns} | {1: key}
        self.now[key] = new
        before, row = ({names[id_]: value for id_, value in image.items()} for image in (old, new))
        self.rows.update(after + 2, before, **row)
        gone = self.chance.choice(sorted(self.now))
        if gone < after * 10:
            row = self.now.pop(gone)
            self.rows.delete(after + 3, **{names[id_]: row[id_] for id_ in names})
        self._step(Apply(self.info, after, after + 9))

    def _value(self, one: ColumnInfo) -> Any:
        return f"t{self.chance.randrange(99)}" if one.type is TEXT else self.chance.randrange(1000)

    def _alter(self, ts: int) -> None:
        old, columns = self.info, list(self.info.columns)
        for _ in range(self.chance.choice((1, 1, 2))):
            columns = self._altered(columns)
        self.info = self._table(tuple(columns), ts)
        kept = {one.id for one in columns}
        self.now = {key: {id_: row[id_] for id_ in kept} for key, row in self.now.items()}
        self._step(Alter(old, self.info, ts, 1))

    def _altered(self, columns: list[ColumnInfo]) -> list[ColumnInfo]:
        """The columns after one clause of ALTER TABLE; what it makes of rows is done to them."""
        data = [at for at, one in enumerate(columns) if one.id != 1]
        taken = {one.name.lower() for one in columns}
        fresh = next((one for one in self.chance.sample(NAMES, len(NAMES)) if one.lower() not in taken), "z")
        at = self.chance.choice(data) if data else 0
        one = columns[at]
        match self.chance.choice(("add", "add", "fill", "drop", "rename", "swap", "case", "type", "move")):
            case "add" | "fill" as how:
                self.ids += 1
                given = {"nullable": False, "origin_default": "7"} if how == "fill" else {}
                for row in self.now.values():
                    row[self.ids] = 7 if given else None
                columns.insert(self.chance.randrange(len(columns) + 1), column(self.ids, fresh, INT, **given))
            case "drop" if data:
                columns.pop(at)
            case "rename":
                columns[at] = msgspec.structs.replace(one, name=fresh)
            case "swap":
                columns[at] = msgspec.structs.replace(one, name=columns[0].name)
                columns[0] = msgspec.structs.replace(columns[0], name=one.name)
            case "case":
                columns[at] = msgspec.structs.replace(one, name=one.name.swapcase())
            case "type" if one.id != 1 and one.type is not TEXT:
                kind = BIG if one.type is INT else TEXT
                columns[at] = msgspec.structs.replace(one, type=kind)
                for row in self.now.values():
                    row[one.id] = row[one.id] if kind is BIG or row[one.id] is None else str(row[one.id])
            case _:
                self.chance.shuffle(columns)
        return columns


def lived(life: Life, root: Path, chosen: tuple[str, ...], **more: object) -> DeltaOptions:
    """A lake that followed it, with each of `chosen` for a stretch of the steps."""
    size = -(-len(life.steps) // len(chosen))
    for at, one in enumerate(chosen):
        lake = options(root, column_mapping=one, **more)
        run(lake, life.rows, *life.steps[at * size : (at + 1) * size])
    return lake


def same(rows: list[dict[str, Any]], others: list[dict[str, Any]]) -> bool:
    """Whether two lists hold the same rows with their columns in the same order."""
    return Counter(map(repr, rows)) == Counter(map(repr, others))


def shown(lake: DeltaOptions, version: int) -> list[dict[str, Any]]:
    """The rows of a version, old images by the names of columns."""
    columns = stored_columns(deltalog.load(lake.table_uri("t-1"), version))
    rows = stored(lake, "t-1", version)
    images = [unpacked(pa.array([text]), columns).to_pylist() if (text := row.get(BEFORE)) else text for row in rows]
    return [row | {BEFORE: image} for row, image in zip(rows, images, strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(some(1, 200)))
def test_rows_at_every_version(tmp_path: Path, seed: int) -> None:
    """Each value of `column-mapping`, and each after another, gives upstream's rows; `never` gives a plain table."""
    life = Life(random.Random(seed), keyed=True)
    for name, chosen in CHOSEN.items():
        lake = lived(life, tmp_path / name, chosen)
        mapped = [is_mapped(lake, version) for version in range(len(life.truth))]
        for version, truth in enumerate(life.truth):
            assert same(stored(lake, "t-1", version), truth), (name, version)
            if not mapped[version]:
                assert same(plain(lake, version), truth), (name, version)
        assert same(queried(lake), life.truth[-1]), name
        assert mapped == sorted(mapped), name
        assert any(mapped) or "always" not in chosen, name
        assert name != "never" or not any(mapped)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["replica", "changelog", "history"])
@pytest.mark.parametrize("seed", range(some(1, 50)))
def test_the_past_at_every_version(tmp_path: Path, seed: int, mode: str) -> None:
    """Logs, changes and versions are those of a table that is mapped from the start, old images of a log included."""
    life = Life(random.Random(seed), keyed=mode == "history")
    lakes = {name: lived(life, tmp_path / name, chosen, mode=mode) for name, chosen in CHOSEN.items()}
    for version in range(len(life.steps)):
        truth = shown(lakes["always"], version)
        assert [name for name, lake in lakes.items() if not same(shown(lake, version), truth)] == []


@pytest.mark.slow
@pytest.mark.soak
def test_spark_reads_both_sides_of_the_change(tmp_path: Path, spark: "SparkSession") -> None:
    """Spark with Delta gives the rows of every version, plain ones and mapped ones, of one table."""
    life = Life(random.Random(1), keyed=True)
    lake = lived(life, tmp_path, ("auto",))
    mapped = [is_mapped(lake, version) for version in range(len(life.truth))]
    assert {*mapped} == {False, True}
    for version, truth in enumerate(life.truth):
        frame = spark.read.format("delta").option("versionAsOf", version).load(lake.table_uri("t-1"))
        assert same(frame.toArrow().to_pylist(), truth), version
        assert same(spark_stored(spark, deltalog.load(lake.table_uri("t-1"), version)).toArrow().to_pylist(), truth)
