"""Feeds of topics that begin in the middle of their tables' lives, and take the definitions from the database."""

from pathlib import Path
from typing import Any

import pytest

from tests.source.load.feeds import finished
from tests.source.load.kit import Loaded
from tidegate.config.load import load
from tidegate.lakes.lake import Lake
from tidegate.objectstore import deltalog
from tidegate_upstream.background import UpstreamOptions, start_upstream, stop_upstream

pytestmark = pytest.mark.slow

COLUMNS = (
    *("n TINYINT UNSIGNED", "big BIGINT UNSIGNED", "price DECIMAL(12, 3)", "f FLOAT", "flags BIT(9)", "y YEAR"),
    *("code CHAR(7)", "name VARCHAR(40) NOT NULL DEFAULT 'x'", "raw VARBINARY(9)", "note MEDIUMTEXT", "doc JSON"),
    *("size ENUM('s', 'm', 'l') NOT NULL DEFAULT 's'", "tags SET('a', 'b', 'c')", "at DATETIME(3)", "day DATE"),
    *("seen TIMESTAMP(6) NULL", "took TIME(2)"),
)
BEFORE = (
    "CREATE DATABASE w",
    f"CREATE TABLE w.kinds (a VARCHAR(9), b INT, {', '.join(COLUMNS)}, PRIMARY KEY (a, b))",
    "CREATE TABLE w.idle (id BIGINT PRIMARY KEY, size ENUM('x', 'y'), price DECIMAL(9, 4))",
    "CREATE TABLE w.named (id INT, v VARCHAR(11) NOT NULL, UNIQUE KEY by_v (v))",
    "CREATE TABLE w.old (id INT PRIMARY KEY, v VARCHAR(5))",
    "INSERT INTO w.kinds (a, b) VALUES ('k', 1), ('k', 2)",
    "INSERT INTO w.idle VALUES (1, 'y', 1.5)",
    "INSERT INTO w.named VALUES (1, 'one')",
    "ALTER TABLE w.kinds MODIFY size ENUM('s', 'm', 'l', 'xl') NOT NULL DEFAULT 's'",
)
FILLED = (
    "UPDATE w.kinds SET n = 7, big = 18446744073709551615, price = 12.5, f = 1.5, flags = b'101', y = 2024, code = 'c',"
    " raw = X'00FF', note = 'n', doc = '{}', size = 'xl', tags = 'a,c', at = '2024-01-02 03:04:05.678',"
    " day = '2024-02-29', seen = '2024-01-02 03:04:05', took = '12:00:00.5' WHERE b = 1"
)
AFTER = (
    FILLED,
    "INSERT INTO w.named VALUES (2, 'two')",
    "INSERT INTO w.old VALUES (1, 'v')",
    "ALTER TABLE w.kinds ADD COLUMN more ENUM('p', 'q') DEFAULT 'q'",
    "RENAME TABLE w.old TO w.new",
    "INSERT INTO w.kinds (a, b, size) VALUES ('k', 3, 'm')",
)


def types(root: Path) -> dict[str, Any]:
    """What a lake knows of each table's columns and key, and the schema in which it stores them."""
    lake, found = Lake(str(root)), {}
    for table in lake.snapshot.state.tables.values():
        stored = deltalog.load(lake.options.table_uri(table.incarnation))
        assert stored is not None
        columns = [(one.name, one.type, one.nullable) for one in table.columns]
        fields = [(one["name"], one["type"], one["nullable"]) for one in stored.fields]
        found[str(table.name)] = columns, table.handle_key, fields
    return found


@pytest.mark.parametrize("protocol", ["open-protocol", "canal-json", pytest.param("files", marks=pytest.mark.more)])
def test_types_are_those_of_the_create(protocol: str, bootstrap: str, tmp_path: Path) -> None:
    """Definitions, keys and stored types equal those of a lake whose topic, or directory, began at the CREATE; without
    them a topic tells other ones."""
    upstream = start_upstream(UpstreamOptions(log=str(tmp_path / "log")))
    client = Loaded(upstream.port_of(1))

    def now() -> int:
        return int(client.run("SHOW MASTER STATUS")[0][1])

    def lake_of(topic: str, name: str, **more: str) -> dict[str, Any]:
        uri = topic.replace("&partition-num=2", "")
        lake = tmp_path / name
        finished(load(source_uri=uri, sink_uri=f"delta://{lake}", rules=["w.*"], name=name, **more), end)
        return types(lake)

    try:
        for statement in BEFORE:
            client.run(statement)
        begun = now()
        for statement in AFTER:
            client.run(statement)
        end = now()
        extension = "&enable-tidb-extension=true" if protocol == "canal-json" else ""
        topics = {}
        for kind, since in (("whole", None), ("middle", begun)):
            topics[kind] = f"kafka://{bootstrap}/{kind}-{begun}?protocol={protocol}&partition-num=2{extension}"
            if protocol == "files":
                topics[kind] = f"file://{tmp_path / kind}-files?protocol=canal-json&enable-tidb-extension=true"
            writes = load(
                source_uri=f"tidb://{tmp_path / 'log'}", sink_uri=topics[kind], rules=["w.*"], start_ts=since,
                name=kind, state_dir=tmp_path / "state",
            )  # fmt: skip
            finished(writes, end)
        whole = lake_of(topics["whole"], "whole")
        database = f"mysql://root@127.0.0.1:{client.port}/?enable-tls=false"
        assert lake_of(topics["middle"], "defined", definitions_from=database) == whole
        assert lake_of(topics["middle"], "bare") != whole
        assert whole.keys() == {"w.kinds", "w.idle", "w.named", "w.new"}
    finally:
        client.connection.close()
        stop_upstream(upstream)
