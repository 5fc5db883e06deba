"""Kinds of messages that nobody should send; each is made of a good one: its JSON is changed, or the bytes of it.

Some kinds are only odd: their rows arrive.
"""

import json
import random
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from tidegate.codec import BatchEncoder, EncodeOptions
from tidegate.codec.compression import compress as compressed_by
from tidegate.model.event import Ddl, Event, Resolved

DECODE, SCHEMA, DDL = "CDC:ErrDecodeFailed", "CDC:ErrSchemaStorage", "CDC:ErrParseDDL"
BAD_TS, BAD_TEXT = "CDC:ErrTimestampOutOfRange", "CDC:ErrTextNotUnicode"
HANDLE_ONLY, CLAIM_CHECK = "CDC:ErrHandleKeyOnly", "CDC:ErrClaimCheckUnavailable"

Pair: TypeAlias = tuple[bytes | None, bytes]


@dataclass
class Message:
    """A message in pieces: the JSON of its key (Open Protocol alone) and of its value."""

    protocol: str
    key: dict[str, Any]
    value: dict[str, Any]
    compression: str = "none"

    @property
    def open(self) -> bool:
        """True for Open Protocol."""
        return self.protocol == "open-protocol"

    @property
    def row(self) -> dict[str, Any]:
        """The columns: Open Protocol's `u`, or Canal-JSON's first of `data`."""
        found: dict[str, Any] = self.value["u"] if self.open else self.value["data"][0]
        return found

    def column(self, name: str, value: Any, code: int | None = None, mysql_type: str | None = None) -> None:
        """Set a column's value, and how it is declared."""
        if self.open:
            told = self.row.setdefault(name, {"t": 3, "f": 65})
            told["v"] = value
            told["t"] = told["t"] if code is None else code
            return
        self.row[name] = str(value) if isinstance(value, int) else value
        self.value["mysqlType"][name] = self.value["mysqlType"].get(name, "int") if mysql_type is None else mysql_type
        self.value["sqlType"].setdefault(name, 4)

    def named(self, schema: Any, table: Any) -> None:
        """Give the row to another table."""
        if self.open:
            self.key |= {"scm": schema, "tbl": table}
        else:
            self.value |= {"database": schema, "table": table}

    def at(self, ts: Any) -> None:
        """Set the commit_ts."""
        if self.open:
            self.key["ts"] = ts
        else:
            self.value["_tidb"]["commitTs"] = ts

    def told(self, **more: Any) -> None:
        """Say something of the row as a whole: `ohk` and `ccl` in Open Protocol, its names in Canal-JSON's `_tidb`."""
        if self.open:
            self.key |= more
        else:
            names = {"ohk": "onlyHandleKey", "ccl": "claimCheckLocation"}
            self.value["_tidb"] |= {names[name]: one for name, one in more.items()}

    def packed(self, body: bytes | None = None, *, compress: bool = True) -> Pair:
        """The bytes; `body` is the JSON of the value, if it is not what the pieces say."""
        key, body = dumped(self.key), dumped(self.value) if body is None else body
        if compress and self.compression != "none":
            body = compressed_by(body, self.compression)
        return (struct.pack(">QQ", 1, len(key)) + key, framed(body)) if self.open else (None, body)


def dumped(told: object) -> bytes:
    """JSON as the protocols write it."""
    return json.dumps(told, separators=(",", ":")).encode()


def framed(body: bytes) -> bytes:
    """A value of Open Protocol behind its length."""
    return len(body).to_bytes(8, "big") + body


def written(protocol: str, event: Event, compression: str = "none") -> Pair:
    """An event as a message."""
    encoder = BatchEncoder(
        EncodeOptions(
            protocol=protocol,
            enable_tidb_extension=protocol == "canal-json",
            max_batch_size=1,
            compression=compression,
        )
    )
    ((key, value),) = [(one.key, one.value) for one in (*encoder.append(event), *encoder.flush())]
    return key, value


def pieces(protocol: str, event: Event, compression: str) -> Message:
    """An event as a message in pieces."""
    return split(protocol, *written(protocol, event), compression)


def split(protocol: str, key: bytes | None, value: bytes, compression: str = "none") -> Message:
    """A message of one event in pieces."""
    key, value = (b"{}", value) if key is None else (key[16:], value[8:] or b"{}")
    return Message(protocol, json.loads(key), json.loads(value), compression)


Change: TypeAlias = Callable[[Message, random.Random], Pair | None]


@dataclass(frozen=True)
class Kind:
    """A kind of bad message: what it makes of a good one, and the codes that its letter may have; none if it is odd
    and its row arrives."""

    change: Change
    codes: tuple[str, ...]
    protocols: tuple[str, ...]
    compressed: bool

    @property
    def in_lakes_alone(self) -> bool:
        """True if only a lake finds it bad."""
        return bool({SCHEMA, DDL, "CDC:ErrUnsupported"} & set(self.codes))


KINDS: dict[str, Kind] = {}


def kind(*codes: str, only: str = "", odd: bool = False, compressed: bool = False) -> Callable[[Change], Change]:
    """Enter a kind under its function's name; those `compressed` are of topics with compressed values alone."""

    def enter(change: Change) -> Change:
        protocols = (only,) if only else ("open-protocol", "canal-json")
        KINDS[change.__name__] = Kind(change, () if odd else codes or (DECODE,), protocols, compressed)
        return change

    return enter


@kind()
def undecodable_bytes(message: Message, chance: random.Random) -> Pair:
    return b"junk" if message.open else None, chance.randbytes(chance.randint(1, 400))


@kind()
def cut_message(message: Message, chance: random.Random) -> Pair:
    key, value = message.packed()
    return key, value[: chance.randint(1, len(value) - 1)]


@kind()
def nothing_at_all(message: Message, chance: random.Random) -> Pair:
    return (None, b"")


@kind()
def wrong_magic(message: Message, chance: random.Random) -> Pair | None:
    if not message.open:
        message.value["type"] = "TIDB_UNHEARD"
        return None
    key, value = message.packed()
    assert key is not None
    return chance.choice([0, 2, 1 << 63]).to_bytes(8, "big") + key[8:], value


@kind(only="open-protocol")
def lengths_that_lie(message: Message, chance: random.Random) -> Pair:
    key, value = message.packed()
    length = chance.choice([0, 1, len(value), 1 << 31, (1 << 64) - 1])
    return key, length.to_bytes(8, "big") + value[8:]


@kind(BAD_TEXT, DECODE)
def invalid_utf8(message: Message, chance: random.Random) -> Pair:
    return message.packed(dumped(message.value).replace(b'"w":', b'"\xff\xfe\xed\xa0\x80":'))


@kind(BAD_TEXT, DECODE)
def lone_surrogate(message: Message, chance: random.Random) -> None:
    message.named("s", "t\ud800")


@kind()
def deep_nesting(message: Message, chance: random.Random) -> Pair:
    return message.packed(b'{"u":' * 100_000)


@kind()
def number_of_many_digits(message: Message, chance: random.Random) -> Pair:
    return _with_number(message, b"9" * 5_000)


@kind()
def absurd_number(message: Message, chance: random.Random) -> Pair:
    return _with_number(message, chance.choice([b"1e999", b"NaN", b"-Infinity"]))


def _with_number(message: Message, number: bytes) -> Pair:
    message.column("v", "NUMBER")
    return message.packed(dumped(message.value).replace(b'"NUMBER"', number))


@kind()
def list_for_a_value(message: Message, chance: random.Random) -> None:
    message.column("v", chance.choice([[1], {"a": 1}]))


@kind()
def list_for_the_row(message: Message, chance: random.Random) -> None:
    message.value["u" if message.open else "data"] = chance.choice([[], 1, "row"])


@kind()
def text_in_an_int(message: Message, chance: random.Random) -> None:
    message.column("v", "twelve")


@kind()
def int_out_of_range(message: Message, chance: random.Random) -> None:
    message.column("v", chance.choice([1 << 40, -(1 << 40), 1 << 70]))


@kind(odd=True)
def unknown_type(message: Message, chance: random.Random) -> None:
    value = message.row["w"]["v"] if message.open else message.row["w"]
    message.column("w", value, 99, chance.choice(["blurb", "", "decimal(-1)", "\x00"]))


@kind(odd=True)
def duplicate_keys(message: Message, chance: random.Random) -> Pair:
    head, mark, row = dumped(message.value).rpartition(b'{"u":' if message.open else b'"data":')
    return message.packed(head + mark + row.replace(b'"w":', b'"w":' + dumped(message.row["e"]) + b',"w":', 1))


@kind(odd=True)
def digits_of_other_scripts(message: Message, chance: random.Random) -> None:
    message.column("e", chance.choice(["\u00b2", "\u0663", "9" * 5_000]), 15, "varchar")


@kind(compressed=True)
def decompression_bomb(message: Message, chance: random.Random) -> Pair:
    from cramjam import lz4

    block = bytes(lz4.compress_block(bytes(4 << 20), store_size=False))
    frame = bytes.fromhex("04224d18607073") + (len(block).to_bytes(4, "little") + block) * 80 + bytes(4)
    return message.packed(frame, compress=False)


@kind(compressed=True)
def not_compressed(message: Message, chance: random.Random) -> Pair:
    return message.packed(chance.choice([None, b"\x04\x22\x4d\x18", bytes(100)]), compress=False)


@kind()
def second_row_is_bad(message: Message, chance: random.Random) -> Pair | None:
    if not message.open:
        message.value["data"].append({**message.row, "id": "1000000", "v": "twelve"})
        return None
    key, value = message.packed()
    message.column("v", "twelve")
    assert key is not None
    return key + key[8:], value + message.packed()[1]


@kind()
def columns_a_and_A(message: Message, chance: random.Random) -> None:  # noqa: N802
    message.column("a", 1, 3, "int")
    message.column("A", 2, 3, "int")


@kind()
def five_thousand_columns(message: Message, chance: random.Random) -> None:
    for number in range(5_000):
        message.column(f"c{number}", number, 3, "int")


@kind()
def long_column_name(message: Message, chance: random.Random) -> None:
    message.column("c" * 5_000, 1, 3, "int")


@kind(BAD_TS, DECODE)
def negative_ts(message: Message, chance: random.Random) -> None:
    message.at(-chance.randint(1, 1 << 62))


@kind(BAD_TS, DECODE)
def ts_beyond_all(message: Message, chance: random.Random) -> None:
    message.at(chance.choice([1 << 63, 1 << 64, 10**30]))


@kind()
def ts_that_is_a_text(message: Message, chance: random.Random) -> None:
    message.at(chance.choice(["soon", [], {}, 1.5]))


@kind("CDC:ErrNoCommitTs", only="canal-json")
def no_ts(message: Message, chance: random.Random) -> None:
    del message.value["_tidb"]


@kind("CDC:ErrUnsupported")
def ddl_that_is_not_followed(message: Message, chance: random.Random) -> Pair:
    return _query(message, "CREATE TABLE s.made (id INT PRIMARY KEY) AS SELECT 1")


@kind()
def names_that_are_numbers(message: Message, chance: random.Random) -> None:
    message.named(chance.choice([1, [], {}]), "t")


@kind()
def bad_key_beside_a_good_value(message: Message, chance: random.Random) -> Pair | None:
    if message.open:
        return chance.choice([b"", b"\x00" * 16, b"key"]), message.packed()[1]
    message.value["pkNames"] = chance.choice(["id", {"id": 1}, [1]])
    return None


@kind(HANDLE_ONLY)
def handle_key_without_upstream(message: Message, chance: random.Random) -> None:
    for name in ("v", "w", "d", "n"):
        del message.row[name]
    message.told(ohk=True)


@kind(CLAIM_CHECK)
def claim_check_without_file(message: Message, chance: random.Random) -> None:
    message.told(ccl=f"file:///claims/{chance.randbytes(8).hex()}.json")


@kind(CLAIM_CHECK)
def claim_check_of_a_long_name(message: Message, chance: random.Random) -> None:
    message.told(ccl=f"file:///claims/{'n' * chance.choice([256, 300, 5_000])}.json")


@kind(CLAIM_CHECK)
def claim_check_in_a_loop(message: Message, chance: random.Random) -> None:
    message.told(ccl="file:///claims/loop.json")


@kind(CLAIM_CHECK)
def claim_check_that_is_a_pipe(message: Message, chance: random.Random) -> None:
    message.told(ccl=f"file:///claims/{chance.choice(['pipe', 'folder'])}.json")


@kind(CLAIM_CHECK, DECODE)
def claim_check_of_a_strange_name(message: Message, chance: random.Random) -> None:
    message.told(ccl=chance.choice(["..", "", "/", "file:///a/\x00b", "http://[::1", "ftp://u:p@h/x\ud800y"]) or "/")


@kind(SCHEMA)
def column_that_no_table_has(message: Message, chance: random.Random) -> None:
    message.column(f"zz{chance.randint(0, 3)}", 1, 3, "int")


@kind(SCHEMA)
def declared_otherwise(message: Message, chance: random.Random) -> None:
    message.column("v", "a text", 15, "varchar")


@kind(SCHEMA)
def value_that_is_no_time(message: Message, chance: random.Random) -> None:
    message.column("d", chance.choice(["yesterday", "2026-13-41 99:00:00", "9" * 400]), 12, "datetime")


@kind(SCHEMA)
def value_that_is_no_decimal(message: Message, chance: random.Random) -> None:
    message.column("n", chance.choice(["a lot", "1.2.3", "9" * 39, "9" * 400]), 246, "decimal")


@kind(SCHEMA, DECODE)
def no_key(message: Message, chance: random.Random) -> None:
    del message.row["id"]


@kind(SCHEMA, DECODE)
def null_for_a_key(message: Message, chance: random.Random) -> None:
    message.column("id", None)


@kind(BAD_TS)
def watermark_of_a_time_to_come(message: Message, chance: random.Random) -> Pair:
    days = chance.randint(3, 30_000)
    return written(message.protocol, Resolved(int(time.time() * 1000) + days * 86_400_000 << 18), message.compression)


def _query(message: Message, query: str) -> Pair:
    ts = message.key["ts"] if message.open else message.value["_tidb"]["commitTs"]
    ddl = Ddl(schema="s", table="t", query=query, type=5, commit_ts=ts)
    return written(message.protocol, ddl, message.compression)


@kind(DDL)
def unreadable_ddl(message: Message, chance: random.Random) -> Pair:
    texts = ["ALTER TABEL t", "CREATE TABLE t (", "((((" * 5_000, "ALTER TABLE t ADD"]
    return _query(message, chance.choice(texts))


@kind(SCHEMA)
def ddl_that_does_not_fit(message: Message, chance: random.Random) -> Pair:
    texts = ["ALTER TABLE `s`.`t` DROP COLUMN `nope`", "ALTER TABLE `s`.`t` ADD COLUMN `v` INT"]
    return _query(message, chance.choice(texts))
