"""Shortcuts with tables and partitions, whose rows change the range that they lie in."""

from typing import Final

from tests.upstream.model_checker.checker.anomaly import AnomalyKind
from tests.upstream.model_checker.checker.correct import COPIES, SWAP, alone
from tests.upstream.model_checker.checker.rules import Rules
from tests.upstream.model_checker.checker.scenario import Scenario, Shortcut
from tidegate.schema.stored.definition import ElementState
from tidegate_upstream import f1
from tidegate_upstream.f1 import ElementKind, Work, operation

__all__ = ["TABLES"]

N, DO, WO, P = ElementState.NONE, ElementState.DELETE_ONLY, ElementState.WRITE_ONLY, ElementState.PUBLIC
ORPHAN, INTEGRITY = AnomalyKind
_EXCHANGE: Final = f1.EXCHANGE_PARTITION
_COPY_ROLES: Final = (("new rows", ElementKind.COPY), ("old rows", ElementKind.COPY))
TABLES: Final = (
    Shortcut(
        Scenario(
            "drop table, range deleted at once",
            f1.DROP_TABLE,
            alone("table"),
            Rules(waits=False, work_waits=False),
        ),
        INTEGRITY,
        "An owner that waits for nobody deletes the rows of a table that a node still shows.",
    ),
    Shortcut(
        Scenario(
            "truncate table, range deleted at once",
            f1.TRUNCATE_TABLE,
            alone("old table", "new table"),
            Rules(work_waits=False),
        ),
        INTEGRITY,
        "A node one behind still shows the rows of the old id; and what it writes there after that stays for ever.",
    ),
    Shortcut(
        Scenario(
            "exchange partition in one step",
            operation(
                "exchange partition",
                (),
                [(role.name, role.kind) for role in _EXCHANGE.roles],
                [(N, P, P, N, N, N), (N, N, N, P, P, N)],
                work={0: (Work.VALIDATE, ("rows fit",))},
            ),
            SWAP,
        ),
        INTEGRITY,
        "The table takes any row until the swap, the validation notwithstanding.",
    ),
    Shortcut(
        Scenario(
            "exchange partition, limit lifted with the swap",
            operation(
                "exchange partition",
                (),
                [(role.name, role.kind) for role in _EXCHANGE.roles],
                [(N, P, P, N, N, N), (WO, P, P, N, N, WO), (N, N, N, P, P, N)],
                work={1: (Work.VALIDATE, ("rows fit",))},
            ),
            SWAP,
        ),
        INTEGRITY,
        "At the last version the table has the partition's old rows and takes any value; a node one behind still sees "
        "these rows in the partition. These are the steps that TiDB's job records.",
    ),
    Shortcut(
        Scenario(
            "reorganize partition without delete-only",
            operation(
                "reorganize",
                (),
                _COPY_ROLES,
                [(N, N, P), (WO, WO, P), (P, P, WO), (N, P, N)],
                work={1: (Work.BACKFILL, ("new rows",))},
            ),
            COPIES,
        ),
        ORPHAN,
        "A node that does not know the new partitions deletes a row and leaves the copy.",
    ),
    Shortcut(
        Scenario(
            "reorganize partition, the old rows no longer written as the new ones come",
            operation(
                "reorganize",
                (),
                _COPY_ROLES,
                [(N, N, P), (DO, DO, P), (WO, WO, P), (P, P, N)],
                work={2: (Work.BACKFILL, ("new rows",)), 3: (Work.DELETE_RANGE, ("old rows",))},
            ),
            COPIES,
        ),
        INTEGRITY,
        "A node one behind reads the old partitions, where the newest rows are not.",
    ),
)
