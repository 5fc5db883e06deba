"""The upstream database: rows as they were at a timestamp, over one connection of MySQL's protocol.

    rows of one table and commit_ts (source/large/complete.py has the statements)
      │ 1  SET SESSION tidb_snapshot = commit_ts - 1
      │ 2  SHOW CREATE TABLE, then SELECT of the old images
      │ 3  SET SESSION tidb_snapshot = commit_ts
      ▼ 4  SELECT of the new images

The connection is made when the first row needs it, kept, and made anew once when it turns out to be lost: a server
closes what was idle for long.  Every value comes as the bytes that the server printed, and is read by its column.

It is encrypted, and the server's certificate and name are checked, before the account's name goes out; the address may
ask for less (address.py).

    the server says                     error                  try again
    9006, 8055  snapshot collected      HistoryLost            no: what was there is gone
    1146, 1049, no row                  UpstreamRowMissing     no
    an error, for a ts to come          UpstreamRowMissing     no: no database has committed it
    1054        no such column          SchemaError            no
    1102, 1366, … no name, no value     SchemaError            no: the message asks for what no table can have
    1231, 8200, …  refused for good     SchemaError            no
    1045, 1142, 1193, …                 ConfigError            no: the account, or no TiDB
    no TLS, a strange certificate       ConfigError            no: the server, or the address
    all others, and no answer           SourceError            later

Source: TiDB documentation, "Error Codes and Troubleshooting" and "Read Historical Data Using tidb_snapshot".
"""

import ssl
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tidegate.model.errors import (
    ConfigError,
    HistoryLost,
    SchemaError,
    SourceError,
    TidegateError,
    UpstreamRowMissing,
)
from tidegate.model.event import RowChange, Values
from tidegate.model.table import TableName
from tidegate.model.tso import LOGICAL_BITS, MAX_TS
from tidegate.mysql import server_sql as sent
from tidegate.mysql.client import connect, driver, faults
from tidegate.mysql.server_answer import AnswerKind, answer_kind
from tidegate.source.large.address import parse_address
from tidegate.source.large.complete import (
    Definition,
    Key,
    Needed,
    completed,
    defined,
    definition_query,
    needed,
    rows_query,
)

_GONE: Final = frozenset({9006, 8055})
_ABSENT: Final = frozenset({1049, 1146})
_REFUSED: Final = frozenset({1044, 1045, 1142, 1143, 1193, 1227, 1251, 1275, 1298, 3159, 8121})
_UNFIT: Final = frozenset({1059, 1064, 1102, 1103, 1166, 1267, 1292, 1300, 1366, 1525, 1690})
"""Names that are none and values that a column cannot be compared with."""
_LOST: Final = frozenset({0, 2006, 2013, 2014, 4031})
"""The connection is not there any more; 0 is PyMySQL's number for one that it closed itself."""
_CLIENT: Final = frozenset(range(2000, 3000))
"""What the driver says, not the server."""
_NO_TLS: Final = 2026
_MAX_KEY_SHOWN: Final = 200
_CLOCKS_MS: Final = 60_000
"""How far the clocks of two machines may differ."""


class UpstreamRows:
    """Completes rows from the database at `uri`. `time_zone` is that in which messages have TIMESTAMPs.

    `snapshot` is the statement that moves the session to a TSO, given as its parameter."""

    def __init__(self, uri: str, *, time_zone: str = "UTC", snapshot: str = sent.AT_TS) -> None:
        self._address = parse_address(uri)
        self._zone = "+00:00" if time_zone == "UTC" else time_zone
        self._snapshot = snapshot
        self._connection: Any = None

    def whole(self, rows: Sequence[RowChange]) -> list[RowChange | TidegateError]:
        """`rows`, which are of one table and commit_ts, with all columns, or why one cannot be had.

        What concerns all rows is raised: SourceError, HistoryLost, SchemaError, ConfigError, EnvironmentFault, and
        UpstreamRowMissing for a table that is not there."""
        first = rows[0]
        name, wanted = TableName(first.schema, first.table), [needed(row) for row in rows]
        assert first.commit_ts is not None
        if not 1 < first.commit_ts <= MAX_TS:
            raise UpstreamRowMissing(
                f"{name} at ts {first.commit_ts}: no database has a snapshot before that; no changefeed sent this "
                "message: skip it"
            )
        assert {(row.schema, row.table, row.commit_ts) for row in rows} == {(*name, first.commit_ts)}
        for again in (self._connection is not None, False):
            try:
                return self._read(name, first.commit_ts, rows, wanted)
            except faults() as error:
                self.close()
                if not (again and _code(error) in _LOST):
                    raise self._error(error, name, first.commit_ts) from error
        raise AssertionError

    def close(self) -> None:
        """End the connection; the next row makes a new one."""
        connection, self._connection = self._connection, None
        if connection is not None and connection.open:
            connection.close()

    def _read(
        self, name: TableName, ts: int, rows: Sequence[RowChange], wanted: Sequence[Needed]
    ) -> list[RowChange | TidegateError]:
        self._at(ts - 1)
        ((_, text, *_),) = self._asked(definition_query(name))
        definition = defined(name, text.decode("utf-8", "surrogateescape"), ts - 1)
        before = self._images(definition, [(one.names, one.before) for one in wanted if one.before is not None])
        self._at(ts)
        after = self._images(definition, [(one.names, one.after) for one in wanted if one.after is not None])
        images = {"before": (before, ts - 1), "after": (after, ts)}
        return [_whole(row, definition, one, images) for row, one in zip(rows, wanted, strict=True)]

    def _images(self, definition: Definition, wanted: Sequence[tuple[tuple[str, ...], Key]]) -> dict[Key, Values]:
        """The rows that are there, by key."""
        found: dict[Key, Values] = {}
        for names in dict.fromkeys(names for names, _ in wanted):
            keys = list(dict.fromkeys(key for given, key in wanted if given == names))
            rows = [definition.read(raw) for raw in self._asked(*rows_query(definition, names, keys))]
            one = len(keys) == 1 and len(rows) == 1
            found |= {keys[0]: rows[0]} if one else {definition.key_of(row, names): row for row in rows}
        return found

    def _at(self, ts: int) -> None:
        self._asked(self._snapshot, (ts,))

    def _asked(self, statement: str, values: Sequence[object] = ()) -> Sequence[Sequence[Any]]:
        if self._connection is None:
            self._connection = self._connected()
        with self._connection.cursor() as cursor:
            cursor.execute(statement, tuple(values) or None)
            found: Sequence[Sequence[Any]] = cursor.fetchall()
            return found

    def _connected(self) -> Any:
        raw = dict(driver().converters.encoders)
        connection = connect(self._address.door, use_unicode=False, conv=raw, sql_mode="")
        with connection.cursor() as cursor:
            cursor.execute(sent.ZONE, (self._zone,))
        return connection

    @property
    def _place(self) -> str:
        return f"{self._address.host}:{self._address.port}"

    def _error(self, error: Exception, name: TableName, ts: int) -> TidegateError:
        """The error of ours for one of the driver's."""
        code = _code(error)
        text = str(error.args[1] if len(error.args) > 1 else error)
        where = f"{name} at ts {ts}: upstream {self._place}"
        if code in _GONE:
            return HistoryLost(
                f"{where} has collected the snapshot ({code} {text}). Raise tidb_gc_life_time above the time that a "
                "reader may lag; for this row, update it upstream so that it is sent again, or replay the message "
                "with the whole row (dlq replay --value-file)"
            )
        if code in _ABSENT:
            return UpstreamRowMissing(
                f"{where} has no such table ({code} {text}); is it the database that the changefeed reads?"
            )
        if code == _NO_TLS:
            return ConfigError(
                f"upstream {self._place} speaks no TLS; let it, or add enable-tls=false to large-message-upstream-uri, "
                "and rows travel in clear"
            )
        if isinstance(error.__context__, ssl.SSLCertVerificationError):
            return ConfigError(
                f"upstream {self._place} is not trusted ({error.__context__}); ssl-ca names the authority that signed "
                "its certificate, which must hold the host as it is written in large-message-upstream-uri; "
                "insecure-skip-verify=true asks for no proof"
            )
        if code == 1054:
            return SchemaError(f"{where} has other columns than at ts {ts - 1} ({code} {text})")
        if code in _UNFIT:
            return SchemaError(
                f"{where} cannot look for such a row ({code} {text}): no changefeed sent this message; skip it"
            )
        if code in _REFUSED:
            return ConfigError(
                f"upstream {self._place} refuses ({code} {text}); it must be the TiDB that the changefeed reads, and "
                f"the account needs SELECT on {name.schema}.*"
            )
        if code not in _LOST | _CLIENT and ts >> LOGICAL_BITS > time.time() * 1000 + _CLOCKS_MS:
            return UpstreamRowMissing(
                f"{where} cannot show a time that is still to come ({code} {text}): no changefeed sent this message; "
                "skip it"
            )
        if answer_kind(code, text) is AnswerKind.REFUSED:
            return SchemaError(f"{where} will not answer ({code} {text}); is it the TiDB that the changefeed reads?")
        return SourceError(f"{where} gives no answer ({code} {text}); is it up, and are host and port right?")


def _whole(
    row: RowChange, definition: Definition, one: Needed, images: Mapping[str, tuple[Mapping[Key, Values], int]]
) -> RowChange | TidegateError:
    """The row with its images, or the error of one that is not there."""
    found: dict[str, Values] = {}
    for image, key in (("before", one.before), ("after", one.after)):
        if key is None:
            continue
        rows, ts = images[image]
        if key not in rows:
            shown = ", ".join(f"{name}={value!r:.60}" for name, value in zip(one.names, key, strict=True))
            return UpstreamRowMissing(
                f"{definition.name} at ts {row.commit_ts}: the upstream has no row ({shown[:_MAX_KEY_SHOWN]}) at "
                f"snapshot {ts}; is it the database that the changefeed reads? Replay the message with the whole row "
                "(dlq replay --value-file), or skip it"
            )
        found[image] = rows[key]
    return completed(row, definition, found)


def _code(error: Exception) -> int:
    return error.args[0] if error.args and isinstance(error.args[0], int) else -1
