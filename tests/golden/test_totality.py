"""Any bytes give events or a DecodeError: hypothesis on arbitrary bytes, and recordings with bytes changed.

    1,000 damaged messages in each run of the fast tests    5,000 in `make test`    1,000,000 in `make soak`

All ways of reading see each of them: the plain decoder, the columnar one, `sniff`, framed streams; what one of them
refuses all refuse.  TIDEGATE_SEED=n makes other ones, TIDEGATE_FUZZ=n as many of them in `make soak`.
"""

import os
import random
import sys
from contextlib import suppress
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.counts import some
from tests.fuzz.mutation import mutated
from tests.golden.codec_cases import cases, variants
from tidegate.codec import DecodeOptions, decode, read_events, sniff
from tidegate.codec.claim import claim_name, open_claim
from tidegate.codec.columnar import decode_chunk
from tidegate.codec.neutral import error_object, event_object, render
from tidegate.codec.stream import pack_frame, read_frames
from tidegate.model.errors import DecodeError

FUZZ = int(os.environ.get("TIDEGATE_FUZZ", "1000000"))
SEED = int(os.environ.get("TIDEGATE_SEED", "20260101"))
CHUNK = 50
ALL_OPTIONS = [
    DecodeOptions(protocol=protocol, compression=compression, legacy=legacy)
    for protocol in ("open-protocol", "canal-json")
    for compression in ("none", "snappy", "lz4")
    for legacy in (False, True)
]


def survives(key: bytes | None, value: bytes | None, options: DecodeOptions) -> bool:
    """Whether the message gave events; every event and error must print, too."""
    try:
        for event in decode(key, value, options):
            render(event_object(event))
    except DecodeError as error:
        render(error_object(0, error))
        return False
    return True


@settings(max_examples=300, deadline=None)
@given(st.none() | st.binary(), st.none() | st.binary(), st.sampled_from(ALL_OPTIONS))
def test_arbitrary_bytes(key: bytes | None, value: bytes | None, options: DecodeOptions) -> None:
    """Bytes that nobody meant as a message are refused with a DecodeError, or are one."""
    survives(key, value, options)


json_text = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats() | st.text(st.characters(), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["u", "p", "d", "t", "f", "h", "v", "a", "q", "ts", "scm", "tbl", "data", "old", "type"]),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(json_text, json_text, st.sampled_from(["INSERT", "UPDATE", "DELETE"]))
def test_json_of_any_shape(one: object, two: object, change: str) -> None:
    """Well-formed JSON of the wrong shape is refused by name, wherever a value can stand."""
    import json

    row = json.dumps(one).encode()
    head = json.dumps({"ts": 1, "scm": "a", "tbl": "b", "t": 1}).encode()
    key = (1).to_bytes(8, "big") + len(head).to_bytes(8, "big") + head
    survives(key, len(row).to_bytes(8, "big") + row, DecodeOptions(protocol="open-protocol"))
    message = {"database": "a", "table": "b", "type": change, "data": one, "old": two, "mysqlType": {"a": "int"}}
    survives(None, json.dumps(message).encode(), DecodeOptions(protocol="canal-json"))


@settings(max_examples=100, deadline=None)
@given(st.binary(), st.text())
def test_frames_and_claim_checks_are_total(raw: bytes, location: str) -> None:
    """Arbitrary framed input and claim-check files are refused in the same way."""
    for read in (
        lambda: list(read_frames(raw)),
        lambda: open_claim(raw, DecodeOptions(protocol="canal-json")),
        lambda: claim_name(location),
    ):
        with suppress(DecodeError):
            read()


@cache
def corpus() -> list[tuple[DecodeOptions, list[tuple[bytes, bytes]]]]:
    """Small recorded messages, by how they are to be read."""
    found = dict[DecodeOptions, list[tuple[bytes, bytes]]]()
    for path in variants():
        for case in cases(path):
            small = [(key or b"", value or b"") for key, value in case.messages if len(value or b"") < 4096]
            found.setdefault(case.options, []).extend(small)
    return list(found.items())


def reframed(value: bytes) -> bytes:
    """`value` behind its right length, so that the damage reaches the JSON."""
    return len(value).to_bytes(8, "big") + value


def damaged(key: bytes, value: bytes, options: DecodeOptions, chance: random.Random) -> tuple[bytes, bytes]:
    """A message with its key or its value changed, mostly behind right lengths."""
    if chance.random() < 0.3:
        whole = key and chance.random() < 0.7
        return (key[:8] + reframed(mutated(key[16:], chance)) if whole else mutated(key, chance)), value
    if options.protocol == "open-protocol" and chance.random() < 0.8:
        return key, reframed(mutated(value[8:], chance))
    return key, mutated(value, chance)


def agreeing(messages: list[tuple[bytes, bytes]], options: DecodeOptions, chance: random.Random) -> set[int]:
    """Which messages the plain decoder refuses; every other reader survives them, and the columnar one agrees."""
    refused = {index for index, (key, value) in enumerate(messages) if not survives(key, value, options)}
    assert {one.message for one in decode_chunk(messages, options).rest if one.error} == refused
    for key, value in messages:
        with suppress(DecodeError):
            sniff(key, value)
    framed = b"".join([pack_frame(key, value) for key, value in messages])
    told = list[int]()
    for _ in read_events(framed, options, lambda place, _error: told.append(place.message)):
        pass
    assert set(told) == refused
    for _ in read_events(mutated(framed, chance), options, lambda _place, _error: None):
        pass
    return refused


def fuzz(rounds: int, seed: int) -> tuple[int, int]:
    """How many damaged messages still decoded, and how many were refused; chunks are of one configuration."""
    chance = random.Random(seed)
    all_refused = 0
    for number in range(rounds // CHUNK):
        options, messages = chance.choice(corpus())
        chunk = [damaged(*chance.choice(messages), options, chance) for _ in range(CHUNK)]
        try:
            all_refused += len(agreeing(chunk, options, chance))
        except Exception as error:
            raise AssertionError(f"TIDEGATE_SEED={SEED}: chunk {number} of {seed}, {options}: {chunk}") from error
    return rounds // CHUNK * CHUNK - all_refused, all_refused


def check_damage(rounds: int, seed: int) -> tuple[int, int]:
    """Both outcomes happen to damaged messages, and no other."""
    decoded, refused = fuzz(rounds, seed)
    assert min(decoded, refused) > rounds // 50
    return decoded, refused


def test_some_damaged_recordings() -> None:
    """A thousand damaged messages: each decodes or is refused, by all readers alike."""
    check_damage(1000, SEED)


@pytest.mark.slow
def test_damaged_recordings() -> None:
    """The same with five thousand, in the soak with twenty."""
    check_damage(some(5_000, 20_000), SEED + 1)


@pytest.mark.soak
@pytest.mark.parametrize("part", range(20))
def test_damaged_recordings_soak(part: int, capsys: pytest.CaptureFixture[str]) -> None:
    """The same with TIDEGATE_FUZZ in all, a million unless it says otherwise, in twenty parts."""
    decoded, refused = check_damage(FUZZ // 20, SEED + 2 + part)
    with capsys.disabled():
        sys.stdout.write(f"\ndamaged recordings, seed {SEED + 2 + part}: {decoded} decoded, {refused} refused\n")
