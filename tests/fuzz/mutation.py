"""Bytes changed at random, mostly in ways that readers of messages and texts find awkward."""

import random

__all__ = ["mutated"]

SPLICES = [
    b"null", b"true", b"-1", b"1e999", b"NaN", b"[]", b"{}", b'""', b'"x"', b"18446744073709551616", b"9" * 5000,
    b"[" * 20_000, b'{"a":' * 3000, b'"\\ud800"', b'"\\\\x"', b"\xff", b"\x00", b"\xed\xa0\x80", b'"u":{}', b'"d":{}',
    b'"t":1', b'"p":{"t":1,"v":2}', b"\x7f" + b"\xff" * 7, b"1.5", b'"YQ="', b'{"v":[1]}',
]  # fmt: skip


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
