"""A catalog of a large lake: how long its answers take, and how much memory it needs."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.cli.test_catalog_command import serving
from tests.lakes.catalog.served import Client
from tidegate.engine.plan import Checkpoint
from tidegate.model.mysql import MysqlType
from tidegate.model.table import ColumnInfo, ColumnType, IndexInfo, TableInfo, TableName
from tidegate.schema.snapshot import Database, SchemaState
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.snapshots import PublishedTable, Snapshot, publish

DATABASES, TABLES, COLUMNS, SNAPSHOTS = 20, 2_000, 20, 10_000
FIRST_S, ANSWER_S, MEMORY_MIB = 10, 1, 384
"""As docs/limits.md says."""


def large(root: Path) -> Callable[[int], None]:
    """A lake with so many tables and snapshots; what publishes one more, by its number."""
    columns = tuple(ColumnInfo(id=at + 1, name=f"c{at}", type=ColumnType(MysqlType.LONG)) for at in range(COLUMNS))
    key = (IndexInfo(1, "PRIMARY", ("c0",), unique=True, primary=True),)
    names = [TableName(f"db{at % DATABASES}", f"t{at}") for at in range(TABLES)]
    tables = {name.key: TableInfo(name, f"{at:x}-1", 10, columns, key) for at, name in enumerate(names)}
    state = SchemaState({f"db{at}": Database(f"db{at}") for at in range(DATABASES)}, tables)
    published = {one.incarnation: PublishedTable(one.name.schema, one.name.table, 0) for one in tables.values()}
    options = DeltaOptions(root=str(root), feed="f")

    def add(number: int) -> None:
        publish(options, Snapshot(number, Checkpoint(1_000), state, published))

    add(0)
    place = root / "_tidegate" / "snapshots"
    for number in range(1, SNAPSHOTS):
        os.link(place / f"{0:020}.json", place / f"{number:020}.json")
    return add


@pytest.mark.slow
@pytest.mark.more
def test_a_large_lake(tmp_path: Path) -> None:
    """Answers of a lake of 2,000 tables and 10,000 snapshots take less than the limits, and so does the server."""
    add = large(tmp_path)
    with serving(tmp_path) as told:
        client, [process] = Client(told["uri"]), [one for one in psutil.Process().children() if _serves(one)]

        def took_s(path: str) -> float:
            began_s = time.monotonic()
            assert client.ask(path).status == 200
            return time.monotonic() - began_s

        first_s = took_s("/v1/config?warehouse=lake@now")
        answers_s = {}
        for number in range(SNAPSHOTS, SNAPSHOTS + 30):
            add(number)
            for path in ("/v1/config?warehouse=lake@now", "/v1/lake/namespaces/db3/tables"):
                answers_s[path, number] = took_s(path)
        for path in ("/v1/config?warehouse=lake@99999999999", "/v1/lake/namespaces", "/v1/at-7/namespaces/db3/tables"):
            answers_s[path, 0] = took_s(path)
        peak_mib = process.memory_info().rss >> 20

    assert first_s < FIRST_S
    assert max(answers_s.values()) < ANSWER_S, answers_s
    assert peak_mib < MEMORY_MIB


def _serves(process: psutil.Process) -> bool:
    return "catalog" in process.cmdline()
