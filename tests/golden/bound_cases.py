r"""Inputs made to be slow or large to read, each of about as many bytes as asked for.

    family      construction                                    aimed at
    columns     one row of ever more columns                    layouts, lookups by name
    rows        one message of ever more rows or events         objects beside few bytes
    nesting     [[[[ and {"a":{"a":                             recursion
    escapes     \\\\ \" \u0041 \x41                             patterns that go back and forth
    numbers     999…, 0.999…, 1e999…                            conversions of long digits
    lengths     many of 0, or one of 2^63                       slices, and memory taken in advance
    lists       "x":[[],[],[],…                                 objects for what nobody asked for
    tables      a chunk of one table or layout a message        what the columnar decoder learns

A family is a function from a size to messages, and the options to read them with.
"""

import json
from collections.abc import Callable
from typing import Final, TypeAlias

from tidegate.codec import DecodeOptions

Messages: TypeAlias = list[tuple[bytes | None, bytes | None]]
Family: TypeAlias = Callable[[int], Messages]

OPEN, CANAL = DecodeOptions(protocol="open-protocol"), DecodeOptions(protocol="canal-json")
LEGACY = {
    "open-protocol": DecodeOptions(protocol="open-protocol", legacy=True),
    "canal-json": DecodeOptions(protocol="canal-json", legacy=True),
}
HEAD: Final = b'{"ts":5,"scm":"s","tbl":"t","t":1}'
BAD_CELL: Final = b'"b":{"t":15,"f":0,"v":"\xff"},'
BAD_MEMBER: Final = b'"sql":"\xff",'
"""What sends a message the way of texts that are not UTF-8."""


def framed(*parts: bytes) -> bytes:
    """Each behind its length."""
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)


def open_message(*values: bytes, head: bytes = HEAD) -> tuple[bytes, bytes]:
    """An Open Protocol message of values with the same head."""
    return (1).to_bytes(8, "big") + framed(*[head] * len(values)), framed(*values)


def cell(value: bytes, code: int = 15, flag: int = 0) -> bytes:
    """A row of one column."""
    return b'{"u":{"a":{"t":%d,"f":%d,"v":%b}}}' % (code, flag, value)


def filled(unit: bytes, size: int) -> bytes:
    """`unit` again and again."""
    return unit * (size // len(unit) + 1)


def canal_row(
    data: bytes = b'{"a":"1"}',
    types: bytes = b'{"a":"int"}',
    old: bytes = b"null",
    keys: bytes = b"[]",
    more: bytes = b"",
) -> bytes:
    """A canal-json message as TiCDC writes it, whatever its parts are."""
    head = b'{%b"id":0,"database":"s","table":"t","pkNames":%b,"isDdl":false,"type":"%b","es":1,"ts":2,"sql":"",'
    rest = b'"sqlType":{},"mysqlType":%b,"old":%b,"data":[%b],"_tidb":{"commitTs":7}}'
    return head % (more, keys, b"INSERT" if old == b"null" else b"UPDATE") + rest % (types, old, data)


def named(unit: bytes, size: int) -> bytes:
    """Members of an object: `unit` with ever other numbers, commas between."""
    count = size // (len(unit) + 4) + 1
    return b",".join([unit % number for number in range(count)])


def nested(size: int) -> bytes:
    """Lists in lists."""
    return b"[" * (size // 2) + b"]" * (size // 2)


JUNK: Final[dict[str, Callable[[int], bytes]]] = {
    "nested-lists": nested,
    "nested-objects": lambda size: filled(b'{"a":', size),
    "open-lists": lambda size: b"[" * size,
    "empty-lists": lambda size: b"[%b[]]" % filled(b"[],", size),
    "empty-objects": lambda size: b"[%b{}]" % filled(b"{},", size),
    "short-numbers": lambda size: b"[%b1]" % filled(b"999,", size),
    "objects": lambda size: b"{%b}" % named(b'"%d":{}', size),
    "text": lambda size: b'"%b"' % filled(b"x", size),
    "backslashes": lambda size: b'"%b"' % filled(b"\\\\", size),
    "quotes": lambda size: b'"%b"' % filled(b'\\"', size),
    "bare-quotes": lambda size: filled(b'"', size),
    "unicode-escapes": lambda size: b'"%b"' % filled(b"\\u0041", size),
    "wide-escapes": lambda size: b'"%b"' % filled(b"\\u6e2c", size),
    "surrogates": lambda size: b'"%b"' % filled(b"\\ud800", size),
    "byte-escapes": lambda size: b'"%b"' % filled(b"\\\\x41", size),
    "code-points": lambda size: b'"%b"' % filled(b"\\\\u6e2c", size),
    "line-feeds": lambda size: b'"%b"' % filled(b"\\n", size),
    "bad-escapes": lambda size: b'"%b\\\\q"' % filled(b"\\\\u6e2c", size),
    "braces": lambda size: b'"%b"' % filled(b"}", size),
    "closings": lambda size: filled(b'",', size),
    "digits": lambda size: filled(b"9", size),
    "digits-text": lambda size: b'"%b"' % filled(b"9", size),
    "zeros-text": lambda size: b'"%b1"' % filled(b"0", size),
    "fraction": lambda size: b"0.%b" % filled(b"9", size),
    "exponent": lambda size: b"1e%b" % filled(b"9", size),
    "not-utf8": lambda size: b'"%b"' % filled(b"\xff", size),
    "half-utf8": lambda size: b'"%b"' % filled(b"\xe6\xb8", size),
}
"""What may stand where a value is wanted."""
NUMBERS: Final = ("digits", "digits-text", "zeros-text", "fraction", "exponent")
LISTS: Final = ("nested-lists", "open-lists", "empty-lists", "empty-objects", "short-numbers", "objects", "digits")
TEXTS: Final = ("backslashes", "quotes", "bare-quotes", "surrogates", "wide-escapes", "not-utf8", "half-utf8")


def _as_open(junk: Callable[[int], bytes], code: int, flag: int, before: bytes = b"") -> Family:
    return lambda size: [open_message(b'{"u":{%b%b' % (before, cell(junk(size), code, flag)[6:]))]


def _beside_open(junk: Callable[[int], bytes], before: bytes = b"") -> Family:
    return lambda size: [open_message(b'{"x":%b,"u":{%b%b' % (junk(size), before, cell(b'"1"')[6:]))]


def _as_canal(junk: Callable[[int], bytes], kind: bytes) -> Family:
    return lambda size: [(None, canal_row(b'{"a":%b}' % junk(size), b'{"a":"%b"}' % kind))]


def _beside_canal(junk: Callable[[int], bytes], before: bytes = b"") -> Family:
    return lambda size: [(None, canal_row(more=b'%b"x":%b,' % (before, junk(size))))]


def _columns(size: int) -> Messages:
    return [open_message(b'{"u":{%b}}' % named(b'"c%d":{"t":3,"f":0,"v":1}', size))]


def _partial(size: int) -> Messages:
    cells = [b'"c%d":{"t":3,"f":0,"v":1}' % number for number in range(size // 40)]
    return [open_message(b'{"u":{%b},"p":{%b}}' % (b",".join(cells), b",".join(cells[::-2])))]


def _unnamed(size: int) -> Messages:
    columns, old = named(b'"c%d":{"t":3,"f":0,"v":null}', size // 2), filled(b'"t":3,"f":0,"v":1,', size // 2)
    return [open_message(b'{"u":{%b},"p":{%b}}' % (columns, old[:-1]))]


def _canal_columns(size: int) -> Messages:
    """Every column is one of the primary key, and every other one changed."""
    names = [b'"c%d"' % number for number in range(size // 40)]
    data, old = ([name + b':"1"' for name in some] for some in (names, names[::-2]))
    types = [name + b':"int"' for name in names]
    image, olds, kinds, keys = (b",".join(some) for some in (data, old, types, names))
    return [(None, canal_row(b"{%b}" % image, b"{%b}" % kinds, b"[{%b}]" % olds, b"[%b]" % keys))]


def _elements(size: int) -> Messages:
    names = [b"e%d" % number for number in range(size // 30 + 1)]
    rows = b",".join([b'{"a":"%b"}' % name for name in names])
    kind = b",".join([b"'%b'" % name for name in names])
    return [(None, canal_row(rows, b'{"a":"enum(%b)"}' % kind))]


def _set_names(size: int) -> Messages:
    names = [b"e%d" % number for number in range(size // 14 + 1)]
    kind = b",".join([b"'%b'" % name for name in names])
    return [(None, canal_row(b'{"a":"%b"}' % b",".join(names), b'{"a":"set(%b)"}' % kind))]


def _kind(unit: bytes) -> Family:
    return lambda size: [(None, canal_row(b'{"a":"x"}', b'{"a":"enum(%b"}' % filled(unit, size)))]


def _many(make: Callable[[int], tuple[bytes | None, bytes | None]]) -> Family:
    """A chunk of ever more messages."""

    def made(size: int) -> Messages:
        first = make(0)
        count = size // (len(first[0] or b"") + len(first[1] or b"")) + 1
        return [make(number) for number in range(count)]

    return made


def _own_table(number: int) -> tuple[bytes, bytes]:
    return open_message(cell(b'"x"'), head=HEAD.replace(b'"t"', b'"t%d"' % number, 1))


def _own_layout(number: int) -> tuple[bytes, bytes]:
    return open_message(b'{"u":{"a%d":{"t":3,"f":0,"v":1}}}' % number)


def _own_canal_layout(number: int) -> tuple[None, bytes]:
    return None, canal_row(b'{"a%d":"1"}' % number, b'{"a%d":"int"}' % number)


def _one_in_nine(number: int) -> tuple[bytes, bytes]:
    return open_message(cell(b'"' + (b"\\\\q" if number % 9 == 0 else b"x") + b'"', flag=1))


def _template_and_stubs(size: int) -> Messages:
    """Rows with long column names, and others that end where those names would begin."""
    names = json.dumps("n" * 3900).encode()
    whole = [open_message(b'{"u":{%b:{"t":3,"f":0,"v":%d}}}' % (names, number)) for number in range(100)]
    return whole + [open_message(b'{"u":{}}')] * (size // 100)


def _stub_frames(size: int) -> Messages:
    return [((1).to_bytes(8, "big") + filled(b"}\0\0\0\0\0\0\0\0", size), filled(b"}\0\0\0\0\0\0\0\0", size))] * 2


LEARNING: Final = frozenset({"own-tables", "own-layouts", "own-canal-layouts"})
"""Families whose every message has a table or layout of its own."""
WIDE: Final = frozenset({"columns", "partial-old-image", "canal-columns"})
"""Families of a row with many columns."""

FAMILIES: Final[dict[str, tuple[DecodeOptions, Family]]] = {
    "columns": (OPEN, _columns),
    "partial-old-image": (OPEN, _partial),
    "unnamed-old-image": (OPEN, _unnamed),
    "canal-columns": (CANAL, _canal_columns),
    "pk-names": (CANAL, lambda size: [(None, canal_row(keys=b"[%b]" % named(b'"k%d"', size)))]),
    "types": (CANAL, lambda size: [(None, canal_row(types=b'{"a":"int",%b}' % named(b'"k%d":""', size)))]),
    "events": (OPEN, lambda size: [open_message(*[b'{"u":{}}'] * (size // 58 + 1))]),
    "row-events": (OPEN, lambda size: [open_message(*[cell(b'"x"')] * (size // 90 + 1))]),
    "resolved": (OPEN, lambda size: [((1).to_bytes(8, "big") + framed(*[b'{"ts":1,"t":3}'] * (size // 22)), b"")]),
    "canal-empty-rows": (CANAL, lambda size: [(None, canal_row(filled(b"{},", size) + b"{}"))]),
    "canal-rows": (CANAL, lambda size: [(None, canal_row(filled(b'{"a":"12"},', size) + b'{"a":"1"}'))]),
    "zero-lengths": (OPEN, lambda size: [((1).to_bytes(8, "big") + bytes(size), bytes(size))]),
    "zero-values": (OPEN, lambda size: [(open_message(b"")[0], bytes(size))]),
    "huge-lengths": (
        OPEN,
        lambda size: [((1).to_bytes(8, "big") + filled(b"\x7f" + b"\xff" * 7, size), b"\x7f" * size)],
    ),
    "elements": (LEGACY["canal-json"], _elements),
    "set-names": (LEGACY["canal-json"], _set_names),
    "open-quotes-in-type": (LEGACY["canal-json"], _kind(b"'a\\\\")),
    "escaped-quotes-in-type": (LEGACY["canal-json"], _kind(b"\\\\'")),
    "quotes-in-type": (LEGACY["canal-json"], _kind(b"'")),
    "canal-junk": (CANAL, lambda size: [(None, b"{" + filled(b'"a":1,', size))]),
    "own-tables": (OPEN, _many(_own_table)),
    "own-layouts": (OPEN, _many(_own_layout)),
    "own-canal-layouts": (CANAL, _many(_own_canal_layout)),
    "misfits": (OPEN, _many(_one_in_nine)),
    "stubs": (OPEN, _template_and_stubs),
    "stub-frames": (OPEN, _stub_frames),
    "empty-messages": (OPEN, lambda size: [(b"", b"")] * (size // 8)),
    **{f"open-{name}": (OPEN, _as_open(junk, 15, 1)) for name, junk in JUNK.items()},
    **{f"open-double-{name}": (OPEN, _as_open(JUNK[name], 5, 0)) for name in NUMBERS},
    **{f"open-bad-{name}": (OPEN, _as_open(JUNK[name], 15, 0, BAD_CELL)) for name in (*LISTS, *TEXTS)},
    **{f"open-beside-{name}": (OPEN, _beside_open(JUNK[name])) for name in LISTS},
    **{f"open-bad-beside-{name}": (OPEN, _beside_open(JUNK[name], BAD_CELL)) for name in LISTS},
    **{f"canal-{name}": (CANAL, _as_canal(junk, b"blob")) for name, junk in JUNK.items()},
    **{f"canal-int-{name}": (CANAL, _as_canal(JUNK[name], b"int")) for name in NUMBERS},
    **{f"canal-double-{name}": (CANAL, _as_canal(JUNK[name], b"double")) for name in NUMBERS},
    **{f"canal-beside-{name}": (CANAL, _beside_canal(JUNK[name])) for name in LISTS},
    **{f"canal-bad-beside-{name}": (CANAL, _beside_canal(JUNK[name], BAD_MEMBER)) for name in LISTS},
}
"""By name: how the messages are to be read, and what makes them."""
