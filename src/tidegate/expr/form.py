"""The form of a compiled expression, and the table of compiling functions by node class.

    node ──compile_scalar(node, scope)──► Compiled(run, type, collation, rank) ──run(row, context)──► SqlValue

Each function builds a closure over the closures of the operands, so that decisions are made once and not per row.
compiler.py fills the table: import `compile_scalar` from there.

Source: MySQL manual, "Expressions"; TiDB's expression package.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from tidegate.expr.dialect import Node
from tidegate.expr.scope import Compiled, Scope
from tidegate.model.errors import SqlRefused

Build: TypeAlias = Callable[[Node, Scope], Compiled]
_BUILDERS: dict[str, Build] = {}
_NOT_SUPPORTED: Final = 1235


def builder(table: Mapping[str, Build]) -> None:
    """Register compiling functions by class name of the node."""
    assert not _BUILDERS.keys() & table.keys(), table
    _BUILDERS.update(table)


def compile_scalar(node: Node, scope: Scope) -> Compiled:
    """Compile a node to a function of a row; SqlRefused for unknown names and functions."""
    build = _BUILDERS.get(type(node).__name__)
    if build is None:
        raise refuse(node)
    return build(node, scope)


def refuse(node: Node) -> SqlRefused:
    """Return the error for a kind of expression that is not supported."""
    shown = node.meta.get("source") or type(node).__name__
    return SqlRefused(_NOT_SUPPORTED, f"This version of Tidegate doesn't yet support '{shown:.80}'", "42000")
