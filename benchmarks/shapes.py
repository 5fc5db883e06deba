"""Rows as people have them: wide tables, documents, escapes, binaries, NULLs, many tables, images in part.

    CASES   name ──► Shape        what its tables and messages are like
    chunks(CASES["16 columns"], "canal-json", 4_000)     ──► messages: 60 % UPDATE, 25 % INSERT, 15 % DELETE
    topic_of(rows, shape, "canal-json")                  ──► (partition, key, value) of a whole topic, its DDLs first

Tables are defined by SQL, values follow the columns' types, and our own encoder writes the messages, whose bytes are
TiCDC's (tests/golden).  Always the same for the same number of rows.  Rows of `rows_of` are each another one, those of
`churn` come again: an old row is what the row was.

    16, 40, 120 columns    numbers, short texts, decimals, times, by turns
    documents              three JSON documents of some 300 bytes in 16 columns
    long texts             two texts of some 1,500 characters, with quotes, line ends and letters beyond ASCII
    binaries               four columns of 64 random bytes
    half NULL              every other value
    20, 300 tables         of 16 columns, row by row another one: what a topic for all tables is
    updated columns        an UPDATE has the old values of changed columns alone
    content compatible     canal-json as official Canal has it
    handle keys            a DELETE has its handle key alone
    small transactions     each row has a commit_ts of its own
    16 a message           Open Protocol's messages of up to 16 rows
    large messages         an UPDATE is too large for its topic and comes as its handle key alone
"""

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from tidegate.codec import BatchEncoder, EncodeOptions, Message, WireTable, wire_table
from tidegate.codec.batch import MessageKind
from tidegate.model.event import Ddl, Delete, Insert, Resolved, RowChange, Update, Value
from tidegate.schema.state import SchemaState, apply_ddl

__all__ = ["CASES", "PROTOCOLS", "SCHEMA", "TS", "Shape", "chunks", "churn", "rows_of", "topic_of", "value_of"]

PROTOCOLS: Final = ("open-protocol", "canal-json")
SCHEMA: Final = "bench"
TS: Final = 1_700_000_000_000 << 18
_TYPES: Final = b'"mysqlType":{'
_TURNS: Final = (
    *("bigint", "int unsigned", "varchar(40)", "decimal(15,2)", "datetime(3)", "tinyint", "varchar(120)", "double"),
    *("timestamp", "char(8)", "smallint", "date", "enum('new','paid','sent')", "float", "varchar(20)", "int"),
)
_WORDS: Final = tuple(
    f"{word}{number}" for word in ("amber", "birch", "cedar", "delta", "ember") for number in range(40)
)
_ODD: Final = (
    'say "hi"',
    "two\nlines",
    "tab\there",
    "Größe",
    "日本語",
    "back\\slash",
    "emoji 🚲",
    "<a href='x'>&amp;</a>",
)


@dataclass(frozen=True)
class Shape:
    """Tables of these columns behind a bigint key, how often a value is NULL, and what the encoder is told."""

    columns: tuple[str, ...]
    nulls: float = 0.0
    tables: int = 1
    encode: Mapping[str, Any] = field(default_factory=dict)
    protocols: tuple[str, ...] = PROTOCOLS
    together: int = 10
    """Rows of a transaction."""
    batched: int = 1
    """Rows of a message of Open Protocol, at most."""
    whole: bool = True
    """Whether every row comes with all that its table needs."""

    @property
    def types(self) -> dict[str, str]:
        """The columns and their types in MySQL."""
        return {"id": "bigint", **{f"c{number}": kind for number, kind in enumerate(self.columns)}}

    @property
    def names(self) -> list[str]:
        """The tables."""
        return [f"t{number:03d}" for number in range(self.tables)]

    @property
    def statement(self) -> str:
        """CREATE TABLE of the first of them, without its name."""
        listed = ", ".join(f"c{number} {kind}" for number, kind in enumerate(self.columns))
        return f"(id bigint primary key, {listed})"


def _mixed(width: int) -> tuple[str, ...]:
    return tuple(_TURNS[number % len(_TURNS)] for number in range(width - 1))


CASES: Final[Mapping[str, Shape]] = {
    "16 columns": Shape(_mixed(16)),
    "40 columns": Shape(_mixed(40)),
    "120 columns": Shape(_mixed(120)),
    "documents": Shape((*_mixed(13), "json", "json", "json")),
    "long texts": Shape((*_mixed(14), "text", "text")),
    "binaries": Shape((*_mixed(12), *("varbinary(64)", "blob") * 2)),
    "half NULL": Shape(_mixed(16), nulls=0.5),
    "20 tables": Shape(_mixed(16), tables=20),
    "300 tables": Shape(_mixed(16), tables=300),
    "updated columns": Shape(_mixed(16), encode={"only_output_updated_columns": True}),
    "content compatible": Shape(_mixed(16), encode={"content_compatible": True}, protocols=("canal-json",)),
    "handle keys": Shape(_mixed(16), encode={"delete_only_output_handle_key_columns": True}),
    "small transactions": Shape(_mixed(16), together=1),
    "16 a message": Shape(_mixed(16), protocols=("open-protocol",), batched=16),
    "large messages": Shape(
        _mixed(16), encode={"large_message_handle": "handle-key-only", "max_message_bytes": 1_200}, whole=False
    ),
}


def rows_of(shape: Shape, count: int, seed: int = 1) -> Iterator[RowChange]:
    """Changes of rows, those of the tables by turns."""
    chance, common = random.Random(seed), _Common(shape)
    for number in range(count):
        row = (number, *(value_of(kind, chance, shape.nulls) for kind in shape.columns))
        draw = chance.random()
        if draw < 0.60:
            yield Update(before=row, after=_changed(shape, row, chance), **common.of(number))
        elif draw < 0.85:
            yield Insert(after=row, **common.of(number))
        else:
            yield Delete(before=row, **common.of(number))


def churn(
    shape: Shape, count: int, seed: int = 1, *, updates: float = 0.60, deletes: float = 0.15, base: int = 0
) -> Iterator[RowChange]:
    """Changes of rows that come again, those of the tables by turns: each table is empty at first, and the first `base`
    changes are INSERTs."""
    chance, common = random.Random(seed), _Common(shape)
    live: list[list[tuple[Value, ...]]] = [[] for _ in range(shape.tables)]
    touched: set[Value] = set()  # a transaction leaves one change of a row
    for number in range(count):
        if number % shape.together == 0:
            touched.clear()
        rows, draw = live[number % shape.tables], chance.random()
        index = chance.randrange(len(rows)) if rows else 0
        if number < base or not rows or rows[index][0] in touched or draw >= updates + deletes:
            rows.append((number, *(value_of(kind, chance, shape.nulls) for kind in shape.columns)))
            touched.add(number)
            yield Insert(after=rows[-1], **common.of(number))
            continue
        row = rows[index]
        touched.add(row[0])
        if draw < updates:
            rows[index] = _changed(shape, row, chance)
            yield Update(before=row, after=rows[index], **common.of(number))
        else:
            rows[index] = rows[-1]
            rows.pop()
            yield Delete(before=row, **common.of(number))


class _Common:
    """What every change of a shape says beside its images."""

    def __init__(self, shape: Shape) -> None:
        table = _table(shape.statement)
        assert len(table.columns) == len(shape.columns) + 1
        self.shape, self.always = shape, {"schema": SCHEMA, "fields": table.fields, "pk_names": table.pk_names}

    def of(self, number: int) -> dict[str, Any]:
        """Those of the change with this number."""
        table, ts = f"t{number % self.shape.tables:03d}", TS + (number // self.shape.together << 18)
        return {**self.always, "table": table, "commit_ts": ts}


def _changed(shape: Shape, row: tuple[Value, ...], chance: random.Random) -> tuple[Value, ...]:
    changed = (
        value_of(kind, chance, shape.nulls) if chance.random() < 0.25 else old
        for kind, old in zip(shape.columns, row[1:], strict=True)
    )
    return row[0], *changed


def chunks(shape: Shape, protocol: str, count: int, size: int = 4_000) -> list[list[tuple[bytes, bytes]]]:
    """The messages of `count` rows, by chunks of so many."""
    message_list = topic_of(rows_of(shape, count), shape, protocol, partitions=1, tables=False, resolved=False)
    pairs = [(key or b"", value) for _, key, value in message_list]
    return [pairs[start : start + size] for start in range(0, len(pairs), size)]


def topic_of(
    rows: Iterable[RowChange],
    shape: Shape,
    protocol: str,
    *,
    partitions: int = 2,
    tables: bool = True,
    resolved: bool = True,
) -> Iterator[tuple[int, bytes | None, bytes]]:
    """A topic's messages in sending order: CREATE TABLEs, rows by their keys, a last resolved ts."""
    options = EncodeOptions(
        protocol=protocol, enable_tidb_extension=protocol == "canal-json", max_batch_size=shape.batched, **shape.encode
    )
    encoders = [BatchEncoder(options, now_ms=lambda: 1_700_000_000_123) for _ in range(partitions)]
    table, chance, last = _table(shape.statement), random.Random(2), TS

    def pairs(messages: Iterable[Message]) -> Iterator[tuple[bytes | None, bytes]]:
        for word in messages:
            mixed = protocol == "canal-json" and word.kind is MessageKind.ROW
            yield word.key, _as_go(word.value or b"", chance) if mixed else word.value or b""

    for ddl in creates(shape) if tables else ():
        for partition in range(partitions) if protocol == "open-protocol" else (0,):
            for pair in pairs(encoders[partition].append(ddl)):
                yield partition, *pair
    for row in rows:
        image, last = row.before if isinstance(row, Delete) else row.after, row.commit_ts or last
        partition = int(str(image[0])) % partitions
        for pair in pairs(encoders[partition].append(row, table)):
            yield partition, *pair
    for partition, encoder in enumerate(encoders):
        for pair in pairs((*encoder.flush(), *(encoder.append(Resolved(last)) if resolved else ()))):
            yield partition, *pair


def creates(shape: Shape) -> Iterator[Ddl]:
    """CREATE TABLE of each table, before the first row."""
    for number, name in enumerate(shape.names):
        query, ts = f"CREATE TABLE `{name}` {shape.statement}", TS - (shape.tables - number << 18)
        yield Ddl(schema=SCHEMA, table=name, query=query, commit_ts=ts, type=3, canal_type="CREATE")


def _as_go(value: bytes, chance: random.Random) -> bytes:
    """The message with the members of `mysqlType` in any order, as a map of Go has them."""
    begun = value.index(_TYPES) + len(_TYPES)
    end = value.index(b"}", begun)
    members = value[begun:end].split(b',"')
    members[0] = members[0][1:]
    chance.shuffle(members)
    return value[:begun] + b'"' + b',"'.join(members) + value[end:]


@lru_cache(maxsize=len(CASES))
def _table(statement: str) -> WireTable:
    state, _ = apply_ddl(SchemaState(), Ddl(schema="bench", table="", query="create database bench", commit_ts=1), 1)
    ddl = Ddl(schema="bench", table="t", query=f"create table t {statement}", commit_ts=2)
    state, _ = apply_ddl(state, ddl, 1)
    return wire_table(state.tables["bench", "t"])


def value_of(kind: str, chance: random.Random, nulls: float) -> Value:
    """A value of a column of MySQL's type `kind`, or NULL now and then."""
    if nulls and chance.random() < nulls:
        return None
    value: Value = _MAKERS[kind.partition("(")[0]](chance)
    return value


def _words(chance: random.Random, count: int) -> str:
    return " ".join(chance.choices(_WORDS, k=count))


def _text(chance: random.Random) -> str:
    return " ".join(chance.choice(_ODD if chance.random() < 0.1 else _WORDS) for _ in range(220))


def _document(chance: random.Random) -> str:
    items = ", ".join(
        f'{{"sku": "{chance.choice(_WORDS)}", "qty": {chance.randrange(9)}, "price": {chance.random() * 100:.2f}}}'
        for _ in range(5)
    )
    return f'{{"items": [{items}], "note": "{_words(chance, 3)}", "paid": true}}'


def _moment(chance: random.Random) -> str:
    draw = chance.randrange
    return f"20{draw(10, 30)}-{draw(1, 13):02d}-{draw(1, 29):02d} {draw(24):02d}:{draw(60):02d}:{draw(60):02d}"


_MAKERS: Final[Mapping[str, Any]] = {
    "bigint": lambda chance: chance.randrange(-(2**40), 2**40),
    "int": lambda chance: chance.randrange(-(10**6), 10**6),
    "int unsigned": lambda chance: chance.randrange(2**32),
    "smallint": lambda chance: chance.randrange(-3000, 3000),
    "tinyint": lambda chance: chance.randrange(2),
    "varchar": lambda chance: _words(chance, 3),
    "char": lambda chance: chance.choice(_WORDS),
    "decimal": lambda chance: f"{chance.random() * 10_000:.2f}",
    "datetime": lambda chance: f"{_moment(chance)}.{chance.randrange(1000):03d}",
    "timestamp": _moment,
    "date": lambda chance: _moment(chance)[:10],
    "double": lambda chance: chance.random() * 1000,
    "float": lambda chance: chance.randrange(1000) / 8,
    "enum": lambda chance: chance.randrange(1, 4),
    "json": _document,
    "text": _text,
    "varbinary": lambda chance: chance.randbytes(64),
    "blob": lambda chance: chance.randbytes(64),
}
