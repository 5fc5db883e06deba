"""What the checked table is made of: fields, the columns that store them, indexes and constraints.

    add column            a, and c whose state changes        fields a, c    columns a, c
    lossy MODIFY COLUMN   a, and c in its old and new bytes   fields a, c    columns a, c old, c new, partners

Source: Tidegate's own; the roles are those of `f1_operations`.
"""

from dataclasses import dataclass
from enum import Enum

__all__ = ["Column", "Index", "Layout", "Rule", "RuleKind"]


@dataclass(frozen=True, slots=True)
class Column:
    """A stored column of `field`; without `role` it is always public.

    `required`: NOT NULL without origin default, so a public reader that does not find it has nothing to show; a node
    that has it not public fills in 0 in any case.  `partner`: the column that it is a cast of; `narrow`: value 1 does
    not survive the cast and becomes 0."""

    name: str
    field: int
    role: str | None = None
    required: bool = False
    partner: int | None = None
    narrow: bool = False

    def cast(self, value: int) -> int:
        """What becomes of a partner's value here."""
        return 0 if self.narrow else value


@dataclass(frozen=True, slots=True)
class Index:
    """An index on one column; unless `checked`, the backfill of a unique one does not stop at duplicates."""

    role: str
    column: int
    unique: bool = False
    checked: bool = True


class RuleKind(Enum):
    """What a constraint says; value 1 stands for NULL, for a value that a check forbids, and for `refers to k1`."""

    FORBID = "value 1 is not allowed"
    REFERENCE = "k2 with value 1 needs row k1"


@dataclass(frozen=True, slots=True)
class Rule:
    """A constraint on one column."""

    role: str
    kind: RuleKind
    column: int = 0


@dataclass(frozen=True, slots=True)
class Layout:
    """What the table is made of; `child`: the role of the table that k2 is in, if that is not the table of k1.

    `lazy`: an UPDATE moves an index's entry only when it finds the column's value changed."""

    fields: tuple[str, ...]
    columns: tuple[Column, ...]
    indexes: tuple[Index, ...] = ()
    rules: tuple[Rule, ...] = ()
    child: str | None = None
    lazy: bool = False
