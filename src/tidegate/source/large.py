"""Rows too large for a message: completed from claim check files or from the upstream database.

    row with a claim check, and a storage is given    ─→ the row that its file holds
    row with its handle key alone, or a claim check   ─→ the row that the upstream had then, if one is given
      without a storage
    neither                                           ─→ `makes_whole` returns False

`WholeRows` returns rows in order and reads ahead by WINDOW rows, so that files are fetched concurrently and rows of one
table and transaction are read by one statement.

The upstream is read at the row's time with tidb_snapshot; the definition (SHOW CREATE TABLE) is that at commit_ts - 1,
as TiCDC decodes both images with it.

    image     read at           INSERT   UPDATE   DELETE      SELECT … FROM t WHERE k = %s
    before    commit_ts - 1        -        x        x        SELECT … FROM t WHERE (k1, k2) IN ((%s, %s), (%s, %s))
    after     commit_ts            x        x        -

Names are quoted, values are parameters.  ENUM, SET and BIT are selected as CAST(c AS UNSIGNED), FLOAT as CAST(c AS
DOUBLE), since a server may print a FLOAT with six digits; all others as they print.  The result is what the decoder
would have made of the whole message, but for the order of columns, which is the table's.  An UPDATE whose sender leaves
old values out arrives as an INSERT and stays one.

The connection is opened when first needed and reopened once if lost.  TLS and the server's certificate and name are
checked before the account's name is sent, unless the address asks for less.

    9006, 8055  snapshot collected      HistoryLost            no retry: the versions are gone
    1146, 1049, no row                  UpstreamRowMissing     no retry
    an error, for a ts in the future    UpstreamRowMissing     no retry: no database has committed it
    1054, 1231, 8200, …                 SchemaError            no retry: refused for good
    1102, 1366, … no name, no value     SchemaError            no retry: the message asks for what no table can have
    1045, 1142, 1193, …                 ConfigError            no retry: the account, or not a TiDB
    no TLS, a strange certificate       ConfigError            no retry: the server, or the address
    all others, and no answer           SourceError            retry later

Of the location in a claim check only the base name is used, in the given storage.  Its size is checked before it is
fetched; a missing or too large file is ClaimCheckUnavailable.  At most IN_FLIGHT_BYTES, or one file, are fetched or
waiting at a time.  Of a directory only regular files are read; object stores need obstore.  Errors show no address, as
it may hold keys.

Source: TiCDC documentation, "Send only handle keys"; TiDB documentation, "Read Historical Data Using tidb_snapshot",
"Error Codes and Troubleshooting".
"""

import errno
import os
import ssl
import stat
import time
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal, InvalidOperation
from itertools import groupby, islice
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, Protocol, TypeAlias, TypeGuard
from urllib.parse import unquote, urlsplit

import msgspec

from tidegate.codec.batch import calls_of
from tidegate.codec.canal import ColumnKind, kind_of
from tidegate.codec.canal_encode import mysql_type
from tidegate.codec.claim import claim_name, open_claim
from tidegate.codec.options import DecodeOptions
from tidegate.codec.stream import decode
from tidegate.codec.wire_table import WireColumn, WireTable, wire_table
from tidegate.expr.tokens import quote_name, quote_names
from tidegate.model.errors import (
    ClaimCheckUnavailable,
    ConfigError,
    DecodeError,
    EnvironmentFault,
    HistoryLost,
    SchemaError,
    SourceError,
    SqlError,
    TidegateError,
    UpstreamRowMissing,
    redacted_value,
)
from tidegate.model.event import Ddl, Delete, Field, Insert, Resolved, RowChange, Update, Value, Values, images
from tidegate.model.mysql import STRINGS, UNSIGNED_TYPES, MysqlType
from tidegate.model.name import qualified
from tidegate.model.table import TableInfo, TableName
from tidegate.model.tso import LOGICAL_BITS, MAX_TS
from tidegate.mysql import server_sql as sent
from tidegate.mysql.client import closed_if_it_fails, connect, driver, faults
from tidegate.mysql.server_answer import AnswerKind, answer_kind
from tidegate.objectstore.threads import ContextPool
from tidegate.schema.build import DdlContext, build_table
from tidegate.schema.parse_ddl import parse_ddl
from tidegate.schema.snapshot import Database
from tidegate.schema.statement import CreateTable
from tidegate.source.upstream_address import OPTION, parse_address

Key: TypeAlias = tuple[Value, ...]
Raw: TypeAlias = Sequence[bytes | None]

_READ_AS: Final = {
    **dict.fromkeys(UNSIGNED_TYPES, "CAST({} AS UNSIGNED)"),
    MysqlType.FLOAT: "CAST({} AS DOUBLE)",
}


class Needed(NamedTuple):
    """The keys to read for a row: the names of its handle columns and the key of each image, None for no image."""

    names: tuple[str, ...]
    before: Key | None
    after: Key | None


class Definition(NamedTuple):
    """A table's definition at a time: its columns as rows carry them, and their readers."""

    name: TableName
    ts: int
    table: WireTable
    kinds: tuple[ColumnKind, ...]

    def key_of(self, values: Values, names: Sequence[str]) -> Key:
        """Return the values of some columns."""
        indexes = {column.name: index for index, column in enumerate(self.table.columns)}
        return tuple(values[indexes[name]] for name in names)

    def read(self, raw: Raw) -> Values:
        """Return the values of one row of a `rows_query`."""
        columns = zip(self.table.columns, self.kinds, raw, strict=True)
        return tuple(None if text is None else self._value(column, kind, text) for column, kind, text in columns)

    def _value(self, column: WireColumn, kind: ColumnKind, text: bytes) -> Value:
        if kind.binary and column.type.code in STRINGS:
            return text
        try:
            return kind.read(text.decode("utf-8", "surrogateescape"))
        except DecodeError as error:
            raise SchemaError(
                f"{self.name}: column {column.name!r} ({column.type.code.name}) of the upstream at ts {self.ts}: "
                f"{error.what}"
            ) from error


def needed(row: RowChange) -> Needed:
    """Return the keys to read for `row`. Raises SchemaError for one without handle columns or commit timestamp."""
    indexes = [index for index, field in enumerate(row.fields) if field.handle]
    before, after = images(row)
    keys = [None if image is None else tuple(image[index] for index in indexes) for image in (before, after)]
    if row.commit_ts is None or not indexes or any(None in key for key in keys if key is not None):
        raise SchemaError(
            f"{row.schema}.{row.table} at ts {row.commit_ts}: a row cannot be looked up without its handle key and "
            f"commit timestamp, which the message lacks"
        )
    return Needed(tuple(row.fields[index].name for index in indexes), *keys)


def table_info(name: TableName, text: str, ts: int) -> TableInfo:
    """Return the table of the CREATE TABLE `text` that the upstream shows at `ts`. Raises SchemaError for another
    text."""
    try:
        (statement,) = parse_ddl(text, name.schema)
    except (SqlError, ValueError) as error:
        raise SchemaError(f"{name}: the upstream's definition at ts {ts} cannot be read: {error}") from error
    if not isinstance(statement, CreateTable):
        raise SchemaError(f"table {name} does not exist in the upstream at ts {ts}")
    return build_table(statement, Database(name.schema), DdlContext(ts, 0, text), 0)


def defined(name: TableName, text: str, ts: int) -> Definition:
    """Return the columns of a `table_info`, and their readers."""
    table = wire_table(table_info(name, text, ts))
    return Definition(
        name, ts, table, tuple(kind_of(mysql_type(column, full=False), False) for column in table.columns)
    )


def read_as(column: WireColumn, quoted: str) -> str:
    """Return the expression that selects a column, whose name is `quoted`: every text of a row is read by it."""
    return _READ_AS.get(column.type.code, "{}").format(quoted)


def rows_query(definition: Definition, names: Sequence[str], keys: Sequence[Key]) -> tuple[str, tuple[object, ...]]:
    """Return the statement that reads the rows with these keys, and its parameters."""
    columns = {column.name: column for column in definition.table.columns}
    unknown = [name for name in names if name not in columns]
    if unknown:
        raise SchemaError(
            f"{definition.name} has no column {unknown[0]!r} in the upstream at ts {definition.ts}, though it belongs "
            "to the handle key of its messages: is this the database that the changefeed reads?"
        )
    chosen = ", ".join(read_as(column, _doubled(column.name)) for column in columns.values())
    quoted = [_doubled(name) for name in names]
    table = f"{_doubled(definition.name.schema)}.{_doubled(definition.name.table)}"
    values = tuple(_parameter(columns[name], value) for key in keys for name, value in zip(names, key, strict=True))
    if len(keys) == 1:
        where = " AND ".join(f"{name} = %s" for name in quoted)
    else:
        row_marks = f"({', '.join(['%s'] * len(names))})" if len(names) > 1 else "%s"
        left = f"({', '.join(quoted)})" if len(names) > 1 else quoted[0]
        where = f"{left} IN ({', '.join([row_marks] * len(keys))})"
    return sent.WHOLE_ROWS.format(columns=chosen, table=table, where=where), values


def completed(row: RowChange, definition: Definition, images: Mapping[str, Values]) -> RowChange:
    """Return `row` with all columns; `images` are the complete ones, by `before` and `after`."""
    fields = _fields(row, definition)
    whole = {"fields": fields, "handle_only": False, "claim_check": None}
    match row:
        case Insert():
            return msgspec.structs.replace(row, after=images["after"], **whole)
        case Update():
            return msgspec.structs.replace(row, before=images["before"], after=images["after"], **whole)
        case Delete():
            return msgspec.structs.replace(row, before=images["before"], **whole)


def _fields(row: RowChange, definition: Definition) -> tuple[Field, ...]:
    if not any(field.mysql_type for field in row.fields):
        return definition.table.fields
    full = any("(" in field.mysql_type for field in row.fields)
    fields = []
    for column, kind in zip(definition.table.columns, definition.kinds, strict=True):
        text = mysql_type(column, full=full)
        handle = column.name in (row.pk_names or ())
        fields.append(
            Field(column.name, kind.code, mysql_type=text, unsigned=kind.unsigned, binary=kind.binary, handle=handle)
        )
    return tuple(fields)


def _parameter(column: WireColumn, value: Value) -> object:
    """A DECIMAL's text as a number: between a DECIMAL and a text MySQL compares doubles."""
    if column.type.code is not MysqlType.DECIMAL or not isinstance(value, str):
        return value
    try:
        return Decimal(value)
    except InvalidOperation as error:
        raise SchemaError(
            f"column {column.name!r} is a DECIMAL, and the key in the message is {redacted_value(value)}"
        ) from error


def _doubled(name: str) -> str:
    """A name in a statement with parameters, where %% stands for a percent sign."""
    return quote_name(name).replace("%", "%%")


GONE: Final = frozenset({9006, 8055})
ABSENT: Final = frozenset({1049, 1146})
REFUSED: Final = frozenset({1044, 1045, 1142, 1143, 1193, 1227, 1251, 1275, 1298, 3159, 8121})
_UNFIT: Final = frozenset({1059, 1064, 1102, 1103, 1166, 1267, 1292, 1300, 1366, 1525, 1690})
"""Errors of unknown names and of values that a column cannot be compared with."""
LOST: Final = frozenset({0, 2006, 2013, 2014, 4031})
"""Errors of a lost connection; 0 is PyMySQL's number for one that it closed itself."""
_CLIENT: Final = frozenset(range(2000, 3000))
"""Error numbers of the driver, not of the server."""
_NO_ANSWER, _NO_TLS = 2013, 2026
_MAX_KEY_SHOWN: Final = 200
_CLOCKS_MS: Final = 60_000
"""The largest difference between the clocks of two machines."""


class UpstreamRows:
    """Completes rows from the database at `uri`. `time_zone` is the time zone of TIMESTAMPs in messages.

    `snapshot` is the statement that moves the session to a TSO, given as its parameter."""

    def __init__(self, uri: str, *, time_zone: str = "UTC", snapshot: str = sent.AT_TS) -> None:
        self._address = parse_address(uri)
        self._zone = "+00:00" if time_zone == "UTC" else time_zone
        self._snapshot = snapshot
        self._connection: Any = None

    def whole(self, rows: Sequence[RowChange]) -> list[RowChange | TidegateError]:
        """Return `rows`, which have one table and commit_ts, with all columns, or the error of a row. Errors that
        concern all rows are raised: SourceError, HistoryLost, SchemaError, ConfigError, EnvironmentFault, and
        UpstreamRowMissing for a table that is not there."""
        first = rows[0]
        name, needs = TableName(first.schema, first.table), [needed(row) for row in rows]
        assert first.commit_ts is not None
        if not 1 < first.commit_ts <= MAX_TS:
            raise UpstreamRowMissing(
                f"{name} at ts {first.commit_ts}: there is no snapshot before that, so no changefeed sent this "
                f"message: skip it"
            )
        assert {(row.schema, row.table, row.commit_ts) for row in rows} == {(*name, first.commit_ts)}
        for again in (self._connection is not None, False):
            try:
                return self._read(name, first.commit_ts, rows, needs)
            except faults() as error:
                self.close()
                if not (again and code_of(error) in LOST):
                    raise self._error(error, name, first.commit_ts) from error
        raise AssertionError

    def close(self) -> None:
        """Close the connection; the next row opens a new one."""
        connection, self._connection = self._connection, None
        if connection is not None and connection.open:
            connection.close()

    def _read(
        self, name: TableName, ts: int, rows: Sequence[RowChange], needs: Sequence[Needed]
    ) -> list[RowChange | TidegateError]:
        self._query(self._snapshot, (ts - 1,))
        ((_, text, *_),) = self._query(sent.DEFINITION.format(table=quote_names(*name)))
        definition = defined(name, text.decode("utf-8", "surrogateescape"), ts - 1)
        before = self._images(definition, [(need.names, need.before) for need in needs if need.before is not None])
        self._query(self._snapshot, (ts,))
        after = self._images(definition, [(need.names, need.after) for need in needs if need.after is not None])
        images = {"before": (before, ts - 1), "after": (after, ts)}
        return [_whole(row, definition, need, images) for row, need in zip(rows, needs, strict=True)]

    def _images(self, definition: Definition, every: Sequence[tuple[tuple[str, ...], Key]]) -> dict[Key, Values]:
        images: dict[Key, Values] = {}
        for names in dict.fromkeys(names for names, _ in every):
            keys = list(dict.fromkeys(key for its_names, key in every if its_names == names))
            rows = [definition.read(raw) for raw in self._query(*rows_query(definition, names, keys))]
            is_single = len(keys) == 1 and len(rows) == 1
            images |= {keys[0]: rows[0]} if is_single else {definition.key_of(row, names): row for row in rows}
        return images

    def _query(self, statement: str, values: Sequence[object] = ()) -> Sequence[Sequence[Any]]:
        if self._connection is None:
            raw = dict(driver().converters.encoders)
            connection = connect(self._address.connection_options, use_unicode=False, conv=raw, sql_mode="")
            with closed_if_it_fails(connection), connection.cursor() as cursor:
                cursor.execute(sent.ZONE, (self._zone,))
            self._connection = connection
        with self._connection.cursor() as cursor:
            cursor.execute(statement, tuple(values) or None)
            rows: Sequence[Sequence[Any]] = cursor.fetchall()
            return rows

    @property
    def _server(self) -> str:
        return f"{self._address.host}:{self._address.port}"

    def _error(self, error: Exception, name: TableName, ts: int) -> TidegateError:
        code, text, where = code_of(error), text_of(error), f"{name} at ts {ts}: upstream {self._server}"
        if code in GONE:
            return HistoryLost(
                f"{where} has garbage-collected the snapshot ({code} {text}). Raise tidb_gc_life_time above the "
                f"longest lag of a reader; for this row, update it upstream so that it is sent again, or replay the "
                f"message with the whole row (dlq replay --value-file)"
            )
        if code in ABSENT:
            return UpstreamRowMissing(
                f"{where} has no such table ({code} {text}); is it the database that the changefeed reads?"
            )
        if code == 1054:
            return SchemaError(f"{where} has other columns than at ts {ts - 1} ({code} {text})")
        if code in _UNFIT:
            return SchemaError(
                f"{where} cannot look for such a row ({code} {text}): no changefeed sent this message; skip it"
            )
        if code not in LOST | _CLIENT | REFUSED and ts >> LOGICAL_BITS > time.time() * 1000 + _CLOCKS_MS:
            return UpstreamRowMissing(
                f"{where} cannot read a time in the future ({code} {text}): no changefeed sent this message; skip it"
            )
        return upstream_error(error, where, self._server, OPTION)


def _whole(
    row: RowChange, definition: Definition, need: Needed, images: Mapping[str, tuple[Mapping[Key, Values], int]]
) -> RowChange | TidegateError:
    images_of_row: dict[str, Values] = {}
    for image, key in (("before", need.before), ("after", need.after)):
        if key is None:
            continue
        rows, ts = images[image]
        if key not in rows:
            shown = ", ".join(f"{name}={redacted_value(value)}" for name, value in zip(need.names, key, strict=True))
            return UpstreamRowMissing(
                f"{definition.name} at ts {row.commit_ts}: the upstream has no row ({shown[:_MAX_KEY_SHOWN]}) at "
                f"snapshot {ts}; is it the database that the changefeed reads? Replay the message with the whole row "
                "(dlq replay --value-file), or skip it"
            )
        images_of_row[image] = rows[key]
    return completed(row, definition, images_of_row)


def tls_error(error: Exception, server: str, option: str) -> ConfigError | None:
    """Return the error of a connection that has no TLS, or whose server is not trusted; `option` holds its address."""
    if code_of(error) == _NO_TLS:
        return ConfigError(
            f"upstream {server} does not support TLS; enable it, or append ?enable-tls=false to its address, {option}, "
            f"to send rows in clear"
        )
    if isinstance(error.__context__, ssl.SSLCertVerificationError):
        return ConfigError(
            f"upstream {server} is not trusted ({error.__context__}); set ssl-ca to the authority that signed its "
            f"certificate, which must contain the host name of {option}; insecure-skip-verify=true disables the check"
        )
    return None


def upstream_error(error: Exception, where: str, server: str, option: str) -> TidegateError:
    """Return what an error of the driver means for every reader of an upstream, whose address `option` holds; `where`
    begins the text."""
    if untrusted := tls_error(error, server, option):
        return untrusted
    code, said = code_of(error), f"({code_of(error)} {text_of(error)})"
    if code in REFUSED:
        return ConfigError(
            f"{where} refuses {said}; {option} must be the TiDB of the changefeed, and the account needs SELECT, and "
            "SHOW VIEW for views, on what is read"
        )
    if answer_kind(code, text_of(error)) is AnswerKind.REFUSED:
        return SchemaError(f"{where} does not answer {said}; is it the TiDB that the changefeed reads?")
    return SourceError(f"{where} does not respond {said}; is it running, and are host and port correct?")


def text_of(error: Exception) -> str:
    """Return the words of a driver's error."""
    return str(error.args[1] if len(error.args) > 1 else error)


def code_of(error: Exception) -> int:
    """Return the number of a driver's error, that of no answer for one of the network; -1 for none."""
    if isinstance(error, OSError):
        return _NO_ANSWER
    return error.args[0] if error.args and isinstance(error.args[0], int) else -1


WORKERS: Final = 8
"""Threads that fetch files: enough to hide an object store's latency, few enough for its rate limit."""
IN_FLIGHT_BYTES: Final = 64 << 20


_ITSELF: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OF_THE_FILE: Final = frozenset({errno.EINVAL, errno.ELOOP, errno.ENAMETOOLONG, errno.ENXIO})
"""Permanent errors of a file name: it is a link, too long, a socket."""


class _Storage(Protocol):
    def size(self, name: str) -> int:
        """Return how many bytes a file has."""

    def read(self, name: str, most: int) -> bytes:
        """Return the first `most` bytes of a file."""


class _Directory:
    def __init__(self, path: Path) -> None:
        self._path = path

    def size(self, name: str) -> int:
        with self._opened(name) as file:
            return os.fstat(file.fileno()).st_size

    def read(self, name: str, most: int) -> bytes:
        with self._opened(name) as file:
            return file.read(most)

    def _opened(self, name: str) -> BinaryIO:
        """The file itself: it follows no link, and opens nothing that blocks, such as a pipe."""
        file = os.open(self._path / name, _ITSELF)
        if stat.S_ISREG(os.fstat(file).st_mode):
            return os.fdopen(file, "rb")
        os.close(file)
        raise OSError(errno.EINVAL, "not a regular file")


class _Remote:
    def __init__(self, uri: str) -> None:
        from obstore import get, head
        from obstore.exceptions import BaseError

        from tidegate.objectstore.stores import store

        self._get, self._head, self._refusals = get, head, BaseError
        with self._request():
            self._store = store(uri)

    def size(self, name: str) -> int:
        with self._request():
            return int(self._head(self._store, name)["size"])

    def read(self, name: str, most: int) -> bytes:
        body = b""
        with self._request():
            for chunk in self._get(self._store, name):
                body += bytes(chunk)
                if len(body) >= most:
                    break
        return body[:most]

    @contextmanager
    def _request(self) -> Iterator[None]:
        """Raise refusals of a store as retryable, since other credentials may help: the file is not at fault."""
        try:
            yield
        except self._refusals as away:
            raise ConnectionError from away


class _Sized(NamedTuple):
    """The size of a file to fetch, or the error that forbids it."""

    name: str
    size_bytes: int
    error: TidegateError | None = None


class ClaimReader:
    """The files of one storage. A file of more than `max_bytes` is never fetched."""

    def __init__(self, storage_uri: str, max_bytes: int) -> None:
        self._uri, self._max_bytes = storage_uri, max_bytes
        self._storage: _Storage | None = None

    def bodies(self, locations: Sequence[str]) -> Iterator[bytes | TidegateError]:
        """Return the body of each claim check, in order, or its error.

        Raises SourceError when the storage does not answer, EnvironmentFault when a library for it is missing."""
        self._storage = self._storage or self._opened()
        if len(locations) == 1:
            yield self._read(self._sized(locations[0]))
            return
        pool = ContextPool(min(WORKERS, len(locations)))
        try:
            sized = pool.map(self._sized, locations)
            for group in calls_of(sized, lambda file: 0 if file.error else file.size_bytes, most_bytes=IN_FLIGHT_BYTES):
                yield from pool.map(self._read, group)
        finally:  # the collector may close this where a thread begins, under a lock that a wait for threads would take
            pool.shutdown(wait=False, cancel_futures=True)

    def _sized(self, location: str) -> _Sized:
        assert self._storage is not None
        try:
            name = claim_name(location)
        except DecodeError as error:
            return _Sized("", 0, error)
        try:
            size_bytes = self._storage.size(name)
        except (OSError, ValueError) as away:
            return _Sized(name, 0, _lasting(name, away))
        return _Sized(name, size_bytes, self._too_large(name, size_bytes) if size_bytes > self._max_bytes else None)

    def _read(self, file: _Sized) -> bytes | TidegateError:
        assert self._storage is not None
        if file.error is not None:
            return file.error
        try:
            body = self._storage.read(file.name, self._max_bytes + 1)
        except (OSError, ValueError) as away:
            return _lasting(file.name, away)
        return body if len(body) <= self._max_bytes else self._too_large(file.name, len(body))

    def _too_large(self, name: str, size_bytes: int) -> ClaimCheckUnavailable:
        return ClaimCheckUnavailable(
            f"{name} in the claim-check storage has {size_bytes} bytes or more, but only {self._max_bytes} are "
            f"allowed: raise claim-check-max-bytes (the reader needs some eight times as much memory)"
        )

    def _opened(self) -> _Storage:
        parts = urlsplit(self._uri)
        if parts.scheme in {"", "file", "local"}:
            return _Directory(Path(unquote(parts.path)))
        try:
            return _Remote(self._uri)
        except ImportError as missing:
            raise EnvironmentFault(
                f"the claim-check storage {parts.scheme}:// needs a Python package that is not installed: {missing}"
            ) from missing
        except (OSError, ValueError) as away:
            raise _away("the claim-check storage", away) from away


def _lasting(name: str, error: Exception) -> TidegateError:
    """The permanent error of a file; raises a retryable one."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return ClaimCheckUnavailable(f"{name} is not in the claim-check storage")
    of_file = isinstance(error, OSError) and error.errno in _OF_THE_FILE
    if of_file or isinstance(error, PermissionError | IsADirectoryError | ValueError):
        return ClaimCheckUnavailable(f"{name} cannot be read from the claim-check storage ({type(error).__name__})")
    raise _away(name, error) from error


def _away(what: str, error: Exception) -> SourceError:
    return SourceError(
        f"{what} cannot be fetched: the claim-check storage does not respond "
        f"({type(error.__cause__ or error).__name__})"
    )


WINDOW: Final = 16
"""Rows to read ahead; each may have megabytes."""


class WholeRows:
    """Completes rows from the storage and the upstream that `options` name."""

    def __init__(self, options: DecodeOptions) -> None:
        self._options = options
        storage = options.claim_check_storage_uri
        self._claims = ClaimReader(storage, options.claim_check_max_bytes) if storage else None
        upstream = options.upstream_uri
        self._upstream = UpstreamRows(upstream, time_zone=options.time_zone, snapshot=sent.AT_TS) if upstream else None

    def makes_whole(self, event: object) -> TypeGuard[RowChange]:
        """Return whether `event` is an incomplete row that can be completed."""
        if not isinstance(event, Insert | Update | Delete):
            return False
        if event.claim_check is not None and self._claims is not None:
            return True
        return (event.handle_only or event.claim_check is not None) and self._upstream is not None

    def whole(self, rows: Iterable[RowChange]) -> Iterator[RowChange | TidegateError]:
        """Return each of `rows`, for which `makes_whole` holds, with all columns, or its error. Raises errors that
        concern several rows: SourceError, which may be retried, ConfigError, EnvironmentFault."""
        rest = iter(rows)
        while window := list(islice(rest, WINDOW)):
            for (claims, _), run in groupby(window, self._kind):
                together = list(run)
                if not claims:
                    yield from self._looked_up(together)
                    continue
                bodies = claims.bodies([row.claim_check or "" for row in together])
                for row, body in zip(together, bodies, strict=True):
                    yield _named(row, body) if isinstance(body, TidegateError) else _opened(row, body, self._options)

    def close(self) -> None:
        """Close the connection to the upstream."""
        if self._upstream is not None:
            self._upstream.close()

    def _kind(self, row: RowChange) -> tuple[ClaimReader | None, Hashable]:
        """The storage that has the row; or None, with the group of rows for which the upstream is queried."""
        if row.claim_check is not None and self._claims is not None:
            return self._claims, None
        return None, (row.schema, row.table, row.commit_ts)

    def _looked_up(self, rows: Sequence[RowChange]) -> Iterator[RowChange | TidegateError]:
        assert self._upstream is not None
        try:
            yield from self._upstream.whole(rows)
        except (HistoryLost, UpstreamRowMissing, SchemaError) as error:
            yield from [error] * len(rows)


def _opened(row: RowChange, body: bytes, options: DecodeOptions) -> RowChange | TidegateError:
    """The row in the file of a claim check."""
    try:
        events = decode(*open_claim(body, options), options)
    except DecodeError as broken:
        return DecodeError(f"{_name(row)}: in its claim check: {broken.what}", broken.codec, broken.offset)
    # an UPDATE of which no handle column changed is marked like an INSERT where only changed columns are sent
    if (
        len(events) == 1
        and not isinstance(event := events[0], Ddl | Resolved)
        and isinstance(event, Delete) == isinstance(row, Delete)
        and (event.schema, event.table, event.commit_ts) == (row.schema, row.table, row.commit_ts)
    ):
        return event
    return ClaimCheckUnavailable(f"{_name(row)}: its claim check contains another row")


def _named(row: RowChange, error: TidegateError) -> TidegateError:
    if isinstance(error, DecodeError):
        return DecodeError(f"{_name(row)}: {error.what}", error.codec, error.offset)
    return type(error)(f"{_name(row)}: {error}")


def _name(row: RowChange) -> str:
    return f"{qualified(row.schema, row.table)} at ts {row.commit_ts}"
