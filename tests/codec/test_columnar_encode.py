"""Columns become the very messages that rows become: values, options, sizes and cuts."""

import gzip
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.codec.columnar_rows import batch_of, by_columns, by_rows
from tests.codec.encode_rows import TABLE, Claims, delete, insert, options, update
from tests.codec.test_encode_properties import OPTIONS, TS, UTF8, columns
from tests.counts import some
from tidegate.codec import BatchEncoder, DecodeOptions, EncodeOptions, WireTable, decode
from tidegate.codec.columnar import ColumnarEncoder, Cutter, decode_chunk
from tidegate.codec.columnar.encode.cut import cuts_of
from tidegate.codec.stream import read_frames
from tidegate.codec.wire_table import WireColumn
from tidegate.model.errors import EncodeError, HandleKeyMissing, MessageTooLarge
from tidegate.model.event import Delete, Insert, RowChange, Update
from tidegate.model.name import lowered

SPEED = Path(__file__).parents[1] / "data" / "speed"


@st.composite
def parts(draw: st.DrawFn) -> list[tuple[list[RowChange], WireTable, list[bytes | None]]]:
    """Some runs of rows, each of one table."""
    return [draw(changes()) for _ in range(draw(st.integers(1, 3)))]


@st.composite
def changes(draw: st.DrawFn) -> tuple[list[RowChange], WireTable, list[bytes | None]]:
    """Changes of rows of one table, with keys of TiKV."""
    names = draw(st.lists(UTF8.filter(bool), min_size=1, max_size=4, unique_by=lowered))
    drawn = [draw(columns(name, handle=index == 0)) for index, name in enumerate(names)]
    table = WireTable(tuple(one for one, _ in drawn), (names[0],))
    image = st.tuples(*[values for _, values in drawn])
    shared: dict[str, Any] = {
        "schema": draw(UTF8.filter(bool)),
        "table": draw(UTF8.filter(bool)),
        "fields": table.fields,
        "partition_id": draw(st.none() | st.integers(1, (1 << 63) - 1)),
    }
    rows: list[RowChange] = []
    for _ in range(draw(st.integers(1, 5))):
        own = shared | {"commit_ts": draw(TS), "row_id": draw(st.none() | st.integers(-(1 << 63), (1 << 63) - 1))}
        kind = draw(st.sampled_from("IUUD"))
        after = draw(image)
        if kind == "I":
            rows.append(Insert(after=after, **own))
        elif kind == "D":
            rows.append(Delete(before=after, **own))
        else:
            kept = [draw(st.booleans()) for _ in names]
            before = tuple(new if keep else old for keep, new, old in zip(kept, after, draw(image), strict=True))
            rows.append(Update(before=before, after=after, **own))
    return rows, table, [draw(st.binary(min_size=1, max_size=9)) for _ in rows]


LIMITS = st.fixed_dictionaries(
    {"max_batch_size": st.integers(1, 4), "max_batched_bytes": st.sampled_from((0, 300, 700))}
)


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(drawn=parts(), chosen=OPTIONS, limits=LIMITS)
def test_both_protocols(drawn: list[Any], chosen: dict[str, Any], limits: dict[str, int]) -> None:
    """Any rows under any options give the messages of the plain encoder, cuts included."""
    check_parts(drawn, chosen | limits)


@pytest.mark.slow
@settings(deadline=None, max_examples=some(100, 2_000))
@given(drawn=parts(), chosen=OPTIONS, limits=LIMITS)
def test_both_protocols_at_length(drawn: list[Any], chosen: dict[str, Any], limits: dict[str, int]) -> None:
    """The same for many more rows; in the soak, for some ten thousand."""
    check_parts(drawn, chosen | limits)


def check_parts(drawn: list[Any], chosen: dict[str, Any]) -> None:
    faults = frozenset({"unnamed-null", "stale-flags", "raw-bytes"} if chosen["dialect"] == "newarch" else ())
    newarch = chosen["dialect"] == "newarch"
    for extra in ({}, {"faults": faults}):
        for protocol in ("open-protocol", "canal-json"):
            row_key = newarch and protocol == "canal-json"
            given_options = EncodeOptions(protocol=protocol, output_row_key=row_key, **(chosen | extra))
            assert by_columns(drawn, given_options) == by_rows(drawn, given_options)


@given(sizes=st.lists(st.integers(1, 500), max_size=60), limit=st.integers(60, 1500), batch=st.integers(1, 20))
def test_cuts(sizes: list[int], limit: int, batch: int) -> None:
    """Messages begin where one row after the other finds the open one full."""
    found, rows, size = [], batch, 0
    for at, grown in enumerate(sizes):
        if rows >= batch or size + grown > limit:
            found.append(at)
            rows, size = 0, 44
        rows, size = rows + 1, size + grown
    made = cuts_of(sizes, EncodeOptions(protocol="open-protocol", max_batch_size=batch, max_message_bytes=limit))
    assert found == made


@pytest.mark.parametrize("protocol", ["open-protocol", "canal-json"])
@pytest.mark.parametrize("handling", ["handle-key-only", "claim-check"])
def test_rows_too_large(protocol: str, handling: str) -> None:
    """What is too large alone is cut down as the plain encoder does, files of claim checks included."""
    settings_of = options(
        protocol,
        max_message_bytes=600,
        enable_tidb_extension="true",
        large_message_handle_option=handling,
        claim_check_storage_uri="file:///claims",
    )
    texts = ["x", "y" * 700, "z", "é<" * 300, "w"]
    drawn = [([insert(at, text) for at, text in enumerate(texts)] + [update("x", "y" * 800)], TABLE, [None] * 6)]
    here, there = Claims(), Claims()
    assert by_columns(drawn, settings_of, claims=here) == by_rows(drawn, settings_of, claims=there)
    assert here.files == there.files
    assert bool(here.files) == (handling == "claim-check")


@pytest.mark.parametrize("protocol", ["open-protocol", "canal-json"])
def test_a_row_too_large_is_refused(protocol: str) -> None:
    """The error is that of the plain encoder, and what was open before is still there."""
    settings_of = options(protocol, max_message_bytes=600)
    encoder = ColumnarEncoder(settings_of, now_ms=lambda: 7, few_rows=0)
    first, large = batch_of([insert(1)], TABLE), batch_of([insert(2, "y" * 700)], TABLE)
    kept = encoder.append(first[0], TABLE, row_ids=first[1]).messages()
    with pytest.raises(MessageTooLarge) as found:
        encoder.append(large[0], TABLE, row_ids=large[1])
    with pytest.raises(MessageTooLarge) as plain:
        BatchEncoder(settings_of).append(insert(2, "y" * 700), TABLE)
    assert (found.value.size, found.value.limit, found.value.table) == (plain.value.size, 600, "s.t")
    assert [*kept, *encoder.flush().messages()] == by_rows([([insert(1, table=TABLE)], TABLE, [None])], settings_of)


def test_refusals() -> None:
    """What no message can say is refused with the plain encoder's errors."""
    batch, _ = batch_of([delete(1)], TABLE)
    handles = options("open-protocol", delete_only_output_handle_key_columns="true")
    bare = WireTable(tuple(WireColumn(one.name, one.type, 65) for one in TABLE.columns))
    with pytest.raises(HandleKeyMissing):
        ColumnarEncoder(handles, few_rows=0).append(batch, bare)
    with pytest.raises(EncodeError, match="as many columns"):
        ColumnarEncoder(handles, few_rows=0).append(batch, WireTable(TABLE.columns[:1], ("id",)))
    swapped = WireTable(TABLE.columns[::-1], ("id",))
    with pytest.raises(EncodeError, match="cannot hold"):
        ColumnarEncoder(options(), few_rows=0).append(batch, swapped)


def test_a_batch_that_contradicts_itself() -> None:
    """Images that are not those of the ops, and ops that are none, are errors."""
    batch, _ = batch_of([insert(1), delete(2)], TABLE)
    for ops in (["I", "I"], ["I", "X"], ["I", None]):
        with pytest.raises(EncodeError):
            ColumnarEncoder(options(), few_rows=0).append(replace(batch, op=pa.array(ops, pa.string())), TABLE)


def test_rows_of_several_partitions() -> None:
    """Texts go to partitions by row, and each partition has batches of its own."""
    settings_of = options(max_batch_size=2)
    rows = [insert(1), insert(2), update("x", "y", 3), delete(4), insert(5), insert(6), insert(8)]
    batch, row_ids = batch_of(rows, TABLE)
    texts = ColumnarEncoder(settings_of, few_rows=0).texts(batch, TABLE, row_ids=row_ids)
    for partition in range(2):
        cutter, chosen = Cutter(settings_of), [at for at, row in enumerate(rows) if (row.row_id or 0) % 2 == partition]
        made = [*cutter.append(texts.take(pa.array(chosen))).messages(), *cutter.flush().messages()]
        assert made == by_rows([([rows[at] for at in chosen], TABLE, [None] * len(chosen))], settings_of)


def test_few_rows_go_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch below the bound takes the plain way, and gives the same."""
    seen: list[RowChange] = []
    plain = BatchEncoder.pair
    monkeypatch.setattr(
        BatchEncoder,
        "pair",
        lambda self, row, *rest: seen.append(row) or plain(self, row, *rest),  # type: ignore[func-returns-value]
    )
    encoder = ColumnarEncoder(options("canal-json"), few_rows=3)
    encoder.append(batch_of([insert(1), insert(2)], TABLE)[0], TABLE)
    assert len(seen) == 2
    encoder.append(batch_of([insert(1), insert(2), delete(3)], TABLE)[0], TABLE)
    assert len(seen) == 2


@pytest.mark.parametrize("name", ["open_sysbench", "open_wide", "canal_sysbench", "canal_wide"])
def test_no_call_a_row(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recorded rows of every type take the way through columns, in as many Python calls for 1,900 rows as for 400."""
    monkeypatch.setattr(BatchEncoder, "pair", None)
    reading, messages = recorded(name)
    settings_of = EncodeOptions(protocol=reading.protocol or "", enable_tidb_extension=True, max_batch_size=1 << 20)
    counts = []
    for share in (5, 1, 5):
        chunk = decode_chunk(messages[: len(messages) // share], reading).batches[0]
        encoder = ColumnarEncoder(settings_of)
        encoder.append(chunk)
        counts.append(calls_of(lambda batch=chunk, to=encoder: to.append(batch)))  # type: ignore[misc]
        assert chunk.rows > 1_900 / share
    assert counts[1] <= counts[2] + 16


@pytest.mark.parametrize("name", ["open_sysbench", "open_wide"])
def test_decoded_columns_are_encoded_back(name: str) -> None:
    """What a recorded topic decodes to is encoded to the recorded messages, frames and batches included."""
    reading, messages = recorded(name)
    decode_chunk(messages, reading)
    (batch,) = decode_chunk(messages, reading).batches
    row_ids = pa.array([row.row_id for pair in messages for row in decode(*pair, reading)], pa.int64())  # type: ignore[union-attr]
    encoder = ColumnarEncoder(EncodeOptions(protocol="open-protocol"))
    made = [*encoder.append(batch, row_ids=row_ids).pairs(), *encoder.flush().pairs()]
    assert made == messages


def recorded(name: str) -> tuple[DecodeOptions, list[tuple[bytes, bytes]]]:
    """2,000 events of a recorded topic, and how to read them."""
    protocol = "open-protocol" if name.startswith("open") else "canal-json"
    return DecodeOptions(protocol=protocol), list(read_frames(gzip.decompress((SPEED / f"{name}.bin.gz").read_bytes())))


def calls_of(work: Callable[[], object]) -> int:
    """Calls of Python functions that `work` makes."""
    count = 0

    def note(_frame: object, event: str, _what: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count
