"""Every DDL operation as a table of steps: the job's state, then one state per role, one line a schema version.

    P public   WO write-only   DO delete-only   WR write-reorg   DR delete-reorg   RO replica-only   N none

Work stands at the step where it is done, with all nodes there: backfill and validation before the next step, delete
ranges after the last one, when nobody knows the element any more.  Element ids are never used again.

Two operations take one version more than TiDB, because the checker finds what theirs allows:

    exchange partition   the table takes only rows that fit until nobody sees the old assignment any more
    drop foreign key     write-only before none, or a node that still counts on it meets a child without parent

and two keep writing what was there before until the very step that removes it, so that a reader of the definition
before the job was done, which TiCDC is, finds each value: the lossy MODIFY COLUMN the old column, a reorganisation of
partitions the rows in their old places.  Two are done earlier, so that the same reader knows where rows lie before the
first one lies there: truncate partition when the new partitions come, drop partition with its first step, from which
on rows of the range go to the next partition.  The job states of all others are what TiDB records.
Source: mysql.tidb_ddl_job of a real TiDB, recorded step by step; TiDB pkg/ddl (column.go, index.go, partition.go).
"""

from collections.abc import Mapping, Sequence
from typing import Final

from tidegate.schema.stored.states import ElementState
from tidegate_upstream.f1 import ElementKind, Operation, Role, Step, Work

N, DO, WO, WR, DR, P, RO = (
    ElementState.NONE,
    ElementState.DELETE_ONLY,
    ElementState.WRITE_ONLY,
    ElementState.WRITE_REORG,
    ElementState.DELETE_REORG,
    ElementState.PUBLIC,
    ElementState.REPLICA_ONLY,
)
COLUMN, INDEX, TABLE, PARTITION, COPY, CONSTRAINT, ATTRIBUTE = ElementKind

_States = tuple[ElementState, ...]


def operation(
    name: str,
    actions: tuple[int, ...],
    roles: Sequence[tuple[str, ElementKind]],
    lines: Sequence[_States],
    *,
    work: Mapping[int, tuple[Work, tuple[str, ...]]] | None = None,
    back: tuple[Step, ...] = (),
    revertible: int = 0,
    done: int = -1,
    keeps: bool = False,
) -> Operation:
    """Return an operation from its lines (job state, then the roles' states), `work` by line, and one way `back` for
    all."""
    todo = work or {}
    steps = tuple(Step(line[0], line[1:], *todo.get(at, ())) for at, line in enumerate(lines))
    places = tuple(Role(role, kind) for role, kind in roles)
    return Operation(name, actions, places, steps, revertible, ((), *[back] * revertible), done, keeps)


_INDEX_BACK: Final = (Step(DO, (DO,)), Step(DR, (DR,)), Step(N, (N,), Work.DELETE_RANGE, ("index",)))

ADD_COLUMN: Final = operation(
    "add column",
    (5, 37),
    [("column", COLUMN)],
    [(N, N), (DO, DO), (WO, WO), (WR, WR), (P, P)],
    back=(Step(DO, (DO,)), Step(DR, (DR,)), Step(N, (N,))),
    revertible=3,
)
DROP_COLUMN: Final = operation(
    "drop column",
    (6, 38),
    [("column", COLUMN), ("index", INDEX)],
    [(P, P, P), (WO, WO, WO), (DO, DO, N), (DR, DR, N), (N, N, N)],
    work={4: (Work.DELETE_RANGE, ("index",))},
)
ADD_INDEX: Final = operation(
    "add index",
    (7,),
    [("index", INDEX)],
    [(N, N), (DO, DO), (WO, WO), (WR, WR), (P, P)],
    work={3: (Work.BACKFILL, ("index",))},
    back=_INDEX_BACK,
    revertible=3,
)
ADD_PRIMARY_KEY: Final = operation(
    "add primary key",
    (32,),
    [("index", INDEX), ("not null", CONSTRAINT)],
    [(N, N, N), (DO, DO, N), (WO, WO, WO), (WR, WR, WR), (P, P, P)],
    work={3: (Work.BACKFILL, ("index", "not null"))},
    back=(Step(DO, (DO, N)), Step(DR, (DR, N)), Step(N, (N, N), Work.DELETE_RANGE, ("index",))),
    revertible=3,
)
DROP_INDEX: Final = operation(
    "drop index",
    (8, 33),
    [("index", INDEX)],
    [(P, P), (WO, WO), (DO, DO), (DR, DR), (N, N)],
    work={4: (Work.DELETE_RANGE, ("index",))},
)
MODIFY_LOSSLESS: Final = operation("modify column, same bytes", (12,), [("definition", ATTRIBUTE)], [(N, N), (P, P)])
MODIFY_NOT_NULL: Final = operation(
    "modify column, null to not null",
    (12,),
    [("not null", CONSTRAINT)],
    [(N, N), (N, WO), (P, P)],
    work={1: (Work.VALIDATE, ("not null",))},
    back=(Step(N, (N,)),),
    revertible=1,
)
MODIFY_LOSSY: Final = operation(
    "modify column, new bytes",
    (12,),
    [("old column", COLUMN), ("old index", INDEX), ("new column", COLUMN), ("new index", INDEX)],
    [
        (N, P, P, N, N),
        (DO, P, P, DO, DO),
        (WO, P, P, WO, WO),
        (WR, P, P, WR, WR),
        (P, WO, WO, P, P),
        (P, WO, DO, P, P),
        (P, N, N, P, P),
    ],
    work={3: (Work.BACKFILL, ("new column", "new index")), 6: (Work.DELETE_RANGE, ("old index",))},
    back=(Step(N, (P, P, N, N), Work.DELETE_RANGE, ("new index",)),),
    revertible=3,
    keeps=True,
)
ADD_FOREIGN_KEY: Final = operation(
    "add foreign key",
    (9,),
    [("foreign key", CONSTRAINT)],
    [(N, N), (WO, WO), (WR, WR), (P, P)],
    work={2: (Work.VALIDATE, ("foreign key",))},
    back=(Step(WO, (WO,)), Step(N, (N,))),
    revertible=3,
)
DROP_FOREIGN_KEY: Final = operation(
    "drop foreign key", (10,), [("foreign key", CONSTRAINT)], [(P, P), (WO, WO), (N, N)]
)
ADD_CHECK: Final = operation(
    "add check constraint",
    (43,),
    [("check", CONSTRAINT)],
    [(N, N), (WO, WO), (WR, WR), (P, P)],
    work={2: (Work.VALIDATE, ("check",))},
    back=(Step(N, (N,)),),
    revertible=2,
)
DROP_CHECK: Final = operation("drop check constraint", (44,), [("check", CONSTRAINT)], [(N, P), (WO, WO), (N, N)])

CREATE_TABLE: Final = operation(
    "create table, tables, view, database, sequence", (1, 3, 21, 34, 60), [("table", TABLE)], [(N, N), (P, P)]
)
CREATE_CHILD_TABLE: Final = operation(
    "create table with foreign key",
    (3,),
    [("table", TABLE), ("foreign key", CONSTRAINT)],
    [(N, N, N), (WO, WO, WO), (P, P, P)],
)
DROP_TABLE: Final = operation(
    "drop table, view, database, sequence",
    (2, 4, 24, 36),
    [("table", TABLE)],
    [(P, P), (WO, WO), (DO, DO), (N, N)],
    work={3: (Work.DELETE_RANGE, ("table",))},
)
TRUNCATE_TABLE: Final = operation(
    "truncate table",
    (11,),
    [("old table", TABLE), ("new table", TABLE)],
    [(N, P, N), (P, N, P)],
    work={1: (Work.DELETE_RANGE, ("old table",))},
)
RENAME_TABLE: Final = operation(
    "rename table, tables",
    (14, 47),
    [("old name", ATTRIBUTE), ("new name", ATTRIBUTE)],
    [(N, P, N), (P, N, P), (P, N, P)],
)
RECOVER_TABLE: Final = operation("recover table", (25,), [("table", TABLE)], [(N, N), (WO, WO), (P, P)])

ADD_PARTITION: Final = operation(
    "add partition",
    (19,),
    [("partition", PARTITION)],
    [(N, N), (RO, RO), (P, P)],
    back=(Step(N, (N,)),),
    revertible=1,
)
DROP_PARTITION: Final = operation(
    "drop partition",
    (20,),
    [("partition", PARTITION)],
    [(P, P), (WO, WO), (DO, DO), (DR, DR), (N, N)],
    work={4: (Work.DELETE_RANGE, ("partition",))},
    done=1,
)
TRUNCATE_PARTITION: Final = operation(
    "truncate partition",
    (23,),
    [("old partition", PARTITION), ("new partition", PARTITION)],
    [(P, P, N), (WO, WO, N), (DO, DO, P), (DR, DR, P), (N, N, P)],
    work={4: (Work.DELETE_RANGE, ("old partition",))},
    done=2,
)
EXCHANGE_PARTITION: Final = operation(
    "exchange partition",
    (42,),
    [
        ("partition in place", PARTITION),
        ("table in place", TABLE),
        ("partition swapped", PARTITION),
        ("table swapped", TABLE),
        ("rows fit", CONSTRAINT),
    ],
    [(N, P, P, N, N, N), (WO, P, P, N, N, WO), (N, N, N, P, P, WO), (N, N, N, P, P, N)],
    work={1: (Work.VALIDATE, ("rows fit",))},
    back=(Step(N, (P, P, N, N, N)),),
    revertible=1,
    done=2,
)
REORGANIZE: Final = operation(
    "reorganize, partition by, remove partitioning",
    (64, 71, 72),
    [("new rows", COPY), ("old rows", COPY)],
    [(N, N, P), (DO, DO, P), (WO, WO, P), (WR, WR, P), (DR, P, WO), (P, P, WO), (N, P, N)],
    work={3: (Work.BACKFILL, ("new rows",)), 6: (Work.DELETE_RANGE, ("old rows",))},
    back=(Step(N, (N, P), Work.DELETE_RANGE, ("new rows",)),),
    revertible=3,
)

AT_ONCE: Final = operation(
    "set default, comment, charset, rename index, visibility, rebase, row id bits, ttl",
    (13, 15, 16, 17, 18, 22, 26, 35, 39, 40, 41, 45, 65, 67),
    [("definition", ATTRIBUTE)],
    [(N, N), (P, P)],
)

OPERATIONS: Final[tuple[Operation, ...]] = (
    ADD_COLUMN,
    DROP_COLUMN,
    ADD_INDEX,
    ADD_PRIMARY_KEY,
    DROP_INDEX,
    MODIFY_LOSSLESS,
    MODIFY_NOT_NULL,
    MODIFY_LOSSY,
    ADD_FOREIGN_KEY,
    DROP_FOREIGN_KEY,
    ADD_CHECK,
    DROP_CHECK,
    CREATE_TABLE,
    CREATE_CHILD_TABLE,
    DROP_TABLE,
    TRUNCATE_TABLE,
    RENAME_TABLE,
    RECOVER_TABLE,
    ADD_PARTITION,
    DROP_PARTITION,
    TRUNCATE_PARTITION,
    EXCHANGE_PARTITION,
    REORGANIZE,
    AT_ONCE,
)

BY_ACTION: Final[Mapping[int, tuple[Operation, ...]]] = {
    action: tuple(item for item in OPERATIONS if action in item.actions)
    for action in sorted({action for item in OPERATIONS for action in item.actions})
}
"""TiDB's ActionType -> the operations that it can be: three for MODIFY COLUMN, two for CREATE TABLE, else one."""
