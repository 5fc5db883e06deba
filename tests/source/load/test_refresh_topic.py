"""Rows in which a real TiCDC sent NULL amid a MODIFY COLUMN: repaired from an upstream that holds the truth.

topic ── rows with NULL ──► lake, SQLite ── repair of all keys ──► the truth
  └───────────────────────► embedded TiDB, its rows as in the truth ──┘
"""

import sqlite3
import time
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pymysql
import pytest

from tests.real_topics import SENT_AS_NULL, truths
from tests.replay.test_real_topics import source_of
from tidegate.changelog.changelog import changelog_uri
from tidegate.changelog.source import ChangelogSource
from tidegate.engine import refresh, reload
from tidegate.engine.filter import TableFilter
from tidegate.engine.load_plan import KeptPlan
from tidegate.engine.ports import Sink
from tidegate.engine.refresh import RefreshingSource
from tidegate.engine.reload import DONE, KeptReload, RepairKeys
from tidegate.lakes.lake import Lake
from tidegate.model.table import TableName
from tidegate.model.tso import compose
from tidegate.sink.delta.options import DeltaOptions
from tidegate.sink.delta.sink import DeltaSink
from tidegate.sink.sql.connection import SqlOptions
from tidegate.sink.sql.sink import SqlSink
from tidegate.sink.sqlite import SqliteSink
from tidegate.source.load_sql import SqlReader
from tidegate.source.upstream_address import Address, SqlLoadOptions
from tidegate.testing.script import run_here
from tidegate.verify.local import compare_tables
from tidegate_upstream.background import UpstreamOptions, start_upstream, stop_upstream

pytestmark = [pytest.mark.slow, pytest.mark.more]

TOPIC, NAME, RULES = "new/open", "rc_shop.orders", ["rc_shop.orders"]
TRUTH = truths(TOPIC)[-1]
ORDERS = TRUTH.tables[NAME]
COLUMNS = [column.name for column in ORDERS.columns]
KEYS = tuple((str(dict(zip(COLUMNS, row, strict=True))[ORDERS.key[0]]["i"]),) for row in ORDERS.rows)  # type: ignore[index]


class Later(ChangelogSource):
    """The topic, with the watermarks that follow its end."""

    def frontier(self) -> int | None:
        reached = super().frontier()
        return reached if reached is None or reached < TRUTH.ts else compose(int(time.time() * 1000) - 200, 0)


def orders_of(upstream: "pymysql.Connection[Any]", home: Path, port: int) -> None:
    """Bring the table into the upstream, and the values that TiCDC left out."""
    run_here(source_of(TOPIC, home, str(home / "log")), SqlSink(SqlOptions("f", "127.0.0.1", port)),
             until=TRUTH.ts, rules=["rc_shop.*"])  # fmt: skip
    names = [column for _, column in SENT_AS_NULL]
    with upstream.cursor() as cursor:
        for row in ORDERS.rows:
            cells: dict[str, Any] = dict(zip(COLUMNS, row, strict=True))
            values = [cells[name] and next(iter(cells[name].values())) for name in (*names, ORDERS.key[0])]
            sets = ", ".join(f"{name} = %s" for name in names)
            cursor.execute(f"UPDATE {NAME} SET {sets} WHERE {ORDERS.key[0]} = %s", values)


def lake_of(root: Path) -> list[str]:
    """In what a lake differs from the truth."""
    lake, seen = Lake(str(root)), msgspec.structs.replace(TRUTH, tables={NAME: ORDERS})
    return [str(one) for report in compare_tables(seen, lake.tables(), lake.arrow) for one in report.differences]


def sqlite_of(path: Path) -> list[str]:
    """The keys of rows that lack a value in a file."""
    places = {name: COLUMNS.index(name) for _, name in SENT_AS_NULL}
    truth = {row[COLUMNS.index(ORDERS.key[0])]["i"]: row for row in ORDERS.rows}  # type: ignore[index]
    with closing(sqlite3.connect(path)) as file:
        names = ", ".join([ORDERS.key[0], *places])
        rows = file.execute(f'SELECT {names} FROM "{NAME}"').fetchall()
    assert {key for key, *_ in rows} == truth.keys()
    return [
        str(key)
        for key, *values in rows
        if [value is None for value in values] != [truth[key][place] is None for place in places.values()]
    ]


def test_what_ticdc_sent_as_null(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lake and a file of the topic equal the truth behind a repair."""
    monkeypatch.setattr(reload, "LOOK_S", 0.0)
    monkeypatch.setattr(reload, "AGAIN_S", 0.0)
    upstream = start_upstream(UpstreamOptions())
    try:
        port = upstream.port_of(1)
        with pymysql.connect(host="127.0.0.1", port=port, user="root", charset="utf8mb4", autocommit=True) as open_:
            orders_of(open_, tmp_path, port)
        reader = SqlReader(SqlLoadOptions(Address("127.0.0.1", port, enable_tls=False)))
        lake = DeltaOptions(root=str(tmp_path / "lake"), feed="f", worker_count=1)
        for name, sink, unlike in (
            ("lake", partial(DeltaSink, lake), lambda: lake_of(tmp_path / "lake")),
            ("file", partial(SqliteSink, str(tmp_path / "a.db"), "f"), lambda: sqlite_of(tmp_path / "a.db")),
        ):
            home, log = tmp_path / name, str(tmp_path / f"{name}-log") if name == "file" else str(tmp_path / "lake")
            made: Sink[Any] = sink()
            run_here(source_of(TOPIC, home, log), made, until=TRUTH.ts, rules=RULES)
            assert unlike()
            kept = KeptReload(str(home))
            kept.ask_repair([RepairKeys(TableName("rc_shop", "orders"), ORDERS.key, KEYS)])
            for _ in range(10):
                source = RefreshingSource(
                    reader, KeptPlan(str(home)), TableFilter.parse(RULES).matches, Later(changelog_uri(log)),
                    ordered=False, requests=kept,
                )  # fmt: skip
                run_here(source, sink(), rules=RULES)
                if (last := kept.read()) is not None and last.outcome:
                    break
            assert last is not None
            assert last.outcome == DONE
            assert unlike() == []
            assert last.done == -(-len(KEYS) // refresh.KEYS_A_CHUNK)
    finally:
        stop_upstream(upstream)
