"""Functions on Spark DataFrames: net changes by key, decoding of messages, and registration of Tidegate's formats.

`net_changes` keeps the last image of each key, for a MERGE of the user's own.  A row that exists afterwards is
`upsert`, a removed one is `delete`:

    insert 7, update 7, delete 8, insert 8        ──►    7 upsert, 8 upsert
    update of 9, whose key becomes 10             ──►    9 delete, 10 upsert

`decode_frame` applies codec.decode to a DataFrame of messages from any source:

    (key binary, value binary, …)  ──mapInArrow──►  one row per event, one row per undecodable message

    kind          row, ddl, resolved or error
    op            INSERT, UPDATE, DELETE (rows only)
    schema, table, commit_ts
    before, after map<string,string>: values as text, binaries as base64, NULL as NULL
    event         the whole event as JSON, as `tidegate decode` prints it
    error_code, error, error_offset, raw_key, raw_value    the reason, and the message itself

Nothing is lost: an undecodable message is a row, too.

`register` adds the formats `tidegate` and `tidegate-lake` to a session, classic or Connect:

    tidegate.register(spark)
    spark.readStream.format("tidegate").option("table", "shop.orders").load("/srv/lake")
    spark.sql("create temporary view orders using `tidegate-lake` options (path '/srv/lake', table 'shop.orders')")

Tidegate must be installed where Spark's processes run.  Spark starts the Python of the driver and of the executors by
one name, that of the executors (`./tidegate/bin/python`, say).  If that does not exist here, the sources are registered
with the Python that runs this, and the session keeps that of the executors.
"""

import base64
import shutil
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tidegate.codec import decode
from tidegate.codec.neutral import event_object, render
from tidegate.codec.options import DecodeOptions
from tidegate.expr.tokens import quote_name
from tidegate.model.errors import ConfigError, DecodeError, EnvironmentFault
from tidegate.model.event import Ddl, Event, Resolved, RowChange, Value, Values, images
from tidegate.sink.delta.options import CHANGE_SEQ, CHANGE_TIME, CHANGE_TS, CHANGE_TYPE
from tidegate.sink.delta.rows import COMES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OP: Final = "_op"
_LAST: Final = "_tidegate_last"


def net_changes(changes: "DataFrame", key: Sequence[str]) -> "DataFrame":
    """Return one row per key of `changes`: the columns of the table and `_op`, `upsert` or `delete`.

    Parameters:
        changes: rows of the format `tidegate`, or of a lake of mode changelog
        key: names of columns

    Raises ConfigError: a column of the key is missing

    >>> reader = spark.read.format("tidegate").option("table", "shop.orders").option("state", "/srv/query")
    >>> changes = reader.load("tidb:///srv/log")
    >>> sorted(tuple(row) for row in tidegate.net_changes(changes, ["id"]).collect())
    [(1, 'tea', 'upsert'), (2, 'milk', 'upsert')]"""
    from pyspark.sql import functions

    unknown = [name for name in key if name not in changes.columns]
    if unknown or not key:
        raise ConfigError(f"the key must name columns of the changes; they are: {', '.join(changes.columns)}")
    columns = {name: functions.col(quote_name(name)) for name in changes.columns}
    comes = columns[CHANGE_TYPE].isin(*COMES)
    order = functions.struct(columns[CHANGE_TS], columns[CHANGE_SEQ], comes)
    op = functions.when(comes, "upsert").otherwise("delete").alias(OP)
    mine = [name for name in changes.columns if name not in {CHANGE_TYPE, CHANGE_TS, CHANGE_SEQ, CHANGE_TIME}]
    row = functions.struct(*(columns[name] for name in mine), op)
    last = changes.groupBy(*(columns[name] for name in key)).agg(functions.max_by(row, order).alias(_LAST))
    return last.select(*(functions.col(f"{_LAST}.{quote_name(name)}").alias(name) for name in (*mine, OP)))


EVENT_DDL: Final = (
    "kind string, op string, schema string, table string, commit_ts bigint, before map<string,string>, "
    "after map<string,string>, event string, error_code string, error string, error_offset bigint, raw_key binary, "
    "raw_value binary"
)
TEXTS: Final = pa.map_(pa.string(), pa.string())
EVENT_SCHEMA: Final = pa.schema(
    [
        ("kind", pa.string()),
        ("op", pa.string()),
        ("schema", pa.string()),
        ("table", pa.string()),
        ("commit_ts", pa.int64()),
        ("before", TEXTS),
        ("after", TEXTS),
        ("event", pa.string()),
        ("error_code", pa.string()),
        ("error", pa.string()),
        ("error_offset", pa.int64()),
        ("raw_key", pa.binary()),
        ("raw_value", pa.binary()),
    ],
)


def decode_frame(frame: Any, *, protocol: str, key: str = "key", value: str = "value", **options: Any) -> Any:
    """Return the events of a DataFrame of Kafka messages, batch or streaming, as rows of EVENT_DDL.
    Undecodable messages become rows of kind "error" that hold the message.

    Parameters:
        frame: the messages
        protocol: `open-protocol` or `canal-json`
        key: the column of keys
        value: the column of values
        options: further fields of `codec.DecodeOptions` (`compression="snappy"`)

    Raises ConfigError: a column is missing, or an option is unknown

    >>> message = b'{"id":0,"database":"","table":"","isDdl":false,"type":"TIDB_WATERMARK","_tidb":{"watermarkTs":7}}'
    >>> messages = spark.createDataFrame([(None, message)], "key binary, value binary")
    >>> tidegate.decode(messages, protocol="canal-json").select("kind", "commit_ts").collect()
    [Row(kind='resolved', commit_ts=7)]"""
    for name in (key, value):
        if name not in frame.columns:
            raise ConfigError(f"the DataFrame has no column {name!r}; it has {', '.join(frame.columns)}")
    from tidegate.spark.session import check_session

    chosen = DecodeOptions(protocol=protocol, **options)
    check_session(frame.sparkSession)
    return frame.select(key, value).mapInArrow(partial(decode_batches, options=chosen), EVENT_DDL)


def decode_batches(batches: Iterable[pa.RecordBatch], options: DecodeOptions) -> Iterator[pa.RecordBatch]:
    """Decode (key, value) batches into event rows, batch by batch; runs in executors."""
    for batch in batches:
        pairs = zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
        rows = [row for key, value in pairs for row in _rows(key, value, options)]
        yield pa.RecordBatch.from_pylist(rows, schema=EVENT_SCHEMA)


def _rows(key: bytes | None, value: bytes | None, options: DecodeOptions) -> Iterator[dict[str, Any]]:
    try:
        events = decode(key, value, options)
    except DecodeError as broken:
        reason = {"error_code": broken.code, "error": str(broken), "error_offset": broken.offset}
        yield {"kind": "error", **reason, "raw_key": key, "raw_value": value}
        return
    for event in events:
        yield {**_described(event), "event": render(event_object(event)).decode()}


def _described(event: Event) -> dict[str, Any]:
    match event:
        case Resolved():
            return {"kind": "resolved", "commit_ts": min(event.ts, 2**63 - 1)}
        case Ddl():
            return {"kind": "ddl", "schema": event.schema, "table": event.table, "commit_ts": event.commit_ts}
        case _:
            before, after = (_texts(event, image) for image in images(event))
            named = {"schema": event.schema, "table": event.table, "commit_ts": event.commit_ts}
            return {"kind": "row", "op": type(event).__name__.upper(), **named, "before": before, "after": after}


def _texts(row: RowChange, image: Values | None) -> list[tuple[str, str | None]] | None:
    if image is None:
        return None
    return [(field.name, _text(value)) for field, value in zip(row.fields, image, strict=True)]


def _text(value: Value) -> str | None:
    match value:
        case None:
            return None
        case bytes():
            return base64.b64encode(value).decode()
        case str():
            return value.encode("utf-8", "replace").decode()
        case _:
            return repr(value)


PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
NO_SOURCES: Final = (
    "Spark {} has no Python Data Sources, which begin with 4.0. What serves there: lake.table(name, spark) and "
    "lake.sql(text, spark), also of lake.live(), for tables; a lake of mode changelog, read so or by Delta, and "
    "tidegate.net_changes for changes; tidegate.decode for a topic"
)


def register(spark: Any) -> None:
    """Register the formats `tidegate` and `tidegate-lake`, and let Spark push its filters down, from 4.1 on.

    Parameters:
        spark: a session, classic or Connect

    Raises EnvironmentFault: the session cannot run them; names the setting to add, or what serves instead

    >>> tidegate.register(spark)
    >>> spark.read.format("tidegate-lake").option("table", "shop.orders").load("/srv/lake").count()
    2"""
    from tidegate.spark.session import WORKERS_PYTHON, check_session, find_python, is_connect
    from tidegate.spark.versions import is_3

    if is_3(spark):
        raise EnvironmentFault(NO_SOURCES.format(spark.version))
    from tidegate.lakes.data_source import ChangesSource, LakeSource

    check_session(spark)
    spark.conf.set(PUSHDOWN, "true")
    context: Any = None if is_connect(spark) else spark.sparkContext
    executors = None if context is None else context.pythonExec
    if executors is not None and shutil.which(executors) is None:  # what is registered is planned on this machine
        spark.conf.set(WORKERS_PYTHON, executors)
        context.pythonExec = str(find_python())
    try:
        for source in (ChangesSource, LakeSource):
            spark.dataSource.register(source)
    finally:
        if context is not None:
            context.pythonExec = executors
