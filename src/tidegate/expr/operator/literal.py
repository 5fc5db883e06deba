"""Operands: literals, columns, variables, brackets and COLLATE.

    12  int      18446744073709551615  Unsigned      1.50  Decimal (two decimals)      1e3  float      'a'  str
    x'0a' b'1'  Bits      _binary'a'  bytes      DATE '2024-01-31'  Time      TRUE  1

A column is a slot of the row (scope.py).  In ORDER BY and HAVING an alias of the select list stands for its item.
@@x comes from the session's variables, @x from the user's; @x := 1 sets it while the row is evaluated.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Final

from tidegate.expr.compiled import Compiled
from tidegate.expr.form import Build, compile_scalar
from tidegate.expr.relation import Row
from tidegate.expr.result_type import BOOL, NULL, TEXT, ValueFamily, family_of, literal_type, text_type
from tidegate.expr.scope import Scope
from tidegate.expr.syntax.dialect import Node
from tidegate.model.errors import EncodeError, SqlRefused
from tidegate.model.mysql import MysqlType as T
from tidegate.model.name import lowered
from tidegate.model.table import ColumnType
from tidegate.mysql.collation import sort_key
from tidegate.mysql.context import NO_CONTEXT, Context
from tidegate.mysql.convert.text import CODECS
from tidegate.mysql.value.kinds import Bits, SqlValue, Unsigned
from tidegate.mysql.value.number import MAX_INT, MAX_UINT, clamped
from tidegate.mysql.value.text import text_of

_UNKNOWN_VARIABLE: Final = 1193
_ONE_COLUMN: Final = 1241
_UNKNOWN_COLLATION: Final = 1273
_LITERAL_RANK, _NUMBER_RANK, _NULL_RANK = 4, 5, 6


def constant(value: SqlValue, kind: ColumnType, collation: str = "binary", rank: int = _NUMBER_RANK) -> Compiled:
    """Return the expression that gives `value` for every row."""
    return Compiled(lambda _row, _context: value, kind, collation, rank, constant=True)


def number_literal(text: str) -> SqlValue:
    """Return the value of a number as written."""
    if "e" in text.lower():
        return clamped(float(text))
    if "." in text:
        return Decimal(text)
    value = int(text)
    if value <= MAX_INT:
        return value
    return Unsigned(value) if value <= MAX_UINT else Decimal(text)


def _literal(node: Node, scope: Scope) -> Compiled:
    if node.is_string:
        return constant(node.this, text_type(len(node.this)), scope.collation, _LITERAL_RANK)
    value = number_literal(node.this)
    return constant(value, literal_type(value))


def _hex(node: Node, _scope: Scope) -> Compiled:
    digits = node.this
    return _bits(bytes.fromhex(digits if len(digits) % 2 == 0 else f"0{digits}"))


def _bit(node: Node, _scope: Scope) -> Compiled:
    digits = node.this or "0"
    return _bits(int(digits, 2).to_bytes((len(digits) + 7) // 8, "big") if node.this else b"")


def _bits(data: bytes) -> Compiled:
    return constant(Bits(data), ColumnType(T.VAR_STRING, len(data), charset="binary"), "binary", _LITERAL_RANK)


def _introducer(node: Node, scope: Scope) -> Compiled:
    """A literal whose bytes are in the character set that stands before it."""
    charset = node.this.removeprefix("_")
    value = compile_scalar(node.expression, scope).run((), NO_CONTEXT)
    if charset == "binary":
        data = value if isinstance(value, bytes) else str(value).encode()
        return constant(bytes(data), ColumnType(T.VAR_STRING, len(data), charset="binary"), "binary", _LITERAL_RANK)
    text = value.decode(CODECS.get(charset, "utf-8"), "replace") if isinstance(value, bytes) else str(value)
    return constant(text, text_type(len(text)), scope.collation, _LITERAL_RANK)


def _column(node: Node, scope: Scope) -> Compiled:
    if type(node.this).__name__ == "Star":
        raise SqlRefused(_ONE_COLUMN, "Operand should contain 1 column(s)", "21000")
    name, table, schema = node.name, node.table, node.db
    alias = scope.aliases.get(lowered(name)) if not table else None
    if alias is not None:
        return compile_scalar(alias, replace(scope, aliases={}))
    slot = scope.find(name, table, schema)
    index = slot.index
    return Compiled(lambda row, _context: row[index], slot.type, slot.collation, 2)


def _user_variable(node: Node, scope: Scope) -> Compiled:
    name = lowered(node.name)
    known = scope.context.user_variables.get(name) if scope.context else None
    kind = TEXT if known is None else literal_type(known)
    return Compiled(lambda _row, context: context.user_variables.get(name), kind, scope.collation, 3)


def _system_variable(node: Node, scope: Scope) -> Compiled:
    name, is_global = node.name, node.args.get("kind") == "global"

    def read(_row: Row, context: Context) -> SqlValue:
        return variable(context, name, is_global=is_global)

    kind = literal_type(variable(scope.context, name, is_global=is_global)) if scope.context else TEXT
    return Compiled(read, kind, "utf8mb4_bin", 3)


def variable(context: Context, name: str, *, is_global: bool = False) -> SqlValue:
    """Return the value of a system variable; SqlRefused 1193 when there is none of the name."""
    own = {} if is_global else context.variables
    for held in (own, context.global_variables, context.variables):
        if name in held:
            value = held[name]
            return int(value) if isinstance(value, bool) else value
    if name in _STATEMENT_VARIABLES:
        return _STATEMENT_VARIABLES[name](context)
    raise SqlRefused(_UNKNOWN_VARIABLE, f"Unknown system variable '{name}'", "HY000")


_STATEMENT_VARIABLES: Final[Mapping[str, Callable[[Context], SqlValue]]] = {
    "last_insert_id": lambda context: context.last_insert_id,
    "identity": lambda context: context.last_insert_id,
    "warning_count": lambda context: len(context.warnings),
    "error_count": lambda context: sum(warning.level == "Error" for warning in context.warnings),
    "tidb_current_ts": lambda context: context.start_ts,
}


def _collate(node: Node, scope: Scope) -> Compiled:
    value, name = compile_scalar(node.this, scope), lowered(node.expression.name)
    try:
        sort_key(name, b"a")
    except EncodeError as error:
        raise SqlRefused(_UNKNOWN_COLLATION, f"Unknown collation: '{name}'", "HY000") from error
    if family_of(value.type) is ValueFamily.TEXT:
        return replace(value, collation=name, rank=0)
    run, kind = value.run, value.type
    return Compiled(lambda row, context: text_of(run(row, context), kind), TEXT, name, 0)


def _paren(node: Node, scope: Scope) -> Compiled:
    return compile_scalar(node.this, scope)


def _several(_node: Node, _scope: Scope) -> Compiled:
    raise SqlRefused(_ONE_COLUMN, "Operand should contain 1 column(s)", "21000")


LITERALS: Final[Mapping[str, Build]] = {
    "Literal": _literal,
    "HexString": _hex,
    "BitString": _bit,
    "Introducer": _introducer,
    "Null": lambda _node, _scope: constant(None, NULL, "binary", _NULL_RANK),
    "Boolean": lambda node, _scope: constant(int(node.this), BOOL),
    "Column": _column,
    "Parameter": _user_variable,
    "SessionParameter": _system_variable,
    "Collate": _collate,
    "Paren": _paren,
    "Tuple": _several,
    "Star": _several,
}
