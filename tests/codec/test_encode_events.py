"""Whatever the encoders write decodes, and only what an option is documented to drop is dropped.

    2,000 events in the fast tests    10,000 more in `make test`    100,000 in `make soak`

`option_rules.py` has the documents as a table, `event_maker.py` the events.  TIDEGATE_SEED=n makes other ones.
"""

import os
import random
import sys
from collections import Counter
from typing import Any

import pytest

from tests.codec.columnar_kit import by_chunk, by_decoder
from tests.codec.encode_rows import Claims
from tests.codec.event_maker import Chance, Made, other, row, table
from tests.codec.option_rules import NOW_MS, RULES, ZONE, Case, Expected, Image, expected
from tidegate.codec import BatchEncoder, DecodeOptions, EncodeOptions, Message, decode, encode_options
from tidegate.codec.canal_encode import ddl_type
from tidegate.codec.claim import claim_name, open_claim
from tidegate.codec.wire_table import WireColumn
from tidegate.model.errors import HandleKeyMissing, MessageTooLarge
from tidegate.model.event import Ddl, Event, Resolved, RowChange, images
from tidegate.model.mysql import MysqlType

SEED = int(os.environ.get("TIDEGATE_SEED", "20260102"))
COUNT = int(os.environ.get("TIDEGATE_FUZZ", "100000"))
SESSION = 40
"""Events that one encoder gets."""
HANDLINGS = ("none", "none", "handle-key-only", "claim-check")
ROW_KEY = b"t\x80\x00_r\x01"


def drawn_options(chance: Chance) -> EncodeOptions:
    """A configuration that no rule forbids."""
    canal, newarch = chance.random() < 0.5, chance.random() < 0.5
    handling = chance.choice(HANDLINGS)
    config: dict[str, object] = {
        "protocol": "canal-json" if canal else "open-protocol",
        "dialect": "newarch" if newarch else "classic",
        "large-message-handle-option": handling,
        "large-message-handle-compression": chance.choice(("none", "none", "snappy", "lz4")),
        "max-batch-size": chance.randint(1, 16),
        "max-message-bytes": chance.choice((10 << 20, 10 << 20, 1500, 700)),
        "time-zone": chance.choice(("UTC", ZONE)),
        "enable-tidb-extension": handling != "none" or chance.random() < 0.5,
    }
    for key in ("only-output-updated-columns", "delete-only-output-handle-key-columns", "content-compatible"):
        config[key] = chance.random() < 0.4
    config["output-old-value"] = chance.random() < 0.8
    if handling == "claim-check":
        config["claim-check-storage-uri"] = "s3://bucket/place?secret=1"
        config["claim-check-raw-value"] = canal and chance.random() < 0.5
    if newarch and not canal:
        config["newarch-faults"] = chance.choice(("none", "raw-bytes", "double-ohk", "raw-bytes,double-ohk"))
    if newarch and canal and config["enable-tidb-extension"]:
        config["output-row-key"] = chance.random() < 0.5
    return encode_options(config)


class Session:
    """One encoder, what it was given, and what must come out of its messages."""

    def __init__(self, chance: Chance, met: set[str], refused: Counter[str]) -> None:
        self.options = options = drawn_options(chance)
        self.claims, self.met, self.refused = Claims(), met, refused
        self.encoder = BatchEncoder(options, now_ms=lambda: NOW_MS, claims=self.claims)
        self.whole = BatchEncoder(unlimited(options), now_ms=lambda: NOW_MS)
        self.reading = DecodeOptions(
            protocol=options.protocol,
            compression=options.compression,
            claim_check_raw_value=options.claim_check_raw_value,
        )
        self.messages: list[Message] = []
        self.given: list[tuple[Event, Made | None, int]] = []

    def add(self, event: Event, made: Made | None) -> None:
        """Encode an event, unless it has to be refused."""
        if not isinstance(event, RowChange) or made is None:
            self.messages += self.encoder.append(event)
            if isinstance(event, Ddl) or self.options.protocol == "open-protocol" or self.options.enable_tidb_extension:
                self.given.append((event, None, 0))
            return
        row_key = ROW_KEY if self.options.output_row_key else None
        handles = any(column.handle for column in made.table.columns)
        try:
            (alone,) = (*self.whole.append(event, made.table, row_key), *self.whole.flush())
            self.messages += self.encoder.append(event, made.table, row_key)
        except HandleKeyMissing:
            assert not handles
            assert self.options.protocol == "open-protocol"
            self.refused["without a handle"] += 1
        except MessageTooLarge as error:
            self.refused["too large" if error.size > self.options.max_message_bytes else "too early"] += 1
        else:
            self.given.append((event, made, alone.size))

    def check(self) -> int:
        """Every message decodes to what was given; how many events that were."""
        self.messages += self.encoder.flush()
        for message in self.messages:
            if message.rows:
                assert message.rows <= (self.options.max_batch_size if message.key else 1)
                assert message.size <= self.options.max_message_bytes
        pairs = [(message.key, message.value) for message in self.messages]
        found = [event for key, value in pairs for event in decode(key, value, self.reading)]
        assert len(found) == len(self.given)
        for event, (given, made, size) in zip(found, self.given, strict=True):
            if made is None:
                assert event == beside_rows(given, self.options)
            else:
                assert isinstance(event, RowChange)
                self.check_row(event, given, made, size)
        assert by_chunk(pairs, self.reading) == by_decoder(pairs, self.reading)
        return len(found)

    def check_row(self, found: RowChange, given: Any, made: Made, size: int) -> None:
        """A row is what its rules leave; what lies in a storage is whole."""
        checked = self.options.large_message_handle == "claim-check"
        location = found.claim_check or "none" if checked else None
        case = Case(given, made.table, self.options, size > self.options.max_message_bytes, location)
        wanted = expected(case, self.met)
        check_change(found, wanted, made)
        check_columns(found, case)
        if found.claim_check is not None:
            assert found.claim_check.startswith("s3://bucket/place/")
            body = self.claims.files[claim_name(found.claim_check)]
            key, value = open_claim(body, self.reading)
            (full,) = decode(key, value, self.reading)
            assert isinstance(full, RowChange)
            check_change(full, expected(case._replace(cut=False, location=None), self.met), made)


def unlimited(options: EncodeOptions) -> EncodeOptions:
    """The same options for an encoder to which no row is too large."""
    import msgspec

    return msgspec.structs.replace(options, max_message_bytes=1 << 40, large_message_handle="none", max_batch_size=1)


def beside_rows(event: Event, options: EncodeOptions) -> Event:
    """A DDL or resolved timestamp as it arrives."""
    if isinstance(event, Resolved) or options.protocol == "open-protocol":
        return event
    assert isinstance(event, Ddl)
    ts = event.commit_ts or 0
    return Ddl(
        schema=event.schema,
        table=event.table,
        query=event.query,
        canal_type=ddl_type(event.type or 0),
        commit_ts=ts if options.enable_tidb_extension else None,
        es_ms=ts >> 18,
        build_ms=NOW_MS,
    )


def check_change(found: RowChange, wanted: Expected, made: Made) -> None:
    before, after = images(found)
    names = [field.name for field in found.fields]
    by_name = [None if image is None else dict(zip(names, image, strict=True)) for image in (before, after)]
    assert (type(found).__name__, found.schema, found.table) == (wanted.op, made.schema, made.name)
    assert shown(by_name[0]) == shown(wanted.before)
    assert shown(by_name[1]) == shown(wanted.after)
    assert {name: getattr(found, name) for name in wanted.told} == wanted.told


def shown(image: Image | None) -> dict[str, str] | None:
    """Values as text, which tells 0 from 0.0 and from -0.0."""
    return image if image is None else {name: repr(value) for name, value in image.items()}


def check_columns(found: RowChange, case: Case) -> None:
    """Columns come in the order of the dialect, with what the protocol tells of them."""
    names = [field.name for field in found.fields]
    columns = [column for column in case.table.columns if column.name in names]
    if case.open and not case.options.newarch:
        columns.sort(key=lambda column: column.name.encode())
    assert names == [column.name for column in columns]
    for field, column in zip(found.fields, columns, strict=True):
        if case.open:
            assert (field.type, field.flag, field.handle) == (column.type.code, column.flag, column.handle)
            continue
        assert field.flag is None
        assert field.type == column.type.code
        assert field.unsigned == (column.type.unsigned and column.type.code not in {MysqlType.YEAR, MysqlType.BIT})
        assert field.handle == (field.name in case.table.pk_names)
        assert ("(" in field.mysql_type) == (case.options.content_compatible and has_parameters(column))


def has_parameters(column: WireColumn) -> bool:
    """Whether `mysqlType` in full has parameters."""
    kind = column.type
    if kind.code in {MysqlType.DATETIME, MysqlType.TIMESTAMP, MysqlType.TIME}:
        return kind.decimal > 0
    without = {MysqlType.FLOAT, MysqlType.DOUBLE, MysqlType.DATE, MysqlType.JSON}
    blobs = {MysqlType.TINY_BLOB, MysqlType.MEDIUM_BLOB, MysqlType.LONG_BLOB, MysqlType.BLOB}
    return kind.code not in without | blobs


def play(count: int, seed: int) -> tuple[int, Counter[str], set[str]]:
    """Encode and decode `count` events; how many arrived, why others were refused, and which rules had a say."""
    met, refused, arrived = set[str](), Counter[str](), 0
    for number in range(count // SESSION):
        chance = random.Random(f"{seed} {number}")
        session = Session(chance, met, refused)
        try:
            tables = [table(chance) for _ in range(chance.randint(1, 3))]
            for _ in range(SESSION):
                made = chance.choice(tables) if chance.random() < 0.95 else None
                session.add(other(chance) if made is None else row(made, chance), made)
            arrived += session.check()
        except Exception as error:
            raise AssertionError(f"TIDEGATE_SEED={SEED}: session {number} of {seed}, {session.options}") from error
    assert met == {rule.what for rule in RULES}
    assert set(refused) <= {"without a handle", "too large"}
    assert arrived > 0.6 * count
    return arrived, refused, met


def test_some_events() -> None:
    """Two thousand events in fifty configurations meet every rule."""
    play(2000, SEED)


@pytest.mark.slow
def test_events() -> None:
    """The same with ten thousand."""
    _, refused, _ = play(10_000, SEED + 1)
    assert set(refused) == {"without a handle", "too large"}


@pytest.mark.soak
def test_a_hundred_thousand_events(capsys: pytest.CaptureFixture[str]) -> None:
    """The same with as many as TIDEGATE_FUZZ says, a hundred thousand by default."""
    arrived, refused, _ = play(COUNT, SEED + 2)
    with capsys.disabled():
        sys.stdout.write(f"\nevents there and back, seed {SEED + 2}: {arrived} arrived, refused {dict(refused)}\n")
