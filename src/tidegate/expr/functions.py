"""Functions of expressions: how they are declared, and those for flow control, the session, casts and numbers.

`define` declares a function by its argument types, its result type and a plain Python function.

    "LPAD": define("tit", TEXT, pad)          LPAD(text, integer, text) -> text; NULL in, NULL out
    "CONCAT": define("t", TEXT, join, rest="t")          one text or more

    t  str, or bytes when one of the texts is binary     s  str     o  bytes in the text's character set
    i  int     n  int, Decimal or float     x  the same, a quotient with all its digits     f  float     d  Decimal
    m  Time    p  Duration                  j  JSON document        b  truth      v  the value as it is

`least`: the number of required arguments.  With `session`, the function takes the Context first; with `nulls`, it sees
NULL.

    flow       IF(a, b, c)   IFNULL(a, b)   NULLIF(a, b)   COALESCE(a, b, ..)   ISNULL(a)
    locks      GET_LOCK(name, s)  RELEASE_LOCK(name)  RELEASE_ALL_LOCKS()  IS_USED_LOCK(name)  IS_FREE_LOCK(name)
    session    DATABASE()  USER()  VERSION()  CONNECTION_ID()  LAST_INSERT_ID([n])  ROW_COUNT()  FOUND_ROWS()
    others     UUID()  MD5  SHA1  TIDB_CURRENT_TSO();  VALUES(c): what INSERT .. ON DUPLICATE KEY UPDATE would insert

    CAST, CONVERT to     result
    SIGNED, UNSIGNED     text by its leading digits, 64 bits that wrap around: CAST(-1 AS UNSIGNED) is 2**64 - 1
    DECIMAL(m, d)        rounded; too large becomes 99..9 with warning 1264 (1690 where TiDB says so)
    CHAR(n), BINARY(n)   cut; BINARY(n) is filled with NUL bytes
    DATE DATETIME TIME   rounded to the decimals; what is no such value is NULL with warning 1292
    JSON                 text is parsed, everything else becomes what it is inside a document

    ROUND(2.5) 3      ROUND(2.5e0) 2        halves go away from zero, those of doubles to even
    ROUND(1298, -1)   1300                  TRUNCATE cuts, also before the point
    FLOOR, CEIL       integers of integers and decimals, doubles of doubles
    SQRT(-1), LN(0)   NULL; MOD(n, 0), too

Source: MySQL manual, "Flow Control Functions", "Information Functions", "Locking Functions", "Cast Functions and
Operators", "Mathematical Functions"; TiDB's tidb_* functions, builtin_cast and builtin_math.
"""

import hashlib
import math
import random
import re
import uuid
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, Decimal
from typing import Any, Final, TypeAlias

from tidegate.expr.arithmetic import remainder, turned_sign
from tidegate.expr.comparison import as_shared, chosen, truth
from tidegate.expr.dialect import Node
from tidegate.expr.form import Build, compile_scalar
from tidegate.expr.result_type import (
    BINARY,
    BOOL,
    DATE,
    DOUBLE,
    INT,
    JSON,
    TEXT,
    UINT,
    agreed,
    as_member,
    datetime_type,
    decimal_type,
    digits_of,
    document_of,
    family_of,
    number_family,
    parse_document,
)
from tidegate.expr.result_type import time_type as span_type
from tidegate.expr.scope import Compiled, Evaluate, Row, Scope
from tidegate.model.errors import SqlRefused, redacted
from tidegate.model.mysql import STRINGS, Family
from tidegate.model.mysql import MysqlType as T
from tidegate.model.name import all_digits
from tidegate.model.table import ColumnType
from tidegate.mysql.conversion import Number, decimal_writer, round_at
from tidegate.mysql.encoding import MAX_INT, MAX_UINT
from tidegate.mysql.packed_time import Time
from tidegate.mysql.values import (
    EXACT,
    NO_CONTEXT,
    Bits,
    Context,
    JsonDatum,
    Named,
    SqlValue,
    Unsigned,
    compare,
    decimal_of,
    float_of,
    integer_of,
    moment_of,
    number_of,
    octets,
    round_span_ns,
    round_time,
    rounded,
    span_of,
    string_of,
    text_of,
    truth_of,
)

Reader: TypeAlias = Callable[[SqlValue, ColumnType, Context], Any]
Gives: TypeAlias = ColumnType | Callable[[Sequence[Compiled]], ColumnType]
Function: TypeAlias = Build
_WRONG_COUNT: Final = 1582
_ANY: Final = 1 << 16


_READERS: Final[Mapping[str, Reader]] = {
    "t": lambda value, kind, _context: text_of(value, kind),
    "s": lambda value, kind, _context: string_of(value, kind),
    "o": lambda value, kind, _context: octets(value, kind),
    "i": integer_of,
    "n": number_of,
    "x": number_of,
    "f": float_of,
    "d": decimal_of,
    "m": moment_of,
    "p": span_of,
    "j": document_of,
    "b": truth_of,
    "v": lambda value, _kind, _context: value,
}


@dataclass(frozen=True, slots=True)
class _Shape:
    takes: str
    gives: Gives
    apply: Callable[..., Any]
    least: int
    rest: str
    session: bool
    nulls: bool


def wrong_count(name: str) -> SqlRefused:
    """Return error 1582: wrong number of arguments."""
    return SqlRefused(_WRONG_COUNT, f"Incorrect parameter count in the call to native function '{name}'", "42000")


def arguments(node: Node, scope: Scope, least: int, most: int = _ANY) -> list[Compiled]:
    """Return the compiled arguments of a call; SqlRefused 1582 when there are too few or too many."""
    if not least <= len(node.expressions) <= most:
        raise wrong_count(node.name)
    return [compile_scalar(argument, scope) for argument in node.expressions]


def define(
    takes: str,
    gives: Gives,
    apply: Callable[..., Any],
    *,
    least: int | None = None,
    rest: str = "",
    session: bool = False,
    nulls: bool = False,
) -> Function:
    """Return the compiling function of a declared function; the module docstring lists the letters of its types."""
    shape = _Shape(takes, gives, apply, len(takes) if least is None else least, rest, session, nulls)

    def build(node: Node, scope: Scope) -> Compiled:
        args = arguments(node, scope, shape.least, _ANY if shape.rest else len(shape.takes))
        kind = shape.gives(args) if callable(shape.gives) else shape.gives
        run = _runner(shape, args)
        if family_of(kind) is not Family.TEXT:
            return Compiled(run, kind)
        collation, rank = agreed(args, scope)
        if kind.charset != "binary" and collation == "binary":
            collation = scope.collation
        return Compiled(run, kind, "binary" if kind.charset == "binary" else collation, rank)

    return build


def _runner(shape: _Shape, args: Sequence[Compiled]) -> Evaluate:
    letters = (shape.takes + shape.rest * len(args))[: len(args)]
    parts = [(_run(arg, letter), arg.type, _READERS[letter]) for arg, letter in zip(args, letters, strict=True)]
    texts = [index for index, letter in enumerate(letters) if letter == "t"] if "t" in letters else []
    apply, nulls, session = shape.apply, shape.nulls, shape.session

    def run(row: Row, context: Context) -> SqlValue:
        values = []
        for evaluate, kind, read in parts:
            value = read(evaluate(row, context), kind, context)
            if value is None and not nulls:
                return None
            values.append(value)
        if len(texts) > 1:
            _alike(values, texts)
        result: SqlValue = apply(context, *values) if session else apply(*values)
        return result

    return run


def _run(arg: Compiled, letter: str) -> Evaluate:
    """Evaluate an argument; functions of numbers get a quotient with all its digits."""
    return arg.exact or arg.run if letter in "xd" else arg.run


def _alike(values: list[Any], texts: list[int]) -> None:
    """Turn all texts into bytes if one of them is."""
    if any(isinstance(values[index], bytes) for index in texts):
        for index in texts:
            if isinstance(values[index], str):
                values[index] = values[index].encode("utf-8", "surrogateescape")


def text_result(args: Sequence[Compiled]) -> ColumnType:
    """Return the type of a text, binary if one of the arguments is."""
    binary = any(arg.type.code in STRINGS and arg.type.charset == "binary" for arg in args)
    return BINARY if binary else TEXT


SERVER_VERSION: Final = "8.0.11-TiDB-v8.5.0-tidegate"
_BAD_FIELD: Final = 1054
_NOT_HERE: Final = 1235


def _if(node: Node, scope: Scope) -> Compiled:
    condition, *values = arguments(node, scope, 3, 3)
    return chosen([truth(condition)], values, scope)


def _first_known(least: int, most: int = _ANY) -> Function:
    """COALESCE and IFNULL."""

    def build(node: Node, scope: Scope) -> Compiled:
        form, runs = as_shared(arguments(node, scope, least, most), scope)

        def run(row: Row, context: Context) -> SqlValue:
            for evaluate in runs:
                value = evaluate(row, context)
                if value is not None:
                    return value
            return None

        return Compiled(run, *form)

    return build


def _nullif(node: Node, scope: Scope) -> Compiled:
    first, second = arguments(node, scope, 2, 2)
    collation, _ = agreed((first, second), scope)
    kinds = (first.type, second.type)

    def run(row: Row, context: Context) -> SqlValue:
        value = first.run(row, context)
        return None if compare(value, second.run(row, context), kinds, collation, context) == 0 else value

    return Compiled(run, first.type, first.collation, first.rank)


def _values(node: Node, scope: Scope) -> Compiled:
    name = node.expressions[0].name
    if scope.values is None:
        raise SqlRefused(_BAD_FIELD, f"Unknown column '{name}' in 'values function'", "42S22")
    return scope.values(name)


def _last_insert_id(context: Context, value: int | None = None) -> int:
    if value is not None:
        context.last_insert_id = value & MAX_UINT
    return Unsigned(context.last_insert_id)


def _lock(takes: str, call: Callable[..., int | None]) -> Function:
    """A function of the session's locks; NULL is the lock named ''."""

    def apply(context: Context, *args: Any) -> int | None:
        if context.locks is None:
            raise SqlRefused(_NOT_HERE, "locks belong to sessions", "42000")
        result = call(context.locks, *(args and (args[0] or "", *args[1:])))
        return None if result is None else int(result)

    return define(takes, INT, apply, session=True, nulls=True)


_DATABASE: Final = define("", TEXT, lambda context: context.database or None, session=True, nulls=True)
_USER: Final = define("", TEXT, lambda context: context.user, session=True)
_MD5: Final = define("o", TEXT, lambda data: hashlib.md5(data, usedforsecurity=False).hexdigest())
_SHA1: Final = define("o", TEXT, lambda data: hashlib.sha1(data, usedforsecurity=False).hexdigest())

FLOW_FUNCTIONS: Final[Mapping[str, Function]] = {
    "COALESCE": _first_known(1),
    "CONNECTION_ID": define("", UINT, lambda context: Unsigned(context.connection_id), session=True),
    "CURRENT_USER": _USER,
    "DATABASE": _DATABASE,
    "FOUND_ROWS": define("", INT, lambda context: context.found_rows, session=True),
    "GET_LOCK": _lock("si", lambda locks, name, wait_s: locks.take(name, -1 if wait_s is None else wait_s)),
    "IF": _if,
    "IFNULL": _first_known(2, 2),
    "ISNULL": define("v", BOOL, lambda value: int(value is None), nulls=True),
    "IS_FREE_LOCK": _lock("s", lambda locks, name: locks.owner(name) is None),
    "IS_USED_LOCK": _lock("s", lambda locks, name: locks.owner(name)),
    "LAST_INSERT_ID": define("i", UINT, _last_insert_id, least=0, session=True),
    "MD5": _MD5,
    "NULLIF": _nullif,
    "RELEASE_ALL_LOCKS": _lock("", lambda locks: locks.release_all()),
    "RELEASE_LOCK": _lock("s", lambda locks, name: locks.release(name)),
    "ROW_COUNT": define("", INT, lambda context: context.row_count, session=True),
    "SCHEMA": _DATABASE,
    "SHA": _SHA1,
    "SHA1": _SHA1,
    "TIDB_CURRENT_TSO": define("", INT, lambda context: context.start_ts, session=True),
    "TIDB_VERSION": define("", TEXT, lambda: f"Release Version: {SERVER_VERSION}"),
    "USER": _USER,
    "UUID": define("", TEXT, lambda: str(uuid.uuid1())),
    "VALUES": _values,
    "VERSION": define("", TEXT, lambda: SERVER_VERSION),
}
"""By name."""


Cast: TypeAlias = Callable[[SqlValue, ColumnType, Context], SqlValue]
_Target: TypeAlias = tuple[ColumnType, Cast]
_MakeTarget: TypeAlias = Callable[[list[int], str], _Target]
_OUT_OF_RANGE: Final = 1264
_LEADING: Final = re.compile(r"\s*+([+-]?)0*+(\d*)(?<=\d)", re.ASCII)
LARGEST_DIGITS: Final = 100
"""More digits exceed any number anyway, and Python refuses to parse thousands."""
_UNKNOWN_CHARSET: Final = 1115
_CHARSETS: Final = frozenset({"utf8mb4", "utf8", "utf8mb3", "ascii", "latin1", "gbk", "gb18030", "binary"})


def _whole(value: SqlValue, kind: ColumnType, context: Context) -> int | None:
    """Return the integer of a value for CAST: of a text, its leading digits."""
    if isinstance(value, str) and not isinstance(value, Named):
        match = _LEADING.match(value)
        if match is None or match.end() < len(value.rstrip()):
            context.warn(1292, f"Truncated incorrect INTEGER value: '{redacted(value[:64])}'")
        return int(f"{match[1]}{match[2][:LARGEST_DIGITS] or 0}") if match else 0
    if isinstance(value, Bits):
        return int.from_bytes(value[-8:], "big")
    if isinstance(value, bytes):
        return _whole(value.decode("latin-1"), kind, context)
    return integer_of(value, kind, context)


def _signed(value: SqlValue, kind: ColumnType, context: Context) -> SqlValue:
    number = _whole(value, kind, context)
    if number is None:
        return None
    if isinstance(value, Decimal | float):
        return int(min(max(number, -MAX_INT - 1), MAX_INT))
    number = int(min(max(number, -MAX_INT - 1), MAX_UINT))
    return number if number <= MAX_INT else number - (1 << 64)


def _unsigned(value: SqlValue, kind: ColumnType, context: Context) -> SqlValue:
    number = _whole(value, kind, context)
    if number is None:
        return None
    if isinstance(value, Decimal) and number < 0:
        context.warn(1292, f"Truncated incorrect DECIMAL value: '{redacted(str(value))}'")
        return Unsigned(0)
    return Unsigned(max(number, -MAX_INT - 1) & MAX_UINT if number < 0 else min(number, MAX_UINT))


def _decimal(sizes: list[int], _charset: str) -> _Target:
    precision, scale = (sizes[0] or 10 if sizes else 10), (sizes[1] if len(sizes) > 1 else 0)
    write = decimal_writer(ColumnType(T.DECIMAL, precision, scale))

    def cast(value: SqlValue, kind: ColumnType, context: Context) -> SqlValue:
        number = decimal_of(value, kind, context)
        if number is None:
            return None
        result = Decimal(write(number))
        if EXACT.subtract(result, number).copy_abs() > Decimal(1).scaleb(-scale):
            context.warn(_OUT_OF_RANGE, "Out of range value for column 'CAST' at row 1")
        return result

    return decimal_type(precision, scale), cast


def _read_by(letter: str, fit: Callable[[Any], SqlValue]) -> Cast:
    """A cast that reads a value like an argument of that letter and then applies `fit`; NULL stays NULL."""
    read = _READERS[letter]

    def cast(value: SqlValue, kind: ColumnType, context: Context) -> SqlValue:
        parsed = read(value, kind, context)
        return None if parsed is None else fit(parsed)

    return cast


def _json(value: SqlValue, kind: ColumnType, _context: Context) -> SqlValue:
    if value is None or isinstance(value, JsonDatum):
        return value
    if isinstance(value, str):
        return JsonDatum(parse_document(value))
    return JsonDatum(as_member(value, kind))


def _characters(sizes: list[int], charset: str) -> _Target:
    length = sizes[0] if sizes else -1
    if charset == "binary":
        kind = ColumnType(T.VAR_STRING, length, charset="binary")
        return kind, _read_by("o", lambda data: data if length < 0 else data[:length].ljust(length, b"\0"))
    return ColumnType(T.VAR_STRING, length), _read_by("s", lambda text: text if length < 0 else text[:length])


def _clock(letter: str, kind: Callable[[int], ColumnType], fit: Callable[[Any, int], SqlValue]) -> _MakeTarget:
    """A type with fractional digits."""

    def target(sizes: list[int], _charset: str) -> _Target:
        fsp = sizes[0] if sizes else 0
        return kind(fsp), _read_by(letter, lambda time: fit(time, fsp))

    return target


def _always(kind: ColumnType, cast: Cast) -> _MakeTarget:
    return lambda _sizes, _charset: (kind, cast)


_TARGETS: Final[Mapping[str, _MakeTarget]] = {
    "SIGNED": _always(INT, _signed),
    "UNSIGNED": _always(UINT, _unsigned),
    **dict.fromkeys(("DECIMAL", "NUMERIC", "DEC"), _decimal),
    **dict.fromkeys(("CHAR", "NCHAR", "VARCHAR", "CHARACTER"), _characters),
    "BINARY": lambda sizes, _charset: _characters(sizes, "binary"),
    "DATE": _always(DATE, _read_by("m", lambda parts: Time(*parts[:3]))),
    **dict.fromkeys(("DATETIME", "TIMESTAMP"), _clock("m", datetime_type, round_time)),
    "TIME": _clock("p", span_type, round_span_ns),
    "JSON": _always(JSON, _json),
    **dict.fromkeys(("DOUBLE", "REAL"), _always(DOUBLE, float_of)),
}
"""(sizes, character set) to the type and its rule, by the word after AS."""


def _target(words: list[str]) -> _Target:
    make = _TARGETS.get(words[0])
    if make is None:
        raise SqlRefused(1064, f"CAST does not know the type {words[0]}", "42000")
    sizes = [int(word) for word in words[1:] if all_digits(word)]
    return make(sizes, next((word for word in words[1:] if not all_digits(word)), ""))


def _cast_call(node: Node, scope: Scope) -> Compiled:
    value = compile_scalar(node.expressions[0], scope)
    words = [part.name.lower() if index else part.name for index, part in enumerate(node.expressions[1:])]
    if words[0] == "USING":
        return _using(value, words[1], scope)
    kind, cast = _target(words)
    run_value, source = (value.exact or value.run if kind.code is T.DECIMAL else value.run), value.type

    def run(row: Row, context: Context) -> SqlValue:
        operand = run_value(row, context)
        return None if operand is None else cast(operand, source, context)

    if family_of(kind) is not Family.TEXT:
        return Compiled(run, kind)
    return Compiled(run, kind, "binary" if kind.charset == "binary" else scope.collation, 2)


def _using(value: Compiled, charset: str, scope: Scope) -> Compiled:
    if charset not in _CHARSETS:
        raise SqlRefused(_UNKNOWN_CHARSET, f"Unknown character set: '{charset}'", "42000")

    def run(row: Row, context: Context) -> SqlValue:
        text = text_of(value.run(row, context), value.type)
        if text is None or charset == "binary":
            return text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
        if isinstance(text, bytes):
            return text.decode({"gbk": "gbk", "gb18030": "gb18030"}.get(charset, "utf-8"), "replace")
        return _fitting(text, charset)

    if charset == "binary":
        return Compiled(run, ColumnType(T.VAR_STRING, charset="binary"), "binary", 2)
    collation = value.collation if value.collation.startswith(charset) else f"{charset}_bin"
    return Compiled(run, ColumnType(T.VAR_STRING, charset=charset), collation or scope.collation, 2)


def _fitting(text: str, charset: str) -> str:
    """Return `text` with ? for each character that the character set lacks."""
    codec = _LIMITED.get(charset)
    return text if codec is None else text.encode(codec, "replace").decode(codec)


_LIMITED: Final[Mapping[str, str]] = {"ascii": "ascii", "latin1": "latin-1", "gbk": "gbk", "gb18030": "gb18030"}

CAST_FUNCTIONS: Final[Mapping[str, Function]] = {"CAST": _cast_call, "CONVERT": _cast_call}
"""By name."""


_NUMBER_OUT_OF_RANGE: Final = 1690
MAX_SCALE: Final = 30


def _kind_of_first(args: Sequence[Compiled]) -> ColumnType:
    kind = args[0].type
    match number_family(kind):
        case Family.INT:
            return UINT if kind.unsigned else INT
        case Family.DECIMAL:
            return decimal_type(sum(digits_of(kind)), digits_of(kind)[1])
        case _:
            return DOUBLE


def _number_whole(on_float: Callable[[float], float], mode: str) -> Function:
    def apply(number: Number) -> SqlValue:
        if isinstance(number, float):
            return float(on_float(number)) if math.isfinite(number) else number
        return int(number.to_integral_value(mode)) if isinstance(number, Decimal) else number

    def kind(args: Sequence[Compiled]) -> ColumnType:
        first = args[0].type
        return DOUBLE if number_family(first) is Family.FLOAT else UINT if first.unsigned else INT

    return define("x", kind, apply)


def _absolute(number: Number) -> SqlValue:
    if number == -(1 << 63) and isinstance(number, int):
        raise SqlRefused(_NUMBER_OUT_OF_RANGE, f"BIGINT value is out of range in 'abs({number})'", "22003")
    return number if number >= 0 else turned_sign(number)


def _round(number: Number, places: int = 0) -> SqlValue:
    places = max(min(places, MAX_SCALE), -MAX_SCALE)
    if isinstance(number, float):
        return round_at(number, places)
    exact = Decimal(number)
    kept = places if isinstance(number, Decimal) else min(places, 0)
    if kept >= 0:
        return number if isinstance(number, int) else rounded(exact, min(kept, MAX_SCALE))
    return _as_before(rounded(exact.scaleb(kept), 0).scaleb(-kept, EXACT), number)


def _as_before(exact: Decimal, number: Number) -> SqlValue:
    """Return an integer if `number` is one, else a decimal."""
    if isinstance(number, int):
        return Unsigned(exact) if isinstance(number, Unsigned) else int(exact)
    return rounded(exact, 0)


def _truncate(number: Number, places: int) -> SqlValue:
    places = max(min(places, MAX_SCALE), -MAX_SCALE - 35)
    if isinstance(number, float):
        scaled = number * 10.0**places
        return math.trunc(scaled) / 10.0**places if math.isfinite(scaled) else number
    if places >= 0 and isinstance(number, int):
        return number
    exact = Decimal(number).scaleb(places, EXACT).to_integral_value(ROUND_DOWN).scaleb(-places, EXACT)
    return _as_before(exact, number) if places < 0 else exact.quantize(Decimal(1).scaleb(-places), context=EXACT)


def _rounded_kind(args: Sequence[Compiled]) -> ColumnType:
    """ROUND and TRUNCATE of a decimal have as many decimals as their second argument says, if it is a literal."""
    kind = _kind_of_first(args)
    if number_family(args[0].type) is not Family.DECIMAL:
        return kind
    if len(args) == 1:
        return decimal_type(digits_of(kind)[0] + 1, 0)
    if not args[1].constant:
        return kind
    places = args[1].run((), NO_CONTEXT)
    scale = min(max(places, 0), MAX_SCALE) if isinstance(places, int) else 0
    return decimal_type(digits_of(kind)[0] + 1 + scale, scale)


def _double(apply: Callable[..., float], takes: str = "f", least: int | None = None) -> Function:
    """A function of doubles: NULL where it is not defined, error 1690 where it is too large."""

    def guarded(*numbers: float) -> SqlValue:
        try:
            return float(apply(*numbers))
        except (ValueError, ZeroDivisionError):
            return None
        except OverflowError as error:
            raise SqlRefused(_NUMBER_OUT_OF_RANGE, "DOUBLE value is out of range", "22003") from error

    return define(takes, DOUBLE, guarded, least=least)


def _logarithm(first: float, second: float | None = None) -> float:
    if second is None:
        return math.log(first)
    if first == 1 or first <= 0:
        raise ValueError
    return math.log(second) / math.log(first)


def _sign(number: Number) -> int:
    return (number > 0) - (number < 0)


def _modulo(node: Node, scope: Scope) -> Compiled:
    first, second = arguments(node, scope, 2, 2)

    def run(row: Row, context: Context) -> SqlValue:
        left = number_of(first.run(row, context), first.type, context)
        right = number_of(second.run(row, context), second.type, context)
        return None if left is None or right is None else remainder(left, right, node, context)

    return Compiled(run, _kind_of_first((first if number_family(second.type) is Family.INT else second,)))


def _rand_call(node: Node, scope: Scope) -> Compiled:
    """RAND() is new for every row; RAND(n) the same sequence for the same n."""
    seeds = arguments(node, scope, 0, 1)
    source = random.Random()
    if seeds and seeds[0].constant:
        source.seed(str(seeds[0].run((), NO_CONTEXT)))
    return Compiled(lambda _row, _context: source.random(), DOUBLE)


def _extreme(sign: int) -> Function:
    """GREATEST and LEAST: NULL as soon as one is."""

    def build(node: Node, scope: Scope) -> Compiled:
        values = arguments(node, scope, 2)
        form, runs = as_shared(values, scope)
        collation, _ = agreed(values, scope)
        kinds = (form[0], form[0])

        def run(row: Row, context: Context) -> SqlValue:
            best = runs[0](row, context)
            for evaluate in runs[1:]:
                value = evaluate(row, context)
                order = compare(value, best, kinds, collation, context)
                if order is None:
                    return None
                best = value if order == sign else best
            return best

        return Compiled(run, *form)

    return build


_CEILING: Final = _number_whole(lambda number: float(math.ceil(number)), ROUND_CEILING)
_POWER: Final = _double(math.pow, "ff")

NUMBER_FUNCTIONS: Final[Mapping[str, Function]] = {
    "ABS": define("n", _kind_of_first, _absolute),
    "CEIL": _CEILING,
    "CEILING": _CEILING,
    "CRC32": define("o", UINT, lambda data: Unsigned(zlib.crc32(data))),
    "EXP": _double(math.exp),
    "FLOOR": _number_whole(lambda number: float(math.floor(number)), ROUND_FLOOR),
    "GREATEST": _extreme(1),
    "LEAST": _extreme(-1),
    "LN": _double(math.log),
    "LOG": _double(_logarithm, "ff", 1),
    "MOD": _modulo,
    "POW": _POWER,
    "POWER": _POWER,
    "RAND": _rand_call,
    "ROUND": define("xi", _rounded_kind, _round, least=1),
    "SIGN": define("n", INT, _sign),
    "SQRT": _double(math.sqrt),
    "TRUNCATE": define("xi", _rounded_kind, _truncate),
}
"""By name."""
