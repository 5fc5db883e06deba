"""Every tempting shortcut, with the kind of anomaly that it has to lead to, and those that are safe.

A shortcut is a sequence with a state left out, work done too early or not at all, or a cluster that is careless about
one thing.  The checker must find its shortest counterexample; `docs/online-schema-change.md` prints them.
"""

from typing import Final

from tests.upstream.model_checker.checker.correct import ADDED, DROPPED, INDEXED, alone
from tests.upstream.model_checker.checker.rules import Rules
from tests.upstream.model_checker.checker.scenario import Scenario, Shortcut, along
from tests.upstream.model_checker.checker.shortcuts_column import COLUMNS, CONSTRAINTS, MODIFY
from tests.upstream.model_checker.checker.shortcuts_index import CANCELS, INDEXES, TRANSACTIONS
from tests.upstream.model_checker.checker.shortcuts_table import TABLES
from tidegate.schema.stored.definition import ElementState
from tidegate_upstream.f1 import ElementKind, Work

__all__ = ["SAFE", "SHORTCUTS"]

N, WO, P = ElementState.NONE, ElementState.WRITE_ONLY, ElementState.PUBLIC

SHORTCUTS: Final[tuple[Shortcut, ...]] = (
    *INDEXES,
    *TRANSACTIONS,
    *CANCELS,
    *COLUMNS,
    *MODIFY,
    *CONSTRAINTS,
    *TABLES,
)
"""All of them, in the order of the document."""

SAFE: Final[tuple[Scenario, ...]] = (
    Scenario(
        "add column without delete-only", along("column", ElementKind.COLUMN, (N, WO, P)), ADDED, Rules(reader=True)
    ),
    Scenario("drop column without delete-only", along("column", ElementKind.COLUMN, (P, WO, N)), DROPPED),
    Scenario(
        "drop index without delete-only, with delete ranges",
        along("index", ElementKind.INDEX, (P, WO, N), Work.DELETE_RANGE, 2),
        INDEXED,
    ),
    Scenario(
        "drop table in one step, range deleted later",
        along("table", ElementKind.TABLE, (P, N), Work.DELETE_RANGE, 1),
        alone("table"),
    ),
)
"""Shortcuts that the checker lets pass: rows are written whole, and ids are never used again."""
