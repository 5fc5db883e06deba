"""Shortcuts with columns and constraints: rows are written whole, so who does not know a column drops it."""

from dataclasses import replace
from typing import Final

from tests.upstream.model_checker.checker.anomaly import AnomalyKind
from tests.upstream.model_checker.checker.correct import ADDED, DROPPED, LOSSY, forbidding, referring
from tests.upstream.model_checker.checker.layout import Layout
from tests.upstream.model_checker.checker.rules import Rules
from tests.upstream.model_checker.checker.scenario import Scenario, Shortcut, along
from tidegate.schema.stored.definition import ElementState
from tidegate_upstream import f1
from tidegate_upstream.f1 import ElementKind, Work, operation

__all__ = ["COLUMNS", "CONSTRAINTS", "MODIFY"]

N, DO, WO, WR, P = (
    ElementState.NONE,
    ElementState.DELETE_ONLY,
    ElementState.WRITE_ONLY,
    ElementState.WRITE_REORG,
    ElementState.PUBLIC,
)
ORPHAN, INTEGRITY = AnomalyKind


def _column(name: str, states: tuple[ElementState, ...], layout: Layout, why: str) -> Shortcut:
    return Shortcut(Scenario(name, along("column", ElementKind.COLUMN, states), layout), INTEGRITY, why)


COLUMNS: Final = (
    _column(
        "add column in one step",
        (N, P),
        ADDED,
        "A node that does not know the column writes the row anew without it, and what was in it is gone.",
    ),
    _column(
        "add column without write-only",
        (N, DO, P),
        ADDED,
        "A node at delete-only writes the row anew without the column.",
    ),
    _column(
        "drop column in one step",
        (P, N),
        DROPPED,
        "A node without the column inserts a row, and one that still has it misses a required value.",
    ),
    _column(
        "drop column without write-only",
        (P, DO, N),
        DROPPED,
        "A node at delete-only inserts a row without the column while another still reads it.",
    ),
)

_ROLES: Final = (
    ("old column", ElementKind.COLUMN),
    ("old index", ElementKind.INDEX),
    ("new column", ElementKind.COLUMN),
    ("new index", ElementKind.INDEX),
)
_BEGINNING: Final = ((N, P, P, N, N), (DO, P, P, DO, DO), (WO, P, P, WO, WO), (WR, P, P, WR, WR))
_FILL: Final = {3: (Work.BACKFILL, ("new column", "new index"))}
MODIFY: Final = (
    Shortcut(
        Scenario(
            "modify column, the old one dropped as the new one comes",
            operation(
                "modify column",
                (),
                _ROLES,
                [*_BEGINNING, (P, N, N, P, P)],
                work={**_FILL, 4: (Work.DELETE_RANGE, ("old index",))},
            ),
            LOSSY,
        ),
        INTEGRITY,
        "A node at the last version writes only the new column, and a node one behind does not find the old one.",
    ),
    Shortcut(
        Scenario(
            "modify column, the old one delete-only before the job is done",
            operation(
                "modify column",
                (),
                _ROLES,
                [*_BEGINNING, (P, WO, WO, P, P), (P, DO, DO, P, P), (P, N, N, P, P)],
                work=_FILL,
            ),
            LOSSY,
            Rules(reader=True),
        ),
        INTEGRITY,
        "No node misses anything, but a reader of the change log goes by the old column until the job is done.",
    ),
    Shortcut(
        Scenario(
            "modify column, values that the old column cannot hold",
            f1.MODIFY_LOSSY,
            replace(LOSSY, columns=(LOSSY.columns[0], replace(LOSSY.columns[1], narrow=True), LOSSY.columns[2])),
        ),
        INTEGRITY,
        "The new column takes a value that the cast back changes, and a node one behind reads the old column. Such "
        "values have to be refused while the old column is written.",
    ),
    Shortcut(
        Scenario(
            "modify column, entries moved only where a node sees the value change",
            f1.MODIFY_LOSSY,
            replace(LOSSY, lazy=True),
        ),
        ORPHAN,
        "At delete-only an UPDATE drops the new column; comparing default with default, it leaves the entry of a value "
        "that another node had stored. The entry has to go whenever the column that this one is a cast of changes.",
    ),
    Shortcut(
        Scenario(
            "modify column without backfill",
            replace(
                f1.MODIFY_LOSSY,
                steps=tuple(replace(step, work=Work.NOTHING) for step in f1.MODIFY_LOSSY.steps),
            ),
            LOSSY,
        ),
        INTEGRITY,
        "Rows that nobody wrote meanwhile have no value of the new column.",
    ),
)

CONSTRAINTS: Final = (
    Shortcut(
        Scenario("not null in one step", along("not null", ElementKind.CONSTRAINT, (N, P)), forbidding("not null")),
        INTEGRITY,
        "A NULL is there already, or a node one behind writes one.",
    ),
    Shortcut(
        Scenario(
            "not null validated before all nodes enforce it",
            f1.MODIFY_NOT_NULL,
            forbidding("not null"),
            Rules(work_waits=False),
        ),
        INTEGRITY,
        "A node one behind writes a NULL after the validation.",
    ),
    Shortcut(
        Scenario(
            "table with foreign key in one step",
            operation(
                "create child table",
                (),
                [("table", ElementKind.TABLE), ("foreign key", ElementKind.CONSTRAINT)],
                [(N, N, N), (P, P, P)],
            ),
            referring("foreign key", child="table"),
        ),
        INTEGRITY,
        "A node that does not know the child table deletes the parent of its row.",
    ),
    Shortcut(
        Scenario(
            "drop foreign key in one step",
            along("foreign key", ElementKind.CONSTRAINT, (P, N)),
            referring("foreign key"),
        ),
        INTEGRITY,
        "A node that still counts on the constraint meets a child without parent. TiDB does it so, and gets away with "
        "it as long as nothing but writes looks at foreign keys.",
    ),
)
