"""The compiled walk of messages reads what the generated classes read, and refuses what they refuse."""

from collections.abc import Iterable
from random import Random
from typing import Any

import pytest
from google.protobuf.message import DecodeError as Malformed

from tests.tikv.reading import recorded_scans
from tests.tikv.recorded import DDL, LABS, LATE, LIVE, received
from tidegate.model.errors import DecodeError
from tidegate.tikv import walk
from tidegate.tikv.stubs import cdcpb_pb2 as cdcpb
from tidegate.tikv.stubs import kvrpcpb_pb2 as kvrpcpb

NUMBERS = (walk.START_TS, walk.COMMIT_TS, walk.TYPE, walk.OP, walk.TXN_SOURCE, walk.GENERATION)
TEXTS = (walk.KEY, walk.VALUE, walk.OLD_VALUE)
TOO_LARGE = 1 << 63


def known(message: Any) -> Any:
    """A message without the fields that it has not."""
    message.DiscardUnknownFields()
    return message


def walked(messages: list[bytes]) -> list[Any]:
    """The items of messages by the walk: of rows with their fields, of others with the object."""
    batch = walk.read(messages)
    columns = batch.rows.tolist()
    items: list[Any] = []
    for index, (kind, region, request, first, stop) in enumerate(batch.items.tolist()):
        if kind == walk.ROWS:
            rows = columns[first:stop]
            assert {row[walk.ITEM] for row in rows} <= {index}
            texts = [[batch.data[row[column] : row[column + walk.BEHIND]] for column in TEXTS] for row in rows]
            items.append((region, request, [[row[c] for c in NUMBERS] + t for row, t in zip(rows, texts, strict=True)]))
        else:
            items.append(known(batch.parsed[index]))
    return items


def generated(messages: Iterable[bytes]) -> list[Any]:
    """The items of messages by the generated classes."""
    items: list[Any] = []
    for message in messages:
        event = cdcpb.ChangeDataEvent.FromString(message)
        for item in event.events:
            if item.WhichOneof("event") == "entries":
                rows = [
                    [
                        r.start_ts,
                        r.commit_ts,
                        r.type,
                        r.op_type,
                        r.txn_source,
                        r.generation,
                        r.key,
                        r.value,
                        r.old_value,
                    ]
                    for r in item.entries.entries
                ]
                items.append((item.region_id, item.request_id, rows))
            else:
                items.append(known(item))
        if event.HasField("resolved_ts"):
            items.append(known(event.resolved_ts))
    return items


@pytest.mark.parametrize("name", [LIVE, LATE, DDL, *LABS, "errors"])
def test_recorded(name: str) -> None:
    """Each field of each row of the recorded streams is that of the generated classes; so is what is no row."""
    messages = received(name)

    assert walked(messages) == generated(messages)


def damaged(random: Random, message: bytes) -> bytes:
    """A message with some bytes changed, cut, doubled, or moved."""
    data = bytearray(message)
    for _ in range(random.choice((1, 1, 1, 3))):
        offset, size = random.randrange(len(data) + 1), random.choice((1, 1, 2, 5, 20))
        part = data[offset : offset + size]
        match random.randrange(6):
            case 0:
                data[offset : offset + size] = bytes(byte ^ 1 << random.randrange(8) for byte in part)
            case 1:
                del data[offset : offset + size]
            case 2:
                data[offset:offset] = part
            case 3:
                data[offset:offset] = random.choice(
                    (b"\x80" * size, b"\xff" * size, b"\x0b", b"\x0c", b"\x78\x01", b"\0")
                )
            case 4:
                del data[offset:]
            case _:
                data[offset : offset + 1] = bytes([random.randrange(256)])
    return bytes(data)


def numbers_of(message: Any) -> Iterable[int]:
    """The numbers of an object and of what is in it."""
    for field, value in message.ListFields():
        for single in value if isinstance(value, cdcpb.Event.Entries().entries.__class__) else [value]:
            if field.message_type is not None and hasattr(single, "ListFields"):
                yield from numbers_of(single)
            elif isinstance(single, int):
                yield single


def outcome(read: Any, messages: list[bytes]) -> Any:
    """What a reader reads, or that it refuses."""
    try:
        return read(messages)
    except (DecodeError, Malformed):
        return "refused"


@pytest.mark.parametrize("seed", range(8))
def test_damaged(seed: int) -> None:
    """Damaged bytes are read as the generated classes read them, or end in DecodeError: for what those refuse, and for
    numbers of 2^63 and above, which are no timestamps."""
    random = Random(seed)
    small = [message for name in (LIVE, *LABS, "errors") for message in received(name) if len(message) < 1500]
    seen = {"equal": 0, "refused": 0}
    for message in random.choices(small, k=400):
        data = damaged(random, message)
        expected, result = outcome(generated, [data]), outcome(walked, [data])
        if expected != result:
            assert result == "refused", (message.hex(), data.hex())
            event = cdcpb.ChangeDataEvent.FromString(data)
            assert any(number >= TOO_LARGE or number < 0 for number in numbers_of(event)), data.hex()
        seen["refused" if result == "refused" else "equal"] += 1

    assert min(seen.values()) > 20


def test_messages_joined() -> None:
    """The items of many messages are those of each, whatever is between; a damaged message refuses the batch."""
    random = Random(1)
    messages = random.choices(received(LIVE)[:300], k=40)

    assert walked(messages) == [item for message in messages for item in walked([message])]
    with pytest.raises(DecodeError, match="ChangeDataEvent: a malformed message"):
        walk.read([*messages, messages[0][:-1]])
    event = cdcpb.Event(entries=cdcpb.Event.Entries(entries=[cdcpb.Event.Row(start_ts=TOO_LARGE)]))
    message = cdcpb.ChangeDataEvent(events=[event]).SerializeToString()
    with pytest.raises(DecodeError, match="number of 2\\^63 or above"):
        walk.read([message])


def test_rows_outnumber_the_estimate() -> None:
    """Rows without a field take two bytes each, so there may be many more of them than arrays were made for."""
    event = cdcpb.Event(region_id=3, entries=cdcpb.Event.Entries(entries=[cdcpb.Event.Row()] * 5000))
    message = cdcpb.ChangeDataEvent(events=[event]).SerializeToString()

    assert walked([message]) == generated([message])
    assert walk.read([]).rows.shape == (0, walk.ROW)


def pairs(page: kvrpcpb.ScanResponse) -> list[tuple[bytes, bytes]]:
    """What a page has."""
    return [(pair.key, pair.value) for pair in page.pairs]


@pytest.mark.parametrize("seed", range(40))
def test_pages_of_scans(seed: int) -> None:
    """A page is that of the generated class, damaged, too, or is left to it: errors always are."""
    random = Random(seed)
    _, page = random.choice([scan for scan in recorded_scans("user-mid") if scan[1].pairs])
    message = page.SerializeToString()
    keys, values = walk.read_pairs(message, 256) or pytest.fail("a regular page")
    assert list(zip(keys.to_pylist(), values.to_pylist(), strict=True)) == pairs(page)
    assert walk.read_pairs(message, len(page.pairs) - 1) is None
    locked = kvrpcpb.KvPair(error=kvrpcpb.KeyError(locked=kvrpcpb.LockInfo(key=b"k")))
    for broken in ({"region_error": {"message": "x"}}, {"error": {"abort": "x"}}, {"pairs": [locked]}):
        assert walk.read_pairs(message + kvrpcpb.ScanResponse(**broken).SerializeToString(), 300) is None
    for _ in range(100):
        data = damaged(random, message[:300])
        read = walk.read_pairs(data, 256)
        if read is None:
            continue
        expected = kvrpcpb.ScanResponse.FromString(data)
        assert pairs(expected) == [*zip(*(column.to_pylist() for column in read), strict=True)]
        assert not expected.HasField("error")
        assert not expected.HasField("region_error")
