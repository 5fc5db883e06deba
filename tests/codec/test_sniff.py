"""Telling the configuration of a sender from its messages."""

import gzip
import random
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.codec.encode_rows import INT, TABLE, TEXT, TS, encoder, insert, only
from tests.golden.codec_cases import DATA, Case, cases, sampled, variants
from tidegate.codec.options import DecodeOptions
from tidegate.codec.sniff import KEYS, Sniffed, merge, sniff, sniff_all
from tidegate.codec.stream import decode, read_frames
from tidegate.codec.wire_table import WireColumn, WireTable
from tidegate.model.errors import DecodeError
from tidegate.model.event import Ddl, Insert, Resolved

HANDLING = "large-message-handle-option"
UPDATED = "only-output-updated-columns"
WATERMARK = b'{"id":0,"type":"TIDB_WATERMARK","_tidb":{"watermarkTs":7}}'


def truth(case: Case) -> dict[str, str]:
    """Every setting that the recording of a case was made with."""
    variant = case.variant
    found = {
        "dialect": "newarch" if case.emitter == "codec_newarch" else "classic",
        "large-message-handle-compression": case.options.compression,
        HANDLING: "handle-key-only" if "handle_key_only" in variant else "none",
        UPDATED: "true" if "updated" in variant or "compatible" in variant else "false",
        "delete-only-output-handle-key-columns": "true" if "delete_handle_key" in variant else "false",
    }
    if "claim" in variant:
        found[HANDLING] = "claim-check"
    if case.open_protocol:
        return found | {"output-old-value": "false" if "no_old_value" in variant else "true"}
    extended = any(word in variant for word in ("tidb_ext", "key_only", "snappy", "lz4", "claim_check"))
    return found | {
        "enable-tidb-extension": "true" if extended else "false",
        "content-compatible": "true" if "compatible" in variant else "false",
        "output-row-key": "false",
    }


@pytest.mark.parametrize("path", sampled(4, 5), ids=lambda path: "/".join(path.parts[-3:]))
def test_recordings_are_recognised_and_never_wrongly(path: Path) -> None:
    """No message of a recording proves what is not so; all together prove the protocol, and nothing stays mixed."""
    messages = []
    for case in cases(path):
        told = truth(case)
        for key, value in case.messages:
            found = sniff(key, value)
            assert found.protocol == case.options.protocol
            assert dict(found.settings).items() <= told.items()
            assert (found.mixed, found.wrapped) == ((), False)
            messages.append((key, value))
    if not messages:
        return
    whole = sniff_all(messages)
    told = truth(case)
    assert dict(whole.settings).items() <= told.items()
    assert whole.compression == case.options.compression
    assert whole.decode_options().protocol == case.options.protocol
    wanted = {"dialect"} if case.open_protocol else {"enable-tidb-extension", "content-compatible"}
    assert wanted <= dict(whole.settings).keys()
    assert set(whole.unknown) == set(KEYS[whole.protocol]) - dict(whole.settings).keys()
    if told[HANDLING] != "none":
        assert whole.get(HANDLING) == told[HANDLING]


@pytest.mark.parametrize("path", [p for p in variants() if "claim_check" in p.name], ids=lambda path: path.name)
def test_files_of_claim_checks(path: Path) -> None:
    """The file of a claim check is recognised by the message in it; a raw one is a message like any other."""
    for case in cases(path):
        for body in case.files.values():
            found = sniff(None, body)
            assert found.protocol == case.options.protocol
            assert found.wrapped is not case.options.claim_check_raw_value
            assert dict(found.settings).items() <= truth(case).items()


@pytest.mark.parametrize("name", ["open/p0", "open/p1", "canal/p0", "canal/p2"])
def test_workload(name: str) -> None:
    """The first messages of a recorded partition tell enough to decode it."""
    with gzip.open(DATA / "workload" / f"{name}.bin.gz") as file:
        messages = list(islice(read_frames(file), 64))
    found = sniff_all(messages)
    assert found.protocol.startswith(name.partition("/")[0])
    assert found.compression == "none"


@pytest.mark.parametrize("protocol", ["open-protocol", "canal-json"])
@pytest.mark.parametrize("compression", ["none", "snappy", "lz4"])
def test_an_insert_settles_little(protocol: str, compression: str) -> None:
    """What one message cannot tell is in `unknown`, not guessed."""
    made = encoder(protocol, large_message_handle_compression=compression)
    found = sniff(*only((*made.append(insert(), TABLE), *made.flush()))[:2])
    assert (found.protocol, found.compression) == (protocol, compression)
    assert {UPDATED, HANDLING, "delete-only-output-handle-key-columns"} <= set(found.unknown)


@pytest.mark.parametrize("kind", ["ddl", "resolved"])
@pytest.mark.parametrize("compression", ["snappy", "lz4"])
def test_other_events(kind: str, compression: str) -> None:
    """DDLs tell the compression; a resolved event of Open Protocol has no value to tell it by."""
    drop = Ddl(schema="s", table="t", query="DROP TABLE t", commit_ts=TS, type=4)
    event = Resolved(TS) if kind == "resolved" else drop
    open_found = sniff(*only(encoder("open", large_message_handle_compression=compression).append(event))[:2])
    settings: dict[str, Any] = {"large_message_handle_compression": compression, "enable_tidb_extension": "true"}
    canal_found = sniff(*only(encoder("canal", **settings).append(event))[:2])
    assert open_found.compression == (compression if kind == "ddl" else None)
    assert (canal_found.compression, canal_found.get("enable-tidb-extension")) == (compression, "true")


@pytest.mark.parametrize(
    ("text", "classic", "newarch"),
    [
        ("<", "classic", "newarch"),
        ("\u2028", "classic", "newarch"),
        ("\b", "classic", None),
        ("\\b \\u003c", None, None),
        ("plain", None, None),
    ],
)
def test_escapes_tell_the_dialect(text: str, classic: str | None, newarch: str | None) -> None:
    """Escapes that only one emitter writes prove it; the text of an escape does not."""
    columns = (WireColumn("a", INT, 11), WireColumn("b", TEXT, 64))
    table = WireTable(columns, ("a",))
    row = Insert(schema="s", table="t", fields=table.fields, after=(1, text), commit_ts=TS)
    found = []
    for dialect in ("classic", "newarch"):
        made = encoder("open", dialect=dialect)
        found.append(sniff(*only((*made.append(row, table), *made.flush()))[:2]).dialect)
    assert found == [classic, newarch]


def test_official_canal() -> None:
    """Another order of members, or an id that is not 0, is not TiCDC's; ENUM names need the legacy reading."""
    value = (
        b'{"data":[{"id":"1","e":"a"}],"database":"d","es":1,"id":3,"isDdl":false,"mysqlType":{"id":"int(11)",'
        b'"e":"enum(\'a\',\'b\')"},"old":null,"pkNames":["id"],"sql":"","sqlType":{},"table":"t","ts":2,"type":"INSERT"}'
    )
    with pytest.raises(DecodeError):
        sniff(None, b'{"value":"e30="}')
    found = sniff(None, value.replace(b'"e":"a"', b'"e":"1"'))
    assert (found.dialect, found.decode_options().legacy) == ("official", True)


def test_contradictions_are_mixed() -> None:
    """Settings that changed on the way are named; protocols that changed are an error."""
    one = Sniffed("canal-json", (("enable-tidb-extension", "true"), (UPDATED, "true")))
    other = Sniffed("canal-json", (("enable-tidb-extension", "false"),))
    both = merge(one, other, one)
    assert both == Sniffed("canal-json", ((UPDATED, "true"),), ("enable-tidb-extension",))
    with pytest.raises(DecodeError, match="open-protocol"):
        merge(one, Sniffed("open-protocol"))
    torn = Sniffed("canal-json", (), ("large-message-handle-compression",))
    with pytest.raises(DecodeError, match="several values"):
        torn.decode_options()


def test_what_cannot_be_read_is_passed_over_unless_it_is_all() -> None:
    """One good message among bad ones is enough; none is the first one's error."""
    assert sniff_all([(None, b"{"), (None, WATERMARK), (None, None)]).protocol == "canal-json"
    with pytest.raises(DecodeError, match="message"):
        sniff_all([(None, b"{"), (None, None)])
    with pytest.raises(DecodeError, match="no message"):
        sniff_all([])


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\x00\x01\x02",
        b"\x04\x22\x4d\x18",
        b"I,t,d,1\r\n",
        b'{"version":1,"database":"d","table":"t","type":"INSERT","commitTs":1,"data":{"a":"1"}}',
        b'{"database":"d","table":"t","type":"insert","ts":1,"data":{"a":1}}',
        b'{"payload":{"op":"c"},"schema":{}}',
        b'{"key":null,"value":"AA=="}',
        b'{"type":"TIDB_WATERMARK","_tidb":{"watermarkTs":7},"x":' + b"9" * 5000 + b"}",
        b'{"type":"TIDB_WATERMARK","_tidb":{"watermarkTs":7},"x":' + b"[" * 100_000,
    ],
    ids=["empty", "bytes", "lz4", "csv", "simple", "maxwell", "debezium", "claim", "digits", "deep"],
)
def test_other_formats_are_errors(value: bytes) -> None:
    """What is neither protocol is a DecodeError, whatever it is."""
    with pytest.raises(DecodeError):
        sniff(None, value)


def test_damaged_messages_fail_in_one_way() -> None:
    """Mutations of recorded messages are recognised or refused, and nothing else happens."""
    chance = random.Random(5)
    pool = [m for path in variants()[::9] for case in list(cases(path))[:3] for m in case.messages[:2]]
    for _ in range(1500):
        key, value = chance.choice(pool)
        parts = [bytearray(key or b""), bytearray(value or b"")]
        for part in parts:
            for _ in range(chance.randrange(3) if part else 0):
                part[chance.randrange(len(part))] = chance.randrange(256)
        try:
            sniff(*map(bytes, parts))
        except DecodeError:
            continue


def message(protocol: str, **settings: object) -> tuple[bytes | None, bytes]:
    """A message of these settings."""
    writer = encoder(protocol, **{"enable_tidb_extension": True, **settings})
    (found,) = (*writer.append(insert(), TABLE), *writer.flush())
    return found.key, found.value


COMPRESSED = "large-message-handle-compression=lz4"


@pytest.mark.parametrize(
    ("found", "read", "told"),
    [
        (message("canal-json"), DecodeOptions(protocol="open-protocol"), "protocol=canal-json"),
        (message("open-protocol"), DecodeOptions(protocol="canal-json"), "protocol=open-protocol"),
        (message("canal-json", large_message_handle_compression="lz4"), DecodeOptions(protocol="canal"), COMPRESSED),
        (
            message("open-protocol", large_message_handle_compression="lz4"),
            DecodeOptions(protocol="canal-json"),
            f"protocol=open-protocol and {COMPRESSED}",
        ),
        ((message("open-protocol")[0], None), DecodeOptions(protocol="open-protocol"), "(a tombstone: "),
        ((b"k", b""), DecodeOptions(protocol="open-protocol"), "(a tombstone: "),
        ((None, None), DecodeOptions(protocol="canal-json"), "(a tombstone: "),
    ],
)
def test_an_error_says_what_would_read_the_message(
    found: tuple[bytes | None, bytes | None], read: DecodeOptions, told: str
) -> None:
    """A message of another protocol or compression is told by the settings that read it, a tombstone by its name."""
    with pytest.raises(DecodeError) as refused:
        decode(*found, read)

    assert told in str(refused.value)


@pytest.mark.parametrize("value", [b"{", b"I,t,1\r\n", b"\x00\x01", b"{}"])
def test_nothing_is_made_up_for_others(value: bytes) -> None:
    """What nobody reads gets no advice."""
    for protocol in KEYS:
        with pytest.raises(DecodeError) as refused:
            decode(None, value, DecodeOptions(protocol=protocol))
        assert "(a message of" not in str(refused.value)
