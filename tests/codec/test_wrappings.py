"""What stands around messages: quoting, compression, frames, claim checks."""

import io

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.codec import DecodeOptions
from tidegate.codec.claim import claim_name, open_claim
from tidegate.codec.compression import _lz4_room, decompress
from tidegate.codec.go import unquote
from tidegate.codec.stream import pack_frame, read_frames
from tidegate.model.errors import ConfigError, DecodeError

SHORT = {7: "\\a", 8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}


def quoted(raw: bytes) -> str:
    """`raw` as Go quotes it, every code point above 0x7f thought unprintable."""
    text = raw.decode("utf-8", "surrogateescape")
    return "".join(_quoted_char(char) for char in text)


def _quoted_char(char: str) -> str:
    point = ord(char)
    if 0xDC80 <= point <= 0xDCFF:
        return f"\\x{point - 0xDC00:02x}"
    if point in SHORT:
        return SHORT[point]
    if point < 0x20 or point == 0x7F:
        return f"\\x{point:02x}"
    return char if point < 0x80 else f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"


@pytest.mark.slow
@given(st.binary(max_size=40) | st.text(max_size=20).map(str.encode))
def test_unquote_undoes_quote(raw: bytes) -> None:
    """Whatever the bytes, quoting and unquoting gives them back."""
    assert unquote(quoted(raw), "x") == raw


@pytest.mark.parametrize(
    ("text", "raw"),
    [
        ("", b""),
        ("plain 测😀'", "plain 测😀'".encode()),
        (r"\x01\x02\a\b\t\n\f\r\v", b"\x01\x02\a\b\t\n\f\r\v"),
        (r"\377\000\101", b"\xff\0A"),
        (r"\u00ad\U0001F600\xFf", "\xad😀".encode() + b"\xff"),
        (r"\\x41\"", b'\\x41"'),
        ("\udcff\\x00", b"\xff\0"),
    ],
)
def test_unquote(text: str, raw: bytes) -> None:
    """Each escape of Go's, mixed with characters that stand for themselves."""
    assert unquote(text, "x") == raw


@pytest.mark.parametrize(
    "text",
    [
        '"',
        "\n\\a",
        "\\",
        "\\q",
        "\\'",
        "\\x1",
        "\\x1g",
        "\\400",
        "\\12",
        "\\ud800",
        "\\u12",
        "\\U00110000",
        "\\N{DIGIT ONE}",
    ],
)
def test_unquote_refuses_what_go_refuses(text: str) -> None:
    """Bare quotes and line feeds, unknown or cut escapes, surrogates: DecodeError."""
    with pytest.raises(DecodeError):
        unquote(text, "x")


@given(st.binary(max_size=300), st.sampled_from(["none", "snappy", "lz4"]))
def test_decompress_undoes_compression(raw: bytes, name: str) -> None:
    """Raw snappy blocks and LZ4 frames come back as they were."""
    packed = {"none": bytes, "snappy": cramjam.snappy.compress_raw, "lz4": cramjam.lz4.compress}[name](raw)
    assert decompress(bytes(packed), name, "x", 0) == raw


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("snappy", b""),
        ("snappy", b"\xff\xff\xff\xff\x0f\x00"),
        ("snappy", b"\x05abc"),
        ("lz4", b""),
        ("lz4", b"no frame"),
        ("lz4", b"\x04\x22\x4d\x18\x60\x40"),
    ],
)
def test_broken_compression_is_refused(name: str, raw: bytes) -> None:
    """Cut, wrong or boasting input is a DecodeError, and no memory is taken for what it claims."""
    with pytest.raises(DecodeError, match=name):
        decompress(raw, name, "x", 0)


def test_large_lz4_and_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame that could hold more than the bound decodes when it does not, and is refused when it does."""
    monkeypatch.setattr("tidegate.codec.compression.MAX_BYTES", 1 << 20)
    raw = b"".join(index.to_bytes(4, "big") for index in range(100_000))
    frame = bytes(cramjam.lz4.compress(raw))
    assert decompress(frame, "lz4", "x", 0) == raw
    assert decompress(frame + frame, "lz4", "x", 0) == raw + raw
    assert len(raw) <= _lz4_room(frame, 1 << 30) <= 2 * len(raw)
    assert _lz4_room(frame[:7] + bytes(1 << 20), 1 << 30) == 0
    with pytest.raises(DecodeError):
        decompress(bytes(cramjam.lz4.compress(raw * 4)), "lz4", "x", 0)
    with pytest.raises(DecodeError):
        decompress(bytes(cramjam.snappy.compress_raw(bytes(2 << 20))), "snappy", "x", 0)


def test_unknown_compression() -> None:
    """A compression that is none of the three is a configuration error."""
    with pytest.raises(ConfigError, match="zstd"):
        decompress(b"", "zstd", "x", 0)


messages = st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=20)), max_size=5)


@given(messages)
def test_frames_round_trip(found: list[tuple[bytes, bytes]]) -> None:
    """What is written is read, from bytes, from a stream, and from a pipe that gives a byte at a time."""
    raw = b"".join(pack_frame(key, value) for key, value in found)
    assert list(read_frames(raw)) == found
    assert list(read_frames(io.BytesIO(raw))) == found
    assert list(read_frames(Trickle(raw))) == found


class Trickle:
    """A stream that never gives more than one byte."""

    def __init__(self, raw: bytes) -> None:
        self.raw = io.BytesIO(raw)

    def read(self, size: int, /) -> bytes:
        """At most one byte."""
        return self.raw.read(min(size, 1))


@pytest.mark.parametrize("cut", range(1, 13))
def test_cut_frames_are_refused(cut: int) -> None:
    """A file that ends inside a message gives the messages before, then a DecodeError with the offset."""
    raw = pack_frame(b"k", b"v") + pack_frame(b"key", b"vv")[:cut]
    found = read_frames(raw)
    assert next(found) == (b"k", b"v")
    with pytest.raises(DecodeError) as caught:
        next(found)
    assert 10 <= caught.value.offset <= len(raw)


def test_frame_lengths_are_bounded() -> None:
    """A file of something else does not make us wait for gigabytes."""
    with pytest.raises(DecodeError, match="framed"):
        list(read_frames(b'{"ts":1,"t":3}'))
    assert pack_frame(None, None) == bytes(8)


@pytest.mark.parametrize(
    ("location", "name"),
    [
        ("file:///tmp/x/a.json", "a.json"),
        ("s3://b/p/../../etc/passwd", "passwd"),
        ("a.json", "a.json"),
        ("c:\\x\\a", "a"),
    ],
)
def test_claim_name_is_the_base_name(location: str, name: str) -> None:
    """Directories in a location never count."""
    assert claim_name(location) == name


@pytest.mark.parametrize("location", ["", "x/", "..", "s3://b/..", "a\0b", "x\\"])
def test_claim_names_that_are_none(location: str) -> None:
    """A location without a file name is refused."""
    with pytest.raises(DecodeError):
        claim_name(location)


def test_claim_bodies() -> None:
    """A file is key and value in base64, or the raw value when configured so; else a DecodeError."""
    plain = DecodeOptions(protocol="canal-json")
    raw = DecodeOptions(protocol="canal-json", claim_check_raw_value=True)
    assert open_claim(b'{"key":"aw==","value":"dg=="}', plain) == (b"k", b"v")
    assert open_claim(b'{"key":null,"value":"dg=="}', plain) == (None, b"v")
    assert open_claim(b"anything", raw) == (None, b"anything")
    for body in (b"", b"{}", b'{"value":1}', b'{"value":"*"}', b'{"key":"a","value":""}'):
        with pytest.raises(DecodeError):
            open_claim(body, plain)
