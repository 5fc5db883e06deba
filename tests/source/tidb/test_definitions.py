"""Stored definitions told as CREATE statements are read back as what they were."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.source.tidb.kit import recorded_log
from tidegate.engine.filter import TableFilter
from tidegate.model.mysql import MysqlType
from tidegate.model.table import TableInfo
from tidegate.schema.state import SchemaState, apply_ddl
from tidegate.schema.stored.snapshot import StoredSnapshot, TableVersion, table_info
from tidegate.source.tidb_ddl import Timeline
from tidegate.source.tidb_log import Tables, name_of
from tidegate.source.tidb_segment import SegmentLog, create_statements


def shape(table: TableInfo) -> list[object]:
    """What rows and their reading depend on; TiDB marks all BIT and YEAR columns as unsigned, SQL cannot."""
    signs = [one.type.unsigned and one.type.code not in {MysqlType.BIT, MysqlType.YEAR} for one in table.columns]
    columns = [(one.name, one.type.code, one.nullable, one.virtual) for one in table.columns]
    return [table.name, tuple(table.handle_key), *zip(columns, signs, strict=True)]


def told(snapshot: StoredSnapshot, tables: Tables, version: TableVersion) -> TableInfo:
    """The table of the statements of a snapshot in which it is alone."""
    alone = replace(snapshot, tables={version.stored.id: version})
    state = SchemaState()
    for seq, ddl in enumerate(create_statements(alone, tables, 7)):
        state, _ = apply_ddl(state, ddl, seq)
    return state.tables[name_of(version).key]


@pytest.mark.parametrize("stream", ["types", "partition", "ddl", "interleave"])
def test_definitions_survive_their_statements(tmp_path: Path, stream: str) -> None:
    """Every table of a recorded stream, behind each of its DDLs, has the same columns and handle key when its CREATE is
    followed."""
    log = SegmentLog(recorded_log(tmp_path / "log", stream))
    timeline, seen = Timeline(log, TableFilter.parse(("*.*",)), force=True), set[tuple[int, int]]()
    timeline.start(0)
    timeline.read(log.parts(0)[-1].high)
    while (stop := timeline.stop()) is not None:
        timeline.walk(stop)
        for version in timeline.tables.replicated(timeline.snapshot):
            if (version.stored.id, version.version) not in seen:
                seen.add((version.stored.id, version.version))
                wanted = table_info(version.stored, version.schema, version.version)
                assert shape(told(timeline.snapshot, timeline.tables, version)) == shape(wanted)

    assert len(seen) > 3
