"""Which messages events become: cuts, sizes, and rows that are too large."""

import json
import pickle

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.codec.encode_rows import NO_KEY, TABLE, TS, Claims, delete, encoder, insert, key_and_value, only, update
from tidegate.codec import BatchEncoder, DecodeOptions, EncodeOptions, Message, decode
from tidegate.codec.batch import MessageKind, join_for_storage
from tidegate.codec.claim import claim_location, open_claim
from tidegate.codec.compression import compress, decompress
from tidegate.model.errors import ConfigError, EncodeError, HandleKeyMissing, MessageTooLarge
from tidegate.model.event import Ddl, Delete, Insert, Resolved, Update

DDL = Ddl(schema="s", table="t", query="ALTER TABLE t", commit_ts=TS, type=5)
CLAIM = {"large_message_handle_option": "claim-check", "claim_check_storage_uri": "s3://b/dir/?key=secret"}
CANAL_CLAIM = {**CLAIM, "enable_tidb_extension": True}
BIG = "b" * 1000


def test_an_open_message_waits_for_more() -> None:
    """A batch is told when it is full, by rows or by bytes, and at the end by flush."""
    one = encoder(max_batch_size=2)
    assert one.append(insert(1)) == one.append(insert(2)) == ()
    done = only(one.append(insert(3)))
    assert (done.rows, done.kind) == (2, MessageKind.ROW)
    assert only(one.flush()).rows == 1
    assert one.flush() == ()


def test_a_batch_is_cut_at_the_exact_byte() -> None:
    """Two rows share a message when key, value and the record's 36 bytes just fit, and not one byte below."""
    whole = encoder()
    whole.append(insert(1))
    whole.append(insert(2))
    size = only(whole.flush()).size
    fits, cut = encoder(max_message_bytes=size), encoder(max_message_bytes=size - 1)
    assert [message.rows for message in (*fits.append(insert(1)), *fits.append(insert(2)), *fits.flush())] == [2]
    assert [message.rows for message in (*cut.append(insert(1)), *cut.append(insert(2)), *cut.flush())] == [1, 1]


def test_batches_have_a_limit_of_their_own() -> None:
    """A row larger than the batch limit and within max-message-bytes is a message alone."""
    one = BatchEncoder(EncodeOptions(protocol="open-protocol", dialect="newarch", max_batched_bytes=500))
    messages = [*one.append(insert(1)), *one.append(insert(2, BIG)), *one.append(insert(3)), *one.flush()]
    assert [message.rows for message in messages] == [1, 1, 1]


@pytest.mark.parametrize("event", [DDL, Resolved(TS)])
def test_other_events_close_the_batch_before_them(event: Ddl | Resolved) -> None:
    """Messages keep the order of events."""
    one = encoder()
    one.append(insert(1))
    rows, other = one.append(event)
    assert (rows.kind, rows.rows, other.rows) == (MessageKind.ROW, 1, 0)
    assert other.kind == (MessageKind.DDL if event is DDL else MessageKind.RESOLVED)


def test_canal_sends_each_event_at_once() -> None:
    """One event a message, no key, and no watermark without the extension."""
    one = encoder("canal-json")
    message = only(one.append(insert(1)))
    assert (message.key, message.rows) == (None, 1)
    assert one.append(Resolved(TS)) == one.flush() == ()
    assert only(encoder("canal-json", enable_tidb_extension=True).append(Resolved(TS))).kind == MessageKind.RESOLVED


@pytest.mark.parametrize(("protocol", "extra"), [("open-protocol", 60), ("canal-json", 36)])
def test_too_large_rows_name_everything(protocol: str, extra: int) -> None:
    """Table, key, size, limit and options; the error pickles, and the encoder goes on."""
    plain = encoder(protocol)
    message = only((*plain.append(insert(5, BIG)), *plain.flush()))
    parts = (b"", message.value) if message.key is None else key_and_value(message)
    size = len(parts[0]) + len(parts[1]) + extra
    fits = encoder(protocol, max_message_bytes=size)
    assert (*fits.append(insert(5, BIG)), *fits.flush()) == (message,)
    one = encoder(protocol, max_message_bytes=size - 1)
    with pytest.raises(MessageTooLarge) as found:
        one.append(insert(5, BIG))
    error = pickle.loads(pickle.dumps(found.value))
    assert (error.table, error.key, error.size, error.limit) == ("s.t", "(id=5)", size, size - 1)
    assert error.code == "CDC:ErrMessageTooLarge"
    for part in ("s.t", "(id=5)", str(size), f"max-message-bytes={size - 1}", "claim-check", "handle-key-only"):
        assert part in str(error)
    assert len((*one.append(insert(6)), *one.flush())) == 1


def test_handle_key_only() -> None:
    """A row that is too large goes with its handle and a mark, among others in their batch."""
    one = encoder(max_message_bytes=600, large_message_handle_option="handle-key-only")
    for event in (insert(1), update(BIG, "y"), delete()):
        assert one.append(event) == ()
    message = only(one.flush())
    small, marked, _ = decode(message.key, message.value, DecodeOptions(protocol="open-protocol"))
    assert isinstance(small, Insert)
    assert isinstance(marked, Update)
    assert (small.handle_only, marked.handle_only) == (False, True)
    assert marked.before == marked.after == (1,)


def test_handle_key_only_without_a_handle() -> None:
    """Open Protocol cannot say such a row; Canal-JSON says it with no column at all."""
    with pytest.raises(HandleKeyMissing) as found:
        encoder(max_message_bytes=600, large_message_handle_option="handle-key-only").append(
            insert(1, BIG, NO_KEY), NO_KEY
        )
    assert found.value.code == "CDC:ErrOpenProtocolCodecInvalidData"
    canal = encoder("canal-json", delete_only_output_handle_key_columns=True)
    value = json.loads(only(canal.append(delete(1, NO_KEY), NO_KEY)).value)
    assert (value["sqlType"], value["mysqlType"], value["data"]) == (None, {}, [{}])


@pytest.mark.parametrize("protocol", ["open-protocol", "canal-json"])
@pytest.mark.parametrize("compression", ["none", "snappy", "lz4"])
def test_claim_checks(protocol: str, compression: str) -> None:
    """The message holds the handle and a location without secrets; the file holds the whole message."""
    claims = Claims()
    settings = {**CANAL_CLAIM, "large_message_handle_compression": compression, "max_message_bytes": 420}
    one = encoder(protocol, claims, **settings)
    text = "".join(map(chr, range(0x100, 0x400)))
    message = only((*one.append(insert(1, text)), *one.flush()))
    reading = DecodeOptions(protocol=protocol, compression=compression)
    (event,) = decode(message.key, message.value, reading)
    assert isinstance(event, Insert)
    assert (event.claim_check, event.after, event.handle_only) == ("s3://b/dir/1.json", (1,), False)
    (whole,) = decode(*open_claim(claims.files["1.json"], reading), reading)
    assert isinstance(whole, Insert)
    assert {field.name: value for field, value in zip(whole.fields, whole.after, strict=True)} == {"id": 1, "a": text}


def test_raw_claim_checks() -> None:
    """With claim-check-raw-value the file is the value."""
    claims = Claims()
    one = encoder("canal-json", claims, claim_check_raw_value=True, max_message_bytes=500, **CANAL_CLAIM)
    one.append(insert(1, BIG))
    plain = only(encoder("canal-json", enable_tidb_extension=True).append(insert(1, BIG)))
    assert claims.files == {"1.json": plain.value}


def test_a_claim_check_that_does_not_fit_leaves_no_file() -> None:
    """The check itself is measured before its file is written."""
    claims = Claims()
    with pytest.raises(MessageTooLarge):
        encoder("open-protocol", claims, max_message_bytes=100, **CLAIM).append(insert(1, BIG))
    assert claims.files == {}


def test_a_claim_check_needs_a_storage() -> None:
    """Without one the encoder is not made."""
    with pytest.raises(EncodeError, match="storage"):
        encoder(**CLAIM)


def test_decoded_rows_are_encoded_again() -> None:
    """A row without a table is described by its own fields; its marks go on."""
    row = Delete(
        schema="s",
        table="t",
        fields=TABLE.fields[:1],
        before=(1,),
        commit_ts=TS,
        pk_names=("id",),
        claim_check="s3://b/1.json",
    )
    for protocol in ("open-protocol", "canal-json"):
        one = encoder(protocol, enable_tidb_extension=True)
        message = only((*one.append(row), *one.flush()))
        (again,) = decode(message.key, message.value, DecodeOptions(protocol=protocol))
        assert isinstance(again, Delete)
        assert (again.before, again.claim_check) == ((1,), "s3://b/1.json")


@pytest.mark.parametrize("protocol", ["open-protocol", "canal-json"])
def test_values_that_no_column_holds_are_named(protocol: str) -> None:
    """A value of another type is an error with column and table, not a broken message."""
    with pytest.raises(EncodeError, match="column 'a'"):
        encoder(protocol).append(insert(1, 5))
    with pytest.raises(EncodeError, match="commit_ts"):
        encoder(protocol).append(Insert(schema="s", table="t", fields=TABLE.fields, after=(1, "x")))
    with pytest.raises(EncodeError, match="commit_ts or"):
        encoder(protocol).append(Ddl(schema="s", table="t", query="x"))


def test_storage_form() -> None:
    """A storage sink's file is values, each with the terminator."""
    messages = [Message(None, b"a", 1, MessageKind.ROW), Message(None, b"b", 1, MessageKind.ROW)]
    assert join_for_storage(messages, "\r\n") == b"a\r\nb\r\n"


@pytest.mark.parametrize(
    ("uri", "location"),
    [
        ("file:///tmp/claims", "file:///tmp/claims/n.json"),
        ("s3://bucket/dir/?access-key=secret", "s3://bucket/dir/n.json"),
        ("/tmp/claims", "file:///tmp/claims/n.json"),
        ("ftp://bob:S3cret@h:21/d/", "ftp://h:21/d/n.json"),
        ("ftp://bob:S3/c?r#et@h/d?x=1", "ftp://h/d/n.json"),
        ("abfs://box@account.example/d", "abfs://box@account.example/d/n.json"),
        ("ftp://h:21/a@b", "ftp://h:21/a@b/n.json"),
    ],
)
def test_locations(uri: str, location: str) -> None:
    """A location is the storage and the name, without what else stands in the URI."""
    assert claim_location(uri, "n.json") == location


@pytest.mark.parametrize("compression", ["none", "snappy", "lz4"])
@given(raw=st.binary())
def test_compression_comes_back(compression: str, raw: bytes) -> None:
    """Decompressing undoes compressing."""
    assert decompress(compress(raw, compression), compression, "test", 0) == raw


@pytest.mark.parametrize("handling", ["handle-key-only", "claim-check"])
def test_marks_that_canal_json_cannot_carry_are_refused(handling: str) -> None:
    """Options made by hand are held to the rule of TiCDC's configuration, with its code, before any row comes."""
    bare = EncodeOptions(protocol="canal-json", large_message_handle=handling, claim_check_storage_uri="s3://b")
    with pytest.raises(ConfigError, match="enable-tidb-extension=true") as caught:
        BatchEncoder(bare, claims=Claims())
    assert caught.value.code == "CDC:ErrInvalidReplicaConfig"
    for fine in ({"enable_tidb_extension": True}, {"protocol": "open-protocol"}):
        BatchEncoder(msgspec.structs.replace(bare, **fine), claims=Claims())


@pytest.mark.parametrize("mark", [{"handle_only": True}, {"claim_check": "s3://b/1.json"}])
def test_a_cut_row_is_not_passed_off_as_whole(mark: dict[str, object]) -> None:
    """A decoded row that came cut down goes on with its mark, or not at all."""
    row = msgspec.structs.replace(insert(), **mark)
    with pytest.raises(EncodeError, match=r"s\.t .*enable-tidb-extension"):
        encoder("canal-json").append(row, TABLE)
    assert encoder("canal-json", enable_tidb_extension=True).append(row, TABLE)
