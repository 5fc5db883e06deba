"""TiCDC Canal-JSON, writing: one event to the value of one message; the key is null.

    row    {"id":0,"database":…,"table":…,"pkNames":[…],"isDdl":false,"type":…,"es":ms,"ts":ms,"sql":"",
            "sqlType":{…}|null,"mysqlType":{…},"old":[{…}]|null,"data":[{…}],"_tidb":{…}}
    DDL    {"id":0,"database":…,"table":…,"pkNames":null,"isDdl":true,"type":…,"es":ms,"ts":ms,"sql":…,
            "sqlType":null,"mysqlType":null,"data":null,"old":null,"_tidb":{"commitTs":…}}
    mark   as a DDL, with "isDdl":false, "type":"TIDB_WATERMARK", empty names, "_tidb":{"watermarkTs":…}

`es` is the commit time, `ts` the clock's: the one thing that is not made of the event.  `_tidb` is the TiDB extension;
without it there are no watermarks.  Columns stand in table order, in `mysqlType` too, where TiCDC's order is random.

    old     UPDATE only; with only-output-updated-columns just what changed, which may be [{}]
    data    the new row, or the deleted one; [{}] when only handle columns are asked for and there is none
    _tidb   commitTs, then onlyHandleKey or claimCheckLocation, then rowkey (newarch)

With no column, `mysqlType` is {} in the classic dialect and null in newarch, `sqlType` null in both.  What changed is
decided by value in classic and by text in newarch: only 0.0 and -0.0 tell them apart.

Source: Canal-JSON document; recordings of both emitters.
"""

from binascii import b2a_base64
from collections.abc import Callable
from typing import Final

from tidegate.codec.canal.ddl_types import ddl_type
from tidegate.codec.canal.encode.row import CanalRow
from tidegate.codec.claim import Cut
from tidegate.codec.encoding import EncodeOptions
from tidegate.codec.go.json import EASY
from tidegate.codec.wire_table import WireTable
from tidegate.model.errors import EncodeError
from tidegate.model.event import Ddl, RowChange

_TSO_LOGICAL_BITS: Final = 18
_MAX_TABLES: Final = 4096
_NO_ROW: Final = '"sqlType":null,"mysqlType":null,"data":null,"old":null'


class CanalEncoder:
    """Events to values, one by one; tables are made ready once."""

    def __init__(self, options: EncodeOptions, now_ms: Callable[[], int]) -> None:
        self._options = options
        self._now_ms = now_ms
        self._ready: dict[tuple[int, str, str], tuple[WireTable, CanalRow]] = {}

    def row(self, row: RowChange, table: WireTable, cut: Cut, row_key: bytes | None) -> bytes:
        """Return a row; `cut` says how much of it and what its mark is. `row_key` is for output-row-key."""
        es_ms = row.es_ms if row.commit_ts is None else row.commit_ts >> _TSO_LOGICAL_BITS
        if es_ms is None:
            raise EncodeError(f"a row of {row.schema}.{row.table} has no commit_ts, which canal-json must say")
        head, body = self._row_of(row, table).texts(row, handles=cut.handles)
        text = f'{head}"es":{es_ms},"ts":{self._now_ms()},"sql":"",{body}{self._extension(row, cut, row_key)}}}'
        return _encoded(text)

    def ddl(self, ddl: Ddl) -> bytes:
        """Return a DDL; `canal_type` counts where a decoded one has it."""
        es_ms = ddl.es_ms if ddl.commit_ts is None else ddl.commit_ts >> _TSO_LOGICAL_BITS
        word = ddl.canal_type or (None if ddl.type is None else ddl_type(ddl.type))
        if es_ms is None or word is None:
            raise EncodeError(f"the DDL {ddl.query!a:.60} has no commit_ts or type, which canal-json must say")
        extension = ""
        if self._options.enable_tidb_extension:
            extension = f',"_tidb":{{"commitTs":{self._commit_ts(ddl.commit_ts)}}}'
        names = (
            f'"database":{EASY(ddl.schema)},"table":{EASY(ddl.table)},"pkNames":null,"isDdl":true,"type":{EASY(word)}'
        )
        times = f'"es":{es_ms},"ts":{self._now_ms()},"sql":{EASY(ddl.query)}'
        return _encoded(f'{{"id":0,{names},{times},{_NO_ROW}{extension}}}')

    def resolved(self, ts: int) -> bytes | None:
        """Return a watermark; None without the TiDB extension, which alone has them."""
        if not self._options.enable_tidb_extension:
            return None
        names = '"database":"","table":"","pkNames":null,"isDdl":false,"type":"TIDB_WATERMARK"'
        times = f'"es":{ts >> _TSO_LOGICAL_BITS},"ts":{self._now_ms()},"sql":""'
        return f'{{"id":0,{names},{times},{_NO_ROW},"_tidb":{{"watermarkTs":{ts}}}}}'.encode()

    def _row_of(self, row: RowChange, table: WireTable) -> CanalRow:
        key = (id(table), row.schema, row.table)
        found = self._ready.get(key)
        if found is None:
            if len(self._ready) >= _MAX_TABLES:
                self._ready.clear()
            found = self._ready[key] = table, CanalRow(row.schema, row.table, table, self._options)
        return found[1]

    def _extension(self, row: RowChange, cut: Cut, row_key: bytes | None) -> str:
        """The member `_tidb` with its comma."""
        if not self._options.enable_tidb_extension:
            return ""
        text = f',"_tidb":{{"commitTs":{self._commit_ts(row.commit_ts)}'
        if cut.only_handles:
            text += ',"onlyHandleKey":true'
        if cut.location:
            text += f',"claimCheckLocation":{EASY(cut.location)}'
        if self._options.output_row_key:
            if row_key is None:
                raise EncodeError(f"a row of {row.schema}.{row.table} without its key, which output-row-key asks for")
            text += f',"rowkey":"{b2a_base64(row_key, newline=False).decode()}"'
        return text + "}"

    @staticmethod
    def _commit_ts(commit_ts: int | None) -> int:
        if commit_ts is None:
            raise EncodeError("an event without commit_ts, which enable-tidb-extension must say")
        return commit_ts


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise EncodeError(f"a number or time with the character {text[error.start]!a}") from error
