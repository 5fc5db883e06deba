"""An expression ready to run.

`rank` is MySQL's coercibility: 0 COLLATE, 2 column, 4 literal, 5 number, 6 NULL: in a comparison the lower rank's
collation wins.
Source: MySQL manual, "Collation Coercibility in Expressions".
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from tidegate.expr.relation import Row
from tidegate.model.table import ColumnType
from tidegate.mysql.context import Context
from tidegate.mysql.value.kinds import SqlValue

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
