"""Topics made to be heavy: many rows, wide rows, long transactions; in either protocol, as TiCDC writes them.

    Writer("open" | "canal")   .ddl .resolved .inserts .update .delete  ->  Frame (key, value)

Every table here is `(id BIGINT PRIMARY KEY, amount INT, note LONGTEXT)`, so that sums tell whether all has come.
"""

import json
import struct
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from tidegate_upstream.demo.recorded import Frame

SCHEMA = "mem"
BEGIN_MS = 1_795_224_127_000
OPEN_KEY = struct.pack(">Q", 1)
CREATE = "CREATE TABLE `{}` (`id` BIGINT PRIMARY KEY, `amount` INT, `note` LONGTEXT)"
CANAL_TYPES = '"sqlType":{"id":-5,"amount":4,"note":2005},"mysqlType":{"id":"bigint","amount":"int","note":"longtext"}'
LONGEST: Mapping[str, int] = {"open": 7_860_000, "canal": 10_480_000}
"""Characters of a note whose message just stays within TiCDC's 10 MiB; open protocol writes LONGTEXT as base64."""


def ts_at(ms: int) -> int:
    """A TSO that many milliseconds after the beginning."""
    return BEGIN_MS + ms << 18


class Row(NamedTuple):
    """One row; `note` is plain ASCII, so that canal-json holds it as it is."""

    id: int
    amount: int
    note: str


@dataclass(frozen=True)
class Writer:
    """Messages of one protocol."""

    kind: str

    def ddl(self, ts: int, table: str, query: str) -> Frame:
        """A DDL; `table` is empty for one of the database."""
        if self.kind == "open":
            named = {"tbl": table} if table else {}
            head = {"ts": ts, "scm": SCHEMA, **named, "t": 2}
            return _framed([json.dumps(head)], [json.dumps({"q": query, "t": 3 if table else 1})])
        body = f'"sql":{json.dumps(query)},"sqlType":null,"mysqlType":null,"data":null,"old":null'
        return b"", _canal(table, "CREATE" if table else "QUERY", ts, body, ddl=True).encode()

    def resolved(self, ts: int) -> Frame:
        """A watermark."""
        if self.kind == "open":
            return _framed([f'{{"ts":{ts},"t":3}}'], [""])
        body = f'"sql":"","sqlType":null,"mysqlType":null,"data":null,"old":null,"_tidb":{{"watermarkTs":{ts}}}'
        text = f'{{"id":0,"database":"","table":"","pkNames":null,"isDdl":false,"type":"TIDB_WATERMARK",{body}}}'
        return b"", text.encode()

    def inserts(self, ts: int, table: str, rows: Iterable[Row], *, a_message: int = 16) -> Iterator[Frame]:
        """New rows of one transaction; open protocol puts several into a message."""
        waiting = iter(rows)
        while some := list(islice(waiting, a_message if self.kind == "open" else 1)):
            yield self._changes(ts, table, "INSERT", [(None, row) for row in some])

    def update(self, ts: int, table: str, old: Row, new: Row) -> Frame:
        """One changed row, with its old image."""
        return self._changes(ts, table, "UPDATE", [(old, new)])

    def delete(self, ts: int, table: str, old: Row) -> Frame:
        """One row that is gone."""
        return self._changes(ts, table, "DELETE", [(old, None)])

    def _changes(self, ts: int, table: str, kind: str, rows: Sequence[tuple[Row | None, Row | None]]) -> Frame:
        if self.kind == "open":
            head = f'{{"ts":{ts},"scm":"{SCHEMA}","tbl":"{table}","t":1}}'
            return _framed([head] * len(rows), [_open_row(old, new) for old, new in rows])
        ((old, new),) = rows
        shown = new or old
        assert shown is not None
        before = f"[{_canal_row(old)}]" if old and new else "null"
        body = f'"sql":"",{CANAL_TYPES},"old":{before},"data":[{_canal_row(shown)}]'
        return b"", _canal(table, kind, ts, body).encode()


def begin(writer: Writer, tables: Sequence[str]) -> list[Frame]:
    """What stands first in every partition: the database and its tables."""
    frames = [writer.ddl(ts_at(0), "", f"CREATE DATABASE `{SCHEMA}`")]
    frames += [writer.ddl(ts_at(1), table, CREATE.format(table)) for table in tables]
    return [*frames, writer.resolved(ts_at(2))]


def _framed(heads: Iterable[str], bodies: Iterable[str]) -> Frame:
    return OPEN_KEY + b"".join(map(_sized, heads)), b"".join(map(_sized, bodies))


def _sized(text: str) -> bytes:
    return struct.pack(">Q", len(text)) + text.encode()


def _open_row(old: Row | None, new: Row | None) -> str:
    if new is None:
        assert old is not None
        return f'{{"d":{_open_image(old)}}}'
    before = f',"p":{_open_image(old)}' if old else ""
    return f'{{"u":{_open_image(new)}{before}}}'


def _open_image(row: Row) -> str:
    return (
        f'{{"id":{{"t":8,"h":true,"f":11,"v":{row.id}}},"amount":{{"t":3,"f":64,"v":{row.amount}}},'
        f'"note":{{"t":251,"f":64,"v":"{b64encode(row.note.encode()).decode()}"}}}}'
    )


def _canal(table: str, kind: str, ts: int, body: str, *, ddl: bool = False) -> str:
    ms, keys = ts >> 18, "null" if ddl else '["id"]'
    return (
        f'{{"id":0,"database":"{SCHEMA}","table":"{table}","pkNames":{keys},"isDdl":{str(ddl).lower()},'
        f'"type":"{kind}","es":{ms},"ts":{ms},{body},"_tidb":{{"commitTs":{ts}}}}}'
    )


def _canal_row(row: Row) -> str:
    return f'{{"id":"{row.id}","amount":"{row.amount}","note":"{row.note}"}}'
