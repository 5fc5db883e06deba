"""Base64 within strings, which TEXT and BLOB have in Open Protocol, read by a compiled loop as Python reads it."""

import base64
import binascii

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.codec.columnar.escapes import BASE64, undo
from tidegate.model.compiled import windows

LETTERS = b"AQgw+/=z\n-"


def undone(text: bytes) -> bytes | None:
    """What the loop makes of a text in place; None if it refuses it."""
    before = b"before"
    data = np.frombuffer(before + text + bytes(16), np.uint8).copy()
    end = undo(BASE64, data, windows(data), len(before), len(before) + len(text))
    assert data[: len(before)].tobytes() == before
    return None if end < 0 else data[len(before) : end].tobytes()


@given(st.binary(max_size=70))
def test_all_bytes(content: bytes) -> None:
    """Of any length, with one or two signs of padding or none."""
    assert undone(base64.b64encode(content)) == content


@given(st.lists(st.sampled_from(LETTERS), max_size=20).map(bytes), st.integers(0, 2))
@example(b"QUJDREVGR0hJSktM", 1)
def test_texts_that_are_none(text: bytes, padding: int) -> None:
    """A text is refused where Python refuses it, and where its last letter has bits that no byte takes."""
    text += b"=" * padding
    try:
        content = base64.b64decode(text, validate=True)
    except binascii.Error:
        content = None
    if content is not None and base64.b64encode(content) != text:
        content = None
    assert undone(text) == content
