"""Rows of a changelog become the messages that they came from."""

import gzip
from pathlib import Path

import pyarrow as pa
import pytest

from tidegate.changelog.files import landed_batch
from tidegate.codec import DecodeOptions, EncodeOptions
from tidegate.codec.columnar import ColumnarEncoder, decode_chunk, text_batch, typed_batch
from tidegate.codec.stream import read_frames
from tidegate.engine.change import ROWS_SCHEMA, decode_layout
from tidegate.model.errors import EncodeError
from tidegate.model.event import Field
from tidegate.model.mysql import MysqlType

SPEED = Path(__file__).parents[1] / "data" / "speed"
ID = Field("id", MysqlType.LONG, 11, handle=True, binary=True)
TEXT = Field("a", MysqlType.VARCHAR, 64)


@pytest.mark.parametrize("name", ["open_sysbench", "open_wide", "canal_sysbench", "canal_wide"])
@pytest.mark.parametrize("target", ["open-protocol", "canal-json"])
def test_what_landed_is_encoded_as_what_was_decoded(name: str, target: str) -> None:
    """Texts in lists or typed columns, the messages are the same, in both protocols."""
    messages = list(read_frames(gzip.decompress((SPEED / f"{name}.bin.gz").read_bytes())))
    reading = DecodeOptions(protocol="open-protocol" if name.startswith("open") else "canal-json")
    batch = decode_chunk(messages, reading).batches[0]
    landed = landed_batch("topic", 0, pa.array(range(len(messages)), pa.int64()), batch).cast(ROWS_SCHEMA)
    layout = decode_layout(landed.column("layout")[0].as_py())
    options = EncodeOptions(protocol=target, enable_tidb_extension=True)
    direct, read = (
        [*encoder.append(rows).pairs(), *encoder.flush().pairs()]
        for encoder, rows in (
            (ColumnarEncoder(options), batch),
            (ColumnarEncoder(options), typed_batch(text_batch(landed, layout.fields, layout.pk_names))),
        )
    )
    assert direct == read


def test_bytes_that_are_no_utf8() -> None:
    """A text that came broken is repaired as TiCDC does, one character a bad byte."""
    value = encoded([b"1", b"a\xff"], (ID, TEXT))
    assert b'"v":"a\\ufffd"' in value


def test_a_text_that_is_no_number() -> None:
    """A value that its column cannot have is an error that names the table."""
    with pytest.raises(EncodeError, match=r"s\.t"):
        encoded([b"one", b"a"], (ID, TEXT))


def encoded(image: list[bytes], fields: tuple[Field, ...]) -> bytes:
    """The value of the message of one INSERT."""
    row = dict.fromkeys(ROWS_SCHEMA.names) | {"commit_ts": 1, "op": "I", "schema": "s", "table": "t", "after": image}
    batch = typed_batch(text_batch(pa.Table.from_pylist([row], ROWS_SCHEMA), fields, ("id",)))
    encoder = ColumnarEncoder(EncodeOptions(protocol="open-protocol"), few_rows=0)
    encoder.append(batch)
    ((_, value),) = encoder.flush().pairs()
    return value
