"""The schema states of F1 online DDL, and every DDL operation of TiDB as a table of steps.

An element is what has a schema state of its own: a column, an index, a table, a partition, a copy of rows or a
constraint.  A step is one schema version of a job: the state of each element, and the work that must be finished before
the next step.  An operation is a sequence of steps and, for each step, the way back.

    add index    none -> delete-only -> write-only -> write-reorg (backfill) -> public
                         `-----------`-------------`-> cancelled: delete-only -> delete-reorg -> none

Nodes load versions at their own pace, but the owner publishes a step only when every node has the previous one.  At any
time two neighbouring steps are in use, so it suffices that each pair of neighbours agrees on the data, whatever
transactions run under either.  The model checker in tests/upstream verifies that from these tables (`ACCESS`).

    state         column                    index, copy of rows                  constraint
    none          unknown                   unknown                              unknown
    delete-only   an UPDATE drops it        entries are removed, none added      nothing
    write-only    default, or kept          entries are written, never read      enforced, not assumed
    write-reorg   as write-only, while the owner brings old rows up to date
    public        read and written          read and written                     enforced and assumed
    delete-reorg  as delete-only

A table or partition that is not public does not exist for its users.  Element ids are never reused.  Delete ranges are
processed after the last step, when no node uses the element any more.

`combine` makes one job of the operations of a multi-schema change: each part advances in turn to its last revertible
step, then all take the next step in one version, then each goes on to its end in turn.  Before that common version
everything can be rolled back, the part that began last first; after it nothing can.  A lossy MODIFY COLUMN (`keeps`)
goes on after the others, and several of them end in one version.

Differences from TiDB: EXCHANGE PARTITION and DROP FOREIGN KEY take one version more, because the checker finds
anomalies in TiDB's sequence.  A lossy MODIFY COLUMN keeps writing the old column, and a reorganisation the rows in the
old partitions, until the last step, since TiCDC reads with the definition before it.  TRUNCATE PARTITION and DROP
PARTITION are done earlier, so that TiCDC knows the partition of a row before the first such row.

Source: Rae et al., Online, Asynchronous Schema Change in F1, VLDB 2013; mysql.tidb_ddl_job of a real TiDB, recorded
step by step; TiDB pkg/meta/model/job.go, pkg/ddl (column.go, index.go, partition.go).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from tidegate.schema.stored.definition import ElementState


class ElementKind(Enum):
    """The kind of a schema element, which decides what its states allow."""

    COLUMN = "column"
    INDEX = "index"
    TABLE = "table"
    PARTITION = "partition"
    COPY = "copy of rows"
    CONSTRAINT = "constraint"
    ATTRIBUTE = "attribute"


class Touch(Enum):
    """The effect of an INSERT or UPDATE on an element's data."""

    LEAVE = "leave"
    """Keep the stored value, write nothing."""
    DROP = "drop"
    """Delete the stored value, write nothing."""
    FILL = "fill"
    """Keep the stored value; without one, write the origin default or the cast of the old column's value."""
    PUT = "put"
    """Replace the stored value by the row's new value.  A constraint is checked."""


@dataclass(frozen=True, slots=True)
class Access:
    """The operations that a transaction may do on an element; a constraint with `read` is assumed for stored rows."""

    read: bool
    insert: Touch
    update: Touch
    delete: bool


class Work(Enum):
    """Work that the owner completes at a step, once all nodes have reached it."""

    NOTHING = "nothing"
    BACKFILL = "backfill"
    """Bring old rows, then index entries or copies, up to date, batch by batch; duplicates roll the job back."""
    VALIDATE = "validate"
    """Check stored rows against a constraint; the job rolls back on a violation."""
    DELETE_RANGE = "delete range"
    """Remove the remaining data of an element at once."""


@dataclass(frozen=True, slots=True)
class Role:
    """An element's role in an operation, such as `new index`."""

    name: str
    kind: ElementKind


@dataclass(frozen=True, slots=True)
class Step:
    """One schema version: the job's `schema_state`, the state of each role, and `work` on the roles `on`."""

    job: ElementState
    states: tuple[ElementState, ...]
    work: Work = Work.NOTHING
    on: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Operation:
    """Steps of a DDL job; the first one is the schema before it.

    `actions`: TiDB's ActionType numbers.  `revertible`: the last step from which it can be cancelled; in a multi-schema
    change it waits there for the others.  `back[i]`: the steps that follow when it is cancelled at step i.  `done`: the
    step at which the job is done, by default the last.  `keeps`: until its last step it writes what readers of the
    definition before need."""

    name: str
    actions: tuple[int, ...]
    roles: tuple[Role, ...]
    steps: tuple[Step, ...]
    revertible: int = 0
    back: tuple[tuple[Step, ...], ...] = ((),)
    done: int = -1
    keeps: bool = False


_NOTHING: Final = Access(read=False, insert=Touch.LEAVE, update=Touch.LEAVE, delete=False)
_ALL: Final = Access(read=True, insert=Touch.PUT, update=Touch.PUT, delete=True)
_WRITTEN: Final = Access(read=False, insert=Touch.PUT, update=Touch.PUT, delete=True)
_REMOVED: Final = Access(read=False, insert=Touch.LEAVE, update=Touch.DROP, delete=True)
_FILLED: Final = Access(read=False, insert=Touch.FILL, update=Touch.FILL, delete=True)

_S = ElementState
_ENTRIES: Final[Mapping[ElementState, Access]] = {
    _S.NONE: _NOTHING,
    _S.DELETE_ONLY: _REMOVED,
    _S.WRITE_ONLY: _WRITTEN,
    _S.WRITE_REORG: _WRITTEN,
    _S.DELETE_REORG: _REMOVED,
    _S.PUBLIC: _ALL,
}
_CELLS: Final[Mapping[ElementState, Access]] = {
    _S.NONE: _REMOVED,
    _S.DELETE_ONLY: _REMOVED,
    _S.WRITE_ONLY: _FILLED,
    _S.WRITE_REORG: _FILLED,
    _S.DELETE_REORG: _REMOVED,
    _S.PUBLIC: _ALL,
}
_CHECKS: Final[Mapping[ElementState, Access]] = {
    _S.NONE: _NOTHING,
    _S.DELETE_ONLY: _NOTHING,
    _S.WRITE_ONLY: _WRITTEN,
    _S.WRITE_REORG: _WRITTEN,
    _S.DELETE_REORG: _NOTHING,
    _S.PUBLIC: _ALL,
}
_ALL_OR_NOTHING: Final[Mapping[ElementState, Access]] = {
    state: _ALL if state is _S.PUBLIC else _NOTHING for state in _S if state is not _S.GLOBAL_TXN_ONLY
}

ACCESS: Final[Mapping[ElementKind, Mapping[ElementState, Access]]] = {
    ElementKind.COLUMN: _CELLS,
    ElementKind.INDEX: _ENTRIES,
    ElementKind.COPY: _ENTRIES,
    ElementKind.CONSTRAINT: _CHECKS,
    ElementKind.TABLE: _ALL_OR_NOTHING,
    ElementKind.PARTITION: _ALL_OR_NOTHING,
    ElementKind.ATTRIBUTE: {_S.NONE: _NOTHING, _S.PUBLIC: _ALL},
}
"""Kind -> state -> access.  A row is one key-value pair, so a writer that does not know a column drops its value."""


def access(kind: ElementKind, state: ElementState) -> Access:
    """Return the operations allowed on an element of `kind` at `state`; KeyError for a pair that no operation has."""
    return ACCESS[kind][state]


def next_step(operation: Operation, index: int) -> int | None:
    """Return the step after step `index`; None if there is none."""
    return index + 1 if index + 1 < len(operation.steps) else None


def rollback(operation: Operation, index: int) -> tuple[Step, ...] | None:
    """Return the steps that undo an operation cancelled at step `index`; None if it can only continue, or has ended.

    Empty at step 0: nothing has happened yet, the job is `cancelled`; after any others it is `rollback_done`."""
    return operation.back[index] if index <= operation.revertible and next_step(operation, index) is not None else None


MULTI_SCHEMA_CHANGE: Final = 61


def interleave(parts: Sequence[Operation]) -> tuple[tuple[int, ...], ...]:
    """Return for each version of the job the step of each of `parts`; the first is the schema before the job."""
    position = [0] * len(parts)
    positions = [tuple(position)]
    for index, part in enumerate(parts):
        for step in range(1, part.revertible + 1):
            position[index] = step
            positions.append(tuple(position))
    ends = [len(part.steps) - 1 for part in parts]
    position = [min(step + 1, end) for step, end in zip(position, ends, strict=True)]
    positions.append(tuple(position))
    keepers = [index for index, part in enumerate(parts) if part.keeps and position[index] < ends[index]]
    for index in sorted(range(len(parts)), key=lambda index: index in keepers):
        for step in range(position[index] + 1, ends[index] + (index not in keepers)):
            position[index] = step
            positions.append(tuple(position))
    return (*positions, tuple(ends)) if keepers else tuple(positions)


def combine(name: str, parts: Sequence[Operation]) -> Operation:
    """Return the multi-schema change of `parts` as one operation; role `x` of the n-th part (from 1) is named `n x`."""
    positions = interleave(parts)
    revertible = sum(part.revertible for part in parts)
    roles = tuple(
        Role(f"{number} {role.name}", role.kind) for number, part in enumerate(parts, 1) for role in part.roles
    )
    steps = [_joined(parts, position, before) for position, before in zip(positions, (None, *positions), strict=False)]
    ranges = tuple(role for step in steps if step.work is Work.DELETE_RANGE for role in step.on)
    steps = [Step(step.job, step.states) if step.work is Work.DELETE_RANGE else step for step in steps]
    if ranges:
        steps[-1] = Step(steps[-1].job, steps[-1].states, Work.DELETE_RANGE, ranges)
    back = tuple(_way_back(parts, position) for position in positions[: revertible + 1])
    return Operation(name, (MULTI_SCHEMA_CHANGE,), roles, tuple(steps), revertible, back)


def _joined(parts: Sequence[Operation], position: tuple[int, ...], before: tuple[int, ...] | None) -> Step:
    current = [part.steps[number] for part, number in zip(parts, position, strict=True)]
    moved = [index for index, number in enumerate(position) if before is not None and number != before[index]]
    busy = [index for index in moved if current[index].work is not Work.NOTHING]
    work = current[busy[0]].work if busy else Work.NOTHING
    assert all(current[index].work is work for index in busy), "two kinds of work in one version"
    on = tuple(f"{index + 1} {role}" for index in busy for role in current[index].on)
    return Step(ElementState.NONE, tuple(state for step in current for state in step.states), work, on)


def _way_back(parts: Sequence[Operation], position: tuple[int, ...]) -> tuple[Step, ...]:
    states = [part.steps[number].states for part, number in zip(parts, position, strict=True)]
    steps: list[Step] = []
    ranges: tuple[str, ...] = ()
    for index in reversed(range(len(parts))):
        for step in parts[index].back[position[index]]:
            states[index] = step.states
            steps.append(Step(ElementState.NONE, tuple(state for part in states for state in part)))
            ranges += tuple(f"{index + 1} {role}" for role in step.on)
    if ranges:
        steps[-1] = Step(ElementState.NONE, steps[-1].states, Work.DELETE_RANGE, ranges)
    return tuple(steps)


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
    """Return an operation from its lines (job state, then the roles' states), `work` by line, and one rollback `back`
    for all."""
    todo = work or {}
    steps = tuple(Step(line[0], line[1:], *todo.get(index, ())) for index, line in enumerate(lines))
    typed_roles = tuple(Role(role, kind) for role, kind in roles)
    return Operation(name, actions, typed_roles, steps, revertible, ((), *[back] * revertible), done, keeps)


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
"""Operations by TiDB's ActionType: three for MODIFY COLUMN, two for CREATE TABLE, else one."""
