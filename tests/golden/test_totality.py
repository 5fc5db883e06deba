"""Any bytes give events or a DecodeError: hypothesis on arbitrary bytes, and recordings with bytes changed."""

import os
import random
from contextlib import suppress
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.golden.codec_cases import cases, variants
from tidegate.codec import DecodeOptions, decode
from tidegate.codec.claim import claim_name, open_claim
from tidegate.codec.frame import read_frames
from tidegate.codec.neutral import error_object, event_object, render
from tidegate.model.errors import DecodeError

FUZZ = int(os.environ.get("TIDEGATE_FUZZ", "20000"))
ALL_OPTIONS = [
    DecodeOptions(protocol=protocol, compression=compression, legacy=legacy)
    for protocol in ("open-protocol", "canal-json")
    for compression in ("none", "snappy", "lz4")
    for legacy in (False, True)
]
SPLICES = [
    b"null", b"true", b"-1", b"1e999", b"NaN", b"[]", b"{}", b'""', b'"x"', b"18446744073709551616", b"9" * 5000,
    b"[" * 20_000, b'{"a":' * 3000, b'"\\ud800"', b'"\\\\x"', b"\xff", b"\x00", b"\xed\xa0\x80", b'"u":{}', b'"d":{}',
    b'"t":1', b'"p":{"t":1,"v":2}', b"\x7f" + b"\xff" * 7, b"1.5", b'"YQ="', b'{"v":[1]}',
]  # fmt: skip


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
def corpus() -> list[tuple[bytes, bytes, DecodeOptions]]:
    """Small recorded messages of every configuration."""
    return [
        (key or b"", value or b"", case.options)
        for path in variants()
        for case in cases(path)
        for key, value in case.messages
        if len(value or b"") < 4096
    ]


def mutated(raw: bytes, chance: random.Random) -> bytes:
    """`raw` with one to four bytes flipped, cut, repeated or replaced by something awkward."""
    changed = bytearray(raw)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(changed) + 1)
        match chance.randrange(5):
            case 0 if changed:
                changed[at % len(changed)] = chance.randrange(256)
            case 1:
                del changed[at : at + chance.randint(1, 8)]
            case 2:
                changed[at:at] = changed[at : at + chance.randint(1, 40)]
            case 3:
                changed[at : at + chance.randint(0, 6)] = chance.choice(SPLICES)
            case _ if changed:
                changed[at % len(changed)] ^= 1 << chance.randrange(8)
    return bytes(changed)


def reframed(value: bytes) -> bytes:
    """`value` behind its right length, so that the damage reaches the JSON."""
    return len(value).to_bytes(8, "big") + value


def fuzz(rounds: int, seed: int) -> tuple[int, int]:
    """How many damaged messages still decoded, and how many were refused."""
    chance = random.Random(seed)
    outcome = {True: 0, False: 0}
    for _ in range(rounds):
        key, value, options = chance.choice(corpus())
        if chance.random() < 0.3:
            key = (
                key[:8] + reframed(mutated(key[16:], chance)) if key and chance.random() < 0.7 else mutated(key, chance)
            )
        elif options.protocol == "open-protocol" and chance.random() < 0.8:
            value = reframed(mutated(value[8:], chance))
        else:
            value = mutated(value, chance)
        outcome[survives(key, value, options)] += 1
    return outcome[True], outcome[False]


def test_damaged_recordings() -> None:
    """Twenty thousand damaged messages: each decodes or is refused, and both happen."""
    decoded, refused = fuzz(min(FUZZ, 20_000), seed=20_260_101)
    assert decoded > 500
    assert refused > 500


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
def test_damaged_recordings_soak(seed: int) -> None:
    """The same with TIDEGATE_FUZZ messages a seed."""
    decoded, refused = fuzz(FUZZ, seed)
    assert decoded + refused == FUZZ
