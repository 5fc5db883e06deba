"""Open Protocol: framing, old and new dialects, and every example of the documents."""

import json
from typing import Any

import pytest

from tidegate.codec import DecodeOptions
from tidegate.codec.open import decode_open as decode
from tidegate.model.errors import DecodeError
from tidegate.model.event import Ddl, Delete, Event, Insert, Resolved, Update, Values, images

ROW = {"ts": 7, "scm": "s", "tbl": "t", "t": 1}
LEGACY = DecodeOptions(protocol="open-protocol", legacy=True)


def framed(*texts: bytes) -> bytes:
    """Each text behind its 8-byte length."""
    return b"".join(len(text).to_bytes(8, "big") + text for text in texts)


def key_of(*keys: object) -> bytes:
    """A message key: version and event keys."""
    return (1).to_bytes(8, "big") + framed(*(json.dumps(key).encode() for key in keys))


def read(value: object, key: object = None, **options: Any) -> Event:
    """The one event of a row message."""
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    chosen = DecodeOptions(protocol="open-protocol", **options)
    (event,) = decode(key_of(key or ROW), framed(text), chosen)
    return event


def column(code: int, value: object, flag: int | None = None) -> Any:
    """The value that a column of type `code` gives."""
    described = {"t": code, "v": value} if flag is None else {"t": code, "f": flag, "v": value}
    event = read({"u": {"c": described}})
    assert isinstance(event, Insert)
    return event.after[0]


def before_after(event: Event) -> tuple[Values | None, Values | None]:
    """Both images of a row."""
    assert not isinstance(event, Ddl | Resolved)
    return images(event)


# The logs of the document, "Examples of the Event stream output": (key, value).
DDL = {"q": "CREATE TABLE test.t1(id int primary key, val varchar(16))", "t": 3}
LOGS: list[tuple[dict[str, Any], Any, Any]] = [
    ({"ts": 415508856908021766, "scm": "test", "tbl": "t1", "t": 2}, DDL, Ddl),
    ({"ts": 415508856908021766, "t": 3}, None, Resolved),
    *(
        (
            {"ts": 415508878783938562, "scm": "test", "tbl": "t1", "t": 1},
            {"u": {"id": {"t": 3, "h": True, "v": number}, "val": {"t": 15, "v": text}}},
            (None, (number, plain)),
        )
        for number, text, plain in ((1, "YWE=", "aa"), (2, "YmI=", "bb"), (3, "Y2M=", "cc"))
    ),
    *(
        (
            {"ts": 415508881418485761, "scm": "test", "tbl": "t1", "t": 1},
            {"d": {"id": {"t": 3, "h": True, "v": number}}},
            ((number,), None),
        )
        for number in (1, 2)
    ),
    *(
        (
            {"ts": 415508881418485761, "scm": "test", "tbl": "t1", "t": 1},
            {"u": {"id": {"t": 3, "h": True, "v": number}, "val": {"t": 15, "v": text}}},
            (None, (number, plain)),
        )
        for number, text, plain in ((3, "ZGQ=", "dd"), (4, "ZWU=", "ee"))
    ),
    ({"ts": 415508881038376963, "t": 3}, None, Resolved),
]


@pytest.mark.parametrize(("key", "value", "meaning"), LOGS)
def test_example_logs(key: dict[str, Any], value: Any, meaning: Any) -> None:
    """Every log line of the document decodes, its VARCHAR in base64 as it was before 2021."""
    texts = [b""] if value is None else [json.dumps(value).encode()]
    (event,) = decode(key_of(key), framed(*texts), LEGACY)
    if meaning is Ddl:
        assert event == Ddl(schema="test", table="t1", query=DDL["q"], commit_ts=key["ts"], type=3)
    elif meaning is Resolved:
        assert event == Resolved(key["ts"])
    else:
        assert before_after(event) == meaning
        assert not isinstance(event, Ddl | Resolved)
        assert [field.handle for field in event.fields] == [True, False][: len(event.fields)]
        assert event.commit_ts == key["ts"]


TYPES = [
    (1, 1, 1), (2, 1, 1), (3, 123, 123), (4, 153.123, 153.12300109863281), (5, 153.123, 153.123), (6, None, None),
    (7, "1973-12-30 15:30:00", "1973-12-30 15:30:00"), (8, 123, 123), (9, 123, 123),
    (10, "2000-01-01", "2000-01-01"), (14, "2000-01-01", "2000-01-01"), (11, "23:59:59", "23:59:59"),
    (12, "2015-12-20 23:58:58", "2015-12-20 23:58:58"), (13, 1970, 1970), (15, "test", "test"), (253, "test", "test"),
    (16, 81, 81), (245, '{"key1": "value1"}', '{"key1": "value1"}'), (246, "129012.1230000", "129012.1230000"),
    (247, 1, 1), (248, 3, 3), (254, "test", "test"), (225, "[1,2.5]", "[1,2.5]"),
    *((code, "5rWL6K+VdGV4dA==", "测试text".encode()) for code in (249, 250, 251, 252)),
]  # fmt: skip


@pytest.mark.parametrize(("code", "wire", "value"), TYPES)
def test_example_of_each_type_code(code: int, wire: Any, value: Any) -> None:
    """The output example of every type code, without flags as it stands in the document."""
    assert column(code, wire) == value
    assert type(column(code, wire)) is type(value)


@pytest.mark.parametrize("code", [15, 253, 254])
def test_example_of_binary_strings(code: int) -> None:
    """The document's PNG header is bytes when the binary flag is set, and plain text when it is not."""
    text = r"\x89PNG\r\n\x1a\n"
    assert column(code, text, 65) == b"\x89PNG\r\n\x1a\n"
    assert column(code, text, 64) == text


def test_example_flags() -> None:
    """85 and 46 of the document mean what it says."""
    event = read({"u": {"a": {"t": 252, "f": 85, "v": ""}, "b": {"t": 3, "h": True, "f": 46, "v": 1}}})
    assert isinstance(event, Insert)
    assert [(f.flag, f.binary, f.handle, f.unsigned) for f in event.fields] == [
        (85, True, False, False),
        (46, False, True, False),
    ]


@pytest.mark.parametrize("code", [249, 250, 251, 252])
def test_blob_and_text_differ_by_the_binary_flag(code: int) -> None:
    """Base64 of TEXT gives text, of BLOB bytes; raw bytes of a TEXT survive as surrogate escapes."""
    assert column(code, "w6k=", 64) == "é"
    assert column(code, "w6k=", 65) == b"\xc3\xa9"
    assert column(code, "/w==", 64) == "\udcff"


@pytest.mark.parametrize("code", [8, 16, 248])
def test_sixty_four_bits(code: int) -> None:
    """BIGINT UNSIGNED, BIT and SET reach 2^64 - 1 and no further."""
    assert column(code, (1 << 64) - 1, 193) == (1 << 64) - 1
    with pytest.raises(DecodeError):
        column(code, 1 << 64, 193)


@pytest.mark.parametrize(
    ("code", "wire", "flag"),
    [
        (3, True, 1), (3, 1.0, 1), (3, "1", 1), (3, -1, 128), (1, 256, 1), (13, -1, 193), (247, -1, 0), (4, "1", 1),
        (4, 1e39, 1), (5, 10**400, 1), (10, 20000101, 1), (15, 1, 64), (15, "\\q", 65), (15, '"', 65),
        (252, "Y", 65), (252, "YQ==YQ==", 64), (252, "é", 64), (245, {"a": 1}, 1), (200, [1], 0), (200, True, 0),
        (-1, 1, 0), (256, 1, 0), (3, 1, -1), (3, 1, 1 << 40),
    ],
)  # fmt: skip
def test_values_of_the_wrong_kind_are_refused(code: int, wire: Any, flag: int) -> None:
    """A value that its type cannot have is a DecodeError that names the column."""
    with pytest.raises(DecodeError, match=r"'c'|Integer value"):
        column(code, wire, flag)


def test_unknown_type_code_keeps_its_value() -> None:
    """A type newer than the table loses no row."""
    assert column(222, "x", 0) == "x"
    assert column(222, 5, 0) == 5


def test_partial_old_image_is_filled() -> None:
    """What `p` lacks did not change; `{}` is an UPDATE, absence an INSERT."""
    new = {"a": {"t": 3, "f": 11, "v": 1}, "b": {"t": 3, "f": 65, "v": 2}}
    assert before_after(read({"u": new, "p": {"b": {"t": 3, "f": 65, "v": None}}})) == ((1, None), (1, 2))
    assert before_after(read({"u": new, "p": {}})) == ((1, 2), (1, 2))
    assert isinstance(read({"u": new, "p": {}}), Update)
    assert isinstance(read({"u": new}), Insert)
    assert isinstance(read({"d": new}), Delete)
    with pytest.raises(DecodeError, match="'z'"):
        read({"u": new, "p": {"z": {"t": 3, "v": 1}}})


def test_members_that_lost_their_column_are_matched_to_it() -> None:
    """The new architecture's unnamed columns are those that became NULL, in table order."""
    u = b'"u":{"i":{"t":3,"h":true,"f":11,"v":1},"a":{"t":1,"f":65,"v":null},"b":{"t":8,"f":65,"v":null}}'
    event = read(b"{" + u + b',"p":{"t":1,"f":65,"v":127,"t":8,"f":65,"v":9}}')
    assert before_after(event) == ((1, 127, 9), (1, None, None))
    event = read(b"{" + u + b',"p":{"i":{"t":3,"h":true,"f":11,"v":0},"t":8,"f":65,"v":9}}')
    assert before_after(event) == ((0, None, 9), (1, None, None))


@pytest.mark.parametrize(
    "old", [b'"t":1,"f":65,"v":1', b'"t":3,"f":65,"v":1', b'"v":1', b'"t":1,"f":65', b'"t":1,"t":1', b'"x":1']
)
def test_unnamed_members_are_never_guessed(old: bytes) -> None:
    """Two columns that fit, none that fits, or half a column: DecodeError."""
    u = b'"u":{"a":{"t":1,"f":65,"v":null},"b":{"t":1,"f":65,"v":null}}'
    with pytest.raises(DecodeError):
        read(b"{" + u + b',"p":{' + old + b"}}")


def test_last_of_repeated_members_wins() -> None:
    """The new architecture writes `ohk` twice in claim checks; Go takes the last."""
    key = b'{"ts":7,"scm":"s","tbl":"t","t":1,"ohk":true,"ohk":false,"ccl":"file:///x/y.json","ptn":5}'
    (event,) = decode((1).to_bytes(8, "big") + framed(key), framed(b'{"u":{"a":{"t":3,"h":true,"v":1}}}'))
    assert isinstance(event, Insert)
    assert (event.handle_only, event.claim_check, event.partition_id) == (False, "file:///x/y.json", 5)


def test_key_members() -> None:
    """Row id, partition and handle-only mark come from the key."""
    event = read({"d": {"a": {"t": 3, "h": True, "v": 1}}}, {**ROW, "rid": -3, "ptn": 9, "ohk": True})
    assert isinstance(event, Delete)
    assert (event.row_id, event.partition_id, event.handle_only, event.claim_check) == (-3, 9, True, None)


def test_a_message_holds_any_mix_of_events() -> None:
    """Rows of several tables, DDL and resolved events in one message; none at all, too."""
    keys = key_of(ROW, {**ROW, "tbl": "x"}, {"ts": 8, "t": 2}, {"ts": 9, "t": 3}, {"ts": 10, "t": 3})
    row = b'{"u":{"a":{"t":3,"v":1}}}'
    values = framed(row, row, b'{"q":"create database x","t":1}', b"")
    found = decode(keys, values)
    assert [type(event) for event in found] == [Insert, Insert, Ddl, Resolved, Resolved]
    assert decode(key_of(), None) == decode(key_of(), b"") == decode(key_of(), bytes(8)) == ()


@pytest.mark.parametrize("value", [None, b"", bytes(8)])
def test_resolved_value_may_be_missing(value: bytes | None) -> None:
    """A resolved event has no value, an empty one, or one of length zero; its ts may be the largest number."""
    assert decode(key_of({"ts": (1 << 64) - 1, "t": 3}), value) == (Resolved((1 << 64) - 1),)


BAD = [
    (None, None), (b"", b""), (b"\0" * 7, b""), ((2).to_bytes(8, "big"), b""),
    (key_of()[:8] + b"\0" * 3, b""), (key_of()[:8] + (1 << 63).to_bytes(8, "big"), b""),
    (key_of(ROW), b""), (key_of(ROW), framed(b"{}")), (key_of(ROW), framed(b"")), (key_of(ROW), framed(b"[]")),
    (key_of(ROW), (1 << 64).__sub__(1).to_bytes(8, "big")), (key_of(ROW), framed(b"{}", b"{}")),
    (key_of(ROW), framed(b'{"u":{},"d":{}}')), (key_of(ROW), framed(b'{"p":{}}')),
    (key_of({**ROW, "t": 4}), framed(b"{}")), (key_of({**ROW, "ts": -1}), framed(b'{"u":{}}')),
    (key_of({**ROW, "ts": 1 << 63}), framed(b'{"u":{}}')), (key_of({**ROW, "ts": True}), framed(b'{"u":{}}')),
    (key_of({"ts": 1, "t": 1}), framed(b'{"u":{}}')), (key_of({"ts": 1 << 64, "t": 3}), b""),
    (key_of({**ROW, "rid": 1 << 63}), framed(b'{"u":{}}')), (key_of({"ts": 1, "t": 3}), framed(b"x")),
    (key_of({"ts": 1, "t": 2}), framed(b'{"q":"x","t":"3"}')), (key_of({"ts": 1, "t": 2}), framed(b"")),
    (key_of({"ts": 1, "t": 2}), framed(b'{"q":"x","t":300}')), (key_of(), b"\0" * 7 + b"\1x"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value"), BAD)
def test_broken_messages_are_refused(key: bytes | None, value: bytes | None) -> None:
    """Each way to break the framing, the key or the value gives a DecodeError."""
    with pytest.raises(DecodeError) as caught:
        decode(key, value)
    assert caught.value.codec == "open-protocol"


def test_errors_name_event_and_place() -> None:
    """The second event's bad column is named with the offset of its value."""
    good, bad = b'{"u":{"a":{"t":3,"v":1}}}', b'{"u":{"a":{"t":3,"v":"x"}}}'
    with pytest.raises(DecodeError, match=r"event 1: column 'a' .*'x'") as caught:
        decode(key_of(ROW, ROW), framed(good, bad))
    assert caught.value.offset == len(framed(good)) + 8
