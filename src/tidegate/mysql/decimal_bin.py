"""DECIMAL as bytes that sort as numbers: nine digits in four bytes, the sign in the first bit.

    1234567890.1234 as (14, 4)    1       234567890      1234
                                  81      0d fb 38 d2    04 d2
                                  1 digit 9 digits       4 digits

    digits of a part    leading ones of the integer part, nines; nines of the fraction, trailing ones
    bytes of n digits   0:0  1,2:1  3,4:2  5,6:3  7,8,9:4
    sign                negative: all bytes inverted; then the first bit of the whole is flipped

The scale is part of the value: (10, 2) gives Decimal("12.50").  Minus zero is written as zero.  A stand-alone decimal
has two bytes in front: precision and scale.

Source: TiDB pkg/types/mydecimal.go (WriteBin, FromBin).
"""

from decimal import Decimal
from typing import Final, NamedTuple

from tidegate.model.errors import DecodeError, EncodeError
from tidegate.mysql.cursor import take, take_byte
from tidegate.mysql.number import invert

CODEC: Final = "decimal"
MAX_PRECISION: Final = 81
"""What nine words hold; a column has at most 65 digits."""
MAX_SCALE: Final = 72
_WORD_DIGITS: Final = 9
_BYTES: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
"""Bytes that hold 0 to 9 digits."""


class DecimalForm(NamedTuple):
    """How many digits in all, and how many of them behind the point."""

    precision: int
    scale: int


def form_of(value: Decimal) -> DecimalForm:
    """Return the form of a number for which none is prescribed: the digits that it has, 0.00 as (2, 2)."""
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int), value
    scale = max(-exponent, 0)
    whole = len(digits) + exponent if any(digits) else 0
    return DecimalForm(max(max(whole, 0) + scale, 1), scale)


def encode_decimal(value: Decimal, form: DecimalForm) -> bytes:
    """Return the bytes of `value` in that form; EncodeError when it has more digits on either side of the point."""
    _check(form)
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise EncodeError(f"{value} is no DECIMAL")
    number = int("".join(map(str, digits)))
    shift = exponent + form.scale
    cut = 10 ** max(-shift, 0)
    if shift > form.precision or number % cut:
        raise EncodeError(f"{value} does not fit into DECIMAL{tuple(form)}")
    text = str(number * 10 ** max(shift, 0) // cut).zfill(form.precision)
    if len(text) > form.precision:
        raise EncodeError(f"{value} does not fit into DECIMAL{tuple(form)}")
    chunks = _cut(form)
    ends = [sum(chunks[: place + 1]) for place in range(len(chunks))]
    data = b"".join(
        int(text[end - size : end]).to_bytes(_BYTES[size], "big") for size, end in zip(chunks, ends, strict=True)
    )
    if sign and number:
        data = invert(data)
    return bytes([data[0] ^ 0x80]) + data[1:]


def decode_decimal(buf: bytes, at: int, form: DecimalForm) -> tuple[Decimal, int]:
    """Return a number of that form and the offset after it; DecodeError for digits that no decimal has."""
    chunks = _cut(form)
    size = sum(_BYTES[digits] for digits in chunks)
    data = take(buf, at, size, CODEC)
    data = bytes([data[0] ^ 0x80]) + data[1:]
    negative = data[0] >= 0x80
    data = invert(data) if negative else data
    text, start = "", 0
    for digits in chunks:
        width = _BYTES[digits]
        number = int.from_bytes(data[start : start + width], "big")
        if number >= 10**digits:
            raise DecodeError(f"{number} where {digits} digits stand", CODEC, at + start)
        text += str(number).zfill(digits)
        start += width
    unscaled = -int(text) if negative else int(text)
    return Decimal(f"{unscaled}E-{form.scale}"), at + size


def write_decimal(value: Decimal, form: DecimalForm) -> bytes:
    """Precision, scale, and the number."""
    return bytes(form) + encode_decimal(value, form)


def read_decimal(buf: bytes, at: int = 0) -> tuple[Decimal, DecimalForm, int]:
    """Return a stand-alone number, its form, and the offset after it."""
    form = DecimalForm(take_byte(buf, at, CODEC), take_byte(buf, at + 1, CODEC))
    if not 0 < form.precision <= MAX_PRECISION or not form.scale <= min(form.precision, MAX_SCALE):
        raise DecodeError(f"no decimal has {form.precision} digits, {form.scale} of them behind the point", CODEC, at)
    value, end = decode_decimal(buf, at + 2, form)
    return value, form, end


def _check(form: DecimalForm) -> None:
    if not 0 < form.precision <= MAX_PRECISION or not 0 <= form.scale <= min(form.precision, MAX_SCALE):
        raise EncodeError(f"no decimal has {form.precision} digits, {form.scale} of them behind the point")


def chunk_sizes(form: DecimalForm) -> list[tuple[int, int]]:
    """Return how many digits stand in each word, and in how many bytes."""
    return [(digits, _BYTES[digits]) for digits in _cut(form)]


def _cut(form: DecimalForm) -> tuple[int, ...]:
    """How many digits stand in each word."""
    words, leading = divmod(form.precision - form.scale, _WORD_DIGITS)
    fraction_words, trailing = divmod(form.scale, _WORD_DIGITS)
    chunks = (leading, *(_WORD_DIGITS,) * (words + fraction_words), trailing)
    return tuple(digits for digits in chunks if digits)
