"""Rows of mysql.tidb_ddl_job, the table that a changefeed watches for schema changes.

    job_id bigint primary key | reorg | schema_ids | table_ids | job_meta longblob | type | processing
    1                         | 2     | 3          | 4         | 5                 | 6    | 7

Its definition never goes through a job of its own, so it stands here; the ids below 2**48 are reserved for such tables.

Source: TiDB pkg/meta/metadef; the recorded definition.
"""

from typing import Final

from tidegate.kv.layout import ColumnLayout, TableLayout
from tidegate.kv.row.row import decode_row
from tidegate.model.errors import KvDecodeError
from tidegate.model.mysql import MysqlType
from tidegate.model.table import ColumnType
from tidegate.schema.job import Job, parse_job

__all__ = ["JOB_TABLE", "decode_job_row"]

_JOB_META: Final = 5
_NUMBER: Final = ColumnType(MysqlType.LONGLONG)
_TEXT: Final = ColumnType(MysqlType.BLOB)
_BYTES: Final = ColumnType(MysqlType.LONG_BLOB, charset="binary")
_TYPES: Final = {1: _NUMBER, 2: _NUMBER, 3: _TEXT, 4: _TEXT, _JOB_META: _BYTES, 6: _NUMBER, 7: _NUMBER}

JOB_TABLE: Final = TableLayout(
    id=(1 << 48) - 2,
    columns=tuple(
        ColumnLayout(column_id, kind, "binary" if kind.charset == "binary" else "utf8mb4_bin", keeps_null=True)
        for column_id, kind in _TYPES.items()
    ),
    int_handle=1,
)


def decode_job_row(key: bytes, value: bytes) -> Job:
    """Return the job in a row; KvDecodeError for a row that is none, SchemaError for a job that is none."""
    job_meta = decode_row(JOB_TABLE, key, value).columns.get(_JOB_META)
    if not isinstance(job_meta, bytes):
        raise KvDecodeError("a row of tidb_ddl_job without job_meta", "job row", 0, key)
    return parse_job(job_meta)
