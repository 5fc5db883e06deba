"""Messages as columns: the same sequence as a list of them, and pieces that hold all of it."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tidegate.codec.columnar.sweep import PackedTexts
from tidegate.source.kafka_messages import TopicMessage, TopicMessages

TEXTS = st.none() | st.binary(max_size=9)
SOME = st.lists(st.tuples(TEXTS, TEXTS), max_size=12).map(
    lambda pairs: [TopicMessage(7 + number, *pair) for number, pair in enumerate(pairs)]
)


@given(SOME, st.integers(-13, 13), st.integers(-13, 13))
def test_columns_are_the_list(some, start, stop):
    """Messages made of columns are the sequence that they were made of, sliced or not."""
    messages = TopicMessages.of(some)

    assert list(messages) == some
    assert list(messages[start:stop]) == some[start:stop]
    assert messages.size_bytes == sum(message.size_bytes for message in some)
    assert TopicMessages.of(messages) is messages


@given(st.lists(TEXTS, max_size=12), st.integers(-13, 13), st.integers(-13, 13))
def test_packed_texts_are_the_list(some, start, stop):
    """Texts in one array are the sequence that they were made of, sliced twice or not, and so are messages of them."""
    full = [text or b"" for text in some]
    packed = PackedTexts.of(full)
    packed.missing = np.array([text is None for text in some], np.bool_)
    messages = TopicMessages([*range(len(some))], [None] * len(some), packed)

    assert list(packed) == some
    assert list(packed[start:stop][1:]) == some[start:stop][1:]
    assert packed[start:stop].size_bytes == sum(map(len, full[start:stop]))
    assert [message.value for message in messages[start:stop]] == some[start:stop]
    assert [message.value for piece in messages.pieces(9) for message in piece] == some


@given(SOME, st.integers(0, 30))
def test_pieces_hold_everything_and_are_no_larger_than_asked(some, limit):
    """One message may be larger; a piece that could have taken the next message too would be one too small."""
    messages = TopicMessages.of(some)

    pieces = list(messages.pieces(limit))

    assert [message for piece in pieces for message in piece] == some
    assert all(piece.size_bytes <= limit or len(piece) == 1 for piece in pieces)
    assert all(piece.size_bytes + following[0].size_bytes > limit for piece, following in itertools.pairwise(pieces))
    assert not messages.offsets
