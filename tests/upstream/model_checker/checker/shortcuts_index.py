"""Shortcuts on the way of an index, as F1 has it: no delete ranges, what it leaves behind has to be gone before it is.

none > delete-only > write-only > public      each with a state left out, work too early, or nobody waiting
public > write-only > delete-only > none
"""

from dataclasses import replace
from typing import Final

from tests.upstream.model_checker.checker.anomaly import AnomalyKind
from tests.upstream.model_checker.checker.correct import INDEXED, UNIQUE
from tests.upstream.model_checker.checker.layout import Layout
from tests.upstream.model_checker.checker.rules import Guard, Rules
from tests.upstream.model_checker.checker.scenario import Scenario, Shortcut, along
from tidegate.schema.stored.definition import ElementState
from tidegate_upstream.f1 import ElementKind, Operation, Step, Work

__all__ = ["CANCELS", "INDEXES", "TRANSACTIONS"]

N, DO, WO, WR, P = (
    ElementState.NONE,
    ElementState.DELETE_ONLY,
    ElementState.WRITE_ONLY,
    ElementState.WRITE_REORG,
    ElementState.PUBLIC,
)
ORPHAN, INTEGRITY = AnomalyKind
STRICT: Final = Rules(ranges=False)


def _index(
    name: str,
    states: tuple[ElementState, ...],
    kind: AnomalyKind,
    why: str,
    *,
    at: int | None = None,
    rules: Rules = STRICT,
    layout: Layout = INDEXED,
) -> Shortcut:
    """An index along `states`; backfill on the way up, or removal of its entries on the way down, at the step `at`."""
    work = Work.BACKFILL if states[-1] is P else Work.DELETE_RANGE
    path = along("index", ElementKind.INDEX, states, work, at)
    return Shortcut(Scenario(name, path, layout, rules), kind, why)


_UP: Final = (N, DO, WO, P)
INDEXES: Final = (
    _index(
        "add index in one step",
        (N, P),
        INTEGRITY,
        "Rows that are there already, or that a node without the index writes, have no entry.",
    ),
    _index(
        "add index without delete-only",
        (N, WO, P),
        ORPHAN,
        "A node that does not know the index deletes or changes a row and leaves the entry that another node made.",
        at=1,
    ),
    _index(
        "add index without write-only",
        (N, DO, P),
        INTEGRITY,
        "Whoever inserts at delete-only makes no entry, whatever the backfill did before.",
        at=1,
    ),
    _index(
        "add index without backfill",
        _UP,
        INTEGRITY,
        "A row from before write-only has no entry when the index becomes public.",
    ),
    _index(
        "backfill at delete-only",
        _UP,
        INTEGRITY,
        "A row inserted at delete-only behind the backfill stays without entry.",
        at=1,
    ),
    _index(
        "backfill before all nodes are write-only",
        _UP,
        INTEGRITY,
        "The last node at delete-only inserts behind the backfill.",
        at=2,
        rules=Rules(ranges=False, work_waits=False),
    ),
    _index(
        "backfill that does not stop at duplicates",
        _UP,
        INTEGRITY,
        "Two old rows have the same value, and a unique index becomes public over them.",
        at=2,
        layout=replace(UNIQUE, indexes=(replace(UNIQUE.indexes[0], checked=False),)),
    ),
    _index(
        "owner that does not wait for the nodes",
        _UP,
        ORPHAN,
        "Two versions that are not neighbours live at once: one makes entries that the other does not know.",
        at=2,
        rules=Rules(ranges=False, waits=False),
    ),
    _index(
        "drop index in one step",
        (P, N),
        ORPHAN,
        "A node that still has the index goes on making entries, and finds rows of the others missing in it.",
        at=1,
    ),
    _index(
        "drop index without delete-only",
        (P, WO, N),
        ORPHAN,
        "A node at write-only makes an entry after the clean-up.",
        at=1,
    ),
    _index(
        "drop index without write-only",
        (P, DO, N),
        INTEGRITY,
        "A node at delete-only inserts a row without entry while another still reads the index.",
        at=1,
    ),
    _index(
        "clean-up at write-only",
        (P, WO, DO, N),
        ORPHAN,
        "Entries made behind the clean-up are still there when nobody knows the index any more.",
        at=1,
    ),
)


def _open(name: str, kind: AnomalyKind, why: str, rules: Rules) -> Shortcut:
    path = along("index", ElementKind.INDEX, _UP, Work.BACKFILL, 2)
    return Shortcut(Scenario(name, path, INDEXED, rules), kind, why)


TRANSACTIONS: Final = (
    _open(
        "transactions across versions, no write conflicts",
        ORPHAN,
        "A transaction from before the index deletes a row at its end and leaves the entry that came meanwhile.",
        Rules(ranges=False, guard=Guard.NONE, conflicts=False),
    ),
    _open(
        "transactions across versions",
        INTEGRITY,
        "Write conflicts save the deletes, but an insert that began before the index comes without entry at its end.",
        Rules(ranges=False, guard=Guard.NONE),
    ),
)


def _cancelled(back: tuple[Step, ...]) -> Operation:
    path = along("index", ElementKind.INDEX, (N, DO, WO, WR, P), Work.BACKFILL, 3)
    return replace(path, revertible=3, back=((), back, back, back))


CANCELS: Final = (
    Shortcut(
        Scenario(
            "cancelled index forgotten in one step",
            _cancelled((Step(N, (N,), Work.DELETE_RANGE, ("index",)),)),
            INDEXED,
            STRICT,
        ),
        ORPHAN,
        "A node one behind goes on making entries of an index that others do not know any more.",
    ),
)
