"""The form of a compiled expression, and the table of those who compile.

    node ──compile_scalar(node, scope)──► Compiled(run, type, collation, rank) ──run(row, context)──► SqlValue

A node is looked up by its class; each entry builds a closure over the closures of its operands, so that nothing is
decided twice for every row.  compiler.py fills the table: import `compile_scalar` from there.

`rank` is MySQL's coercibility: 0 COLLATE, 2 column, 4 literal, 5 number, 6 NULL: in a comparison the lower rank's
collation wins.
Source: MySQL manual, "Expressions", "Collation Coercibility in Expressions"; TiDB's expression package.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from tidegate.expr.relation import Row
from tidegate.expr.scope import Context, Scope
from tidegate.expr.syntax.dialect import Node
from tidegate.expr.value.kinds import SqlValue
from tidegate.model.errors import SqlRefused
from tidegate.model.table import ColumnType

__all__ = ["Build", "Compiled", "Evaluate", "builder", "compile_scalar", "refuse"]

Evaluate: TypeAlias = Callable[[Row, Context], SqlValue]
NUMBER_RANK: Final = 5


@dataclass(frozen=True, slots=True)
class Compiled:
    """An expression ready to run, and what is known of its values beforehand."""

    run: Evaluate
    type: ColumnType
    collation: str = "binary"
    rank: int = NUMBER_RANK
    constant: bool = False
    """True for literals: the same value in every row."""
    exact: Evaluate | None = None
    """A division's value with the digits that it keeps for the next operator; `run` rounds to the type's decimals."""

    def __call__(self, row: Row, context: Context) -> SqlValue:
        """The value for one row."""
        return self.run(row, context)


Build: TypeAlias = Callable[[Node, Scope], Compiled]
_BUILDERS: dict[str, Build] = {}
_NOT_SUPPORTED: Final = 1235


def builder(table: Mapping[str, Build]) -> None:
    """Adds entries by class name of the node."""
    assert not _BUILDERS.keys() & table.keys(), table
    _BUILDERS.update(table)


def compile_scalar(node: Node, scope: Scope) -> Compiled:
    """The function of a row that `node` stands for; SqlRefused for unknown names and functions."""
    build = _BUILDERS.get(type(node).__name__)
    if build is None:
        raise refuse(node)
    return build(node, scope)


def refuse(node: Node) -> SqlRefused:
    """The error for a form that is not evaluated here."""
    shown = node.meta.get("source") or type(node).__name__
    return SqlRefused(_NOT_SUPPORTED, f"This version of Tidegate doesn't yet support '{shown:.80}'", "42000")
