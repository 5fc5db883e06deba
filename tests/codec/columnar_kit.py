"""Events of the plain decoder and of the columnar one in a form in which they can be compared."""

import json
from collections.abc import Sequence
from typing import Any

from tidegate.codec import DecodeOptions, decode
from tidegate.codec.columnar import Batch, MessageChunk, decode_chunk
from tidegate.model.errors import DecodeError
from tidegate.model.event import Event, RowChange, images

Messages = Sequence[tuple[bytes | None, bytes | None]]
OPEN, CANAL = DecodeOptions(protocol="open-protocol"), DecodeOptions(protocol="canal-json")
OPS = {"Insert": "I", "Update": "U", "Delete": "D"}


ODD_CELLS = [
    {"id": {"t": 8, "h": True, "f": 139, "v": 1 << 64}},
    {"id": {"t": 8, "h": True, "f": 139, "v": -1}},
    {"id": {"t": 8, "h": False, "f": 139, "v": 1}},
    {"id": {"t": 8, "f": 139, "v": 1}},
    {"tiny": {"t": 1, "f": 65, "v": 256}},
    {"tiny": {"t": 1, "f": 65, "v": 1.0}},
    {"tiny": {"t": 2, "f": 65, "v": 256}},
    {"tiny": {"t": 1, "f": 65}},
    {"real": {"t": 4, "f": 65, "v": 1e39}},
    {"real": {"t": 4, "f": 65, "v": -0.0}},
    {"real": {"t": 4, "f": 65, "v": 3}},
    {"real": {"t": 4, "f": 65, "v": 0.1}},
    {"raw": {"t": 15, "f": 65, "v": 'bare"quote'}},
    {"raw": {"t": 15, "f": 65, "v": "\\u07ba\\u000a\\u0022\\u005c\\U0001f600\\n\\a"}},
    {"raw": {"t": 15, "f": 65, "v": "\\x4"}},
    {"raw": {"t": 15, "f": 65, "v": "\\x"}},
    {"raw": {"t": 15, "f": 65, "v": "\\"}},
    {"raw": {"t": 15, "f": 65, "v": "\\101"}},
    {"raw": {"t": 15, "f": 65, "v": "\\ud800"}},
    {"raw": {"t": 15, "f": 65, "v": "\\q"}},
    {"raw": {"t": 15, "f": 65, "v": "line\nfeed"}},
    {"raw": {"t": 15, "f": 65, "v": "\u7562\\\\x41"}},
    {"raw": {"t": 15, "f": 65, "v": None}},
    {"raw": {"t": 15, "f": 65, "v": ""}},
    {"blob": {"t": 252, "f": 65, "v": "YQ="}},
    {"text": {"t": 252, "f": 64, "v": "/w=="}},
    {"new": {"t": 3, "f": 65, "v": 1}},
    {'qu"ote\\': {"t": 3, "f": 65, "v": 1}},
    {"any": {"t": 6, "f": 65, "v": "x"}},
]
"""Cells of `wide` at or beyond the edge of what they can be."""

ODD_TEXTS = [
    *[("id", text) for text in ("007", "-0", "+1", " 1", "0x1f", "", "-", "4294967296", "0" * 31 + "1", "\u0661")],
    *[("f", text) for text in ("1e39", "-0", ".5", "5.", "+1", "inf", "nan", "0x1p3", "", "1e5", "1E+05", "1e00001")],
    *[("d", text) for text in ("-0", ".5", "-.5", "5.", "1e999", "1e-400", "9" * 310, "Infinity", "1_0", "\u0661")],
    *[("b", text) for text in ("\u0100", "", "\u0000\u00ff")],
    *[("n", text) for text in ("", "\ud800", "\u0000")],
]
"""Columns and texts of `canal`, likewise."""

ODD_MESSAGES = [
    {"isDdl": True},
    {"type": "UPDATE", "old": [{"id": "0"}]},
    {"type": "UPDATE", "old": None},
    {"type": "UPDATE", "old": []},
    {"type": "DELETE", "old": [{"id": "0", "f": None, "d": None, "b": None, "n": None}]},
    {"type": "TRUNCATE"},
    {"_tidb": None},
    {"_tidb": {"commitTs": 1 << 63}},
    {"_tidb": {"commitTs": 7, "onlyHandleKey": True}},
    {"pkNames": []},
    {"pkNames": None},
    {"pkNames": ["n", "id"]},
    {"data": None},
    {"data": [{"id": "1"}] * 2},
    {"data": [{"id": "1"}]},
    {"database": "else"},
    {"es": -1},
    {"sql": "select"},
    {"mysqlType": {"id": "bigint", "f": "float", "d": "double", "b": "text", "n": "varchar"}},
    {"mysqlType": {"id": "int"}},
]
"""Members of `canal` that make it another message than it looks."""


def pairs(*messages):
    return [(message.key, message.value) for message in messages]


def compact(*events):
    """An Open Protocol message of (key JSON, value JSON) events as TiCDC writes them, without a space."""
    keys, values = (
        b"".join(len(text).to_bytes(8, "big") + text for text in texts)
        for texts in zip(*[[written(one) for one in event] for event in events], strict=True)
    )
    return (1).to_bytes(8, "big") + keys, values


def written(value):
    """Compact JSON, nothing for None."""
    return b"" if value is None else json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def canal(**changed):
    """A canal-json message of one row."""
    message = {
        "id": 0,
        "database": "shop",
        "table": "t",
        "pkNames": ["id"],
        "isDdl": False,
        "type": "INSERT",
        "es": 1,
        "ts": 2,
        "sql": "",
        "sqlType": {},
        "mysqlType": {"id": "int", "f": "float", "d": "double", "b": "blob", "n": "varchar"},
        "old": None,
        "data": [{"id": "1", "f": "0.5", "d": "1e-7", "b": "\u00ff", "n": None}],
        "_tidb": {"commitTs": 7},
    }
    return None, json.dumps({**message, **changed}, separators=(",", ":")).encode()


def wide(**cells):
    """An Open Protocol row with columns of many kinds."""
    columns = {
        "id": {"t": 8, "h": True, "f": 139, "v": 1},
        "tiny": {"t": 1, "f": 65, "v": 1},
        "real": {"t": 4, "f": 65, "v": 0.5},
        "raw": {"t": 15, "f": 65, "v": "a\\x00\\\\"},
        "blob": {"t": 252, "f": 65, "v": "YQ=="},
        "text": {"t": 252, "f": 64, "v": "YQ=="},
    }
    return {"ts": 5, "scm": "shop", "tbl": "wide", "t": 1}, {"u": {**columns, **cells}}


def by_decoder(messages: Messages, options: DecodeOptions) -> list[Any]:
    """What the plain decoder makes of each message: events, or the text of its error."""
    found: list[Any] = []
    for key, value in messages:
        try:
            found.append([event_form(event) for event in decode(key, value, options)])
        except DecodeError as error:
            found.append(str(error))
    return found


def by_chunk(messages: Messages, options: DecodeOptions) -> list[Any]:
    """The same from `decode_chunk`."""
    return spread(decode_chunk(messages, options), len(messages))


def spread(chunk: MessageChunk, count: int) -> list[Any]:
    """What a chunk says of each of its messages."""
    found: list[Any] = [None] * count
    rows: dict[int, dict[int, Any]] = {}
    for batch in chunk.batches:
        for message, seq, row in batch_rows(batch):
            assert seq not in rows.setdefault(message, {})
            rows[message][seq] = row
    for message, events in rows.items():
        assert sorted(events) == list(range(len(events)))
        found[message] = [events[seq] for seq in sorted(events)]
    for one in chunk.rest:
        assert found[one.message] is None
        found[one.message] = str(one.error) if one.error is not None else [event_form(event) for event in one.events]
    return found


def batch_rows(batch: Batch) -> list[tuple[int, int, Any]]:
    """(message, seq, form) of each row."""
    befores = list(zip(*(column.to_pylist() for column in batch.before.columns), strict=True))
    afters = list(zip(*(column.to_pylist() for column in batch.after.columns), strict=True))
    old, new = iter(befores), iter(afters)
    found = []
    for at, op in enumerate(batch.op.to_pylist()):
        before = next(old) if op != "I" else None
        after = next(new) if op != "D" else None
        head = op, batch.schema, batch.table, batch.commit_ts[at].as_py(), batch.partition_id[at].as_py()
        form = (*head, batch.pk_names, image_form(batch.fields, before), image_form(batch.fields, after))
        found.append((batch.message[at].as_py(), batch.seq[at].as_py(), form))
    assert next(old, None) is None
    assert next(new, None) is None
    return found


def event_form(event: Event) -> Any:
    """An event; a row without the order of its columns and without what columns do not carry."""
    if not isinstance(event, RowChange) or event.handle_only or event.claim_check:
        return event
    before, after = images(event)
    head = OPS[type(event).__name__], event.schema, event.table, event.commit_ts, event.partition_id
    return (*head, event.pk_names, image_form(event.fields, before), image_form(event.fields, after))


def image_form(fields: Any, values: Any) -> Any:
    """Field and value of each column by name; repr tells -0.0 from 0.0 and 1 from 1.0."""
    if values is None:
        return None
    return {field.name: (field, repr(value)) for field, value in zip(fields, values, strict=True)}
