"""F1's schema states as data: what a transaction may do to an element at each state, and how operations are written.

    element    a column, an index, a table, a partition, a copy of rows, a constraint: what has a state of its own
    step       one schema version of a job: the state of each element, and what must be finished before the next step
    operation  steps in order, and for each step the way back

    add index    none -> delete-only -> write-only -> write-reorg (backfill) -> public
                         `-----------`-------------`-> cancelled: delete-only -> delete-reorg -> none

Nodes load versions at their own pace, but the owner publishes a step only when every node has the one before, so the
versions alive are one step and its neighbour.  Data is safe when each pair of neighbours agrees on it, whatever
transactions run under either: that is what the model checker (tests/upstream) goes through, by these tables.

    state         column                    index, copy of rows            constraint
    none          unknown                   unknown                        unknown
    delete-only   an UPDATE drops it        entries go, none come          nothing
    write-only    default, or kept          entries go and come, no reads  enforced, not assumed
    write-reorg   as write-only, and the owner brings old rows up to date
    public        read and written          read and written               enforced and assumed
    delete-reorg  as delete-only

A table or partition that is not public does not exist for its users; nothing else refers to its rows.

A multi-schema change is the steps of several operations as one job (`combine`):

    add column c, drop column d, add index i
      c  none  DO  WO  WR  WR  WR  WR | public  public  ..      1 each to its last revertible step, in turn
      d  public        ..             | WO      DO  DR  none    2 all together, in one version, past it
      i  none          DO  WO  WR     | public  ..              3 each to its end, in turn

Before the bar all can be taken back, the last begun first; after it none can.  Ranges are deleted when the job is over.

A lossy MODIFY COLUMN (`keeps`) writes its old column until the job is done, since readers of the definition before find
their values there: it goes on after the others, and several of them end in one version.  TiDB has it end in its turn.

Source: Rae et al., Online, Asynchronous Schema Change in F1, VLDB 2013; TiDB pkg/meta/model/job.go.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from tidegate.schema.stored.states import ElementState


class ElementKind(Enum):
    """What has a state: it decides what the state lets a transaction do."""

    COLUMN = "column"
    INDEX = "index"
    TABLE = "table"
    PARTITION = "partition"
    COPY = "copy of rows"
    CONSTRAINT = "constraint"
    ATTRIBUTE = "attribute"


class Touch(Enum):
    """What an INSERT or UPDATE does to an element's data."""

    LEAVE = "leave"
    """What is stored stays, nothing comes."""
    DROP = "drop"
    """What is stored goes, nothing comes."""
    FILL = "fill"
    """The stored value stays; without one, the origin default or the cast of the column that it changes from."""
    PUT = "put"
    """What is stored goes, the row's new value comes.  Of a constraint: the row is checked."""


@dataclass(frozen=True, slots=True)
class Access:
    """What a transaction may do to an element; of a constraint, `read` means that stored rows are taken to obey it."""

    read: bool
    insert: Touch
    update: Touch
    delete: bool


class Work(Enum):
    """What the owner finishes, with all nodes at a step, before the job goes on."""

    NOTHING = "nothing"
    BACKFILL = "backfill"
    """Bring old rows, then index entries or copies, up to date, batch by batch; duplicates roll the job back."""
    VALIDATE = "validate"
    """Look whether stored rows obey a constraint; if not, the job rolls back."""
    DELETE_RANGE = "delete range"
    """Remove what is left of an element, all at once."""


@dataclass(frozen=True, slots=True)
class Role:
    """A part that an element plays in an operation, such as `new index`."""

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
"""Kind -> state -> access.  A row is one key-value pair written whole, so who does not know a column drops it."""


def access(kind: ElementKind, state: ElementState) -> Access:
    """Return what a transaction may do to an element of `kind` at `state`; a pair that no operation has is a
    KeyError."""
    return ACCESS[kind][state]


def next_step(operation: Operation, at: int) -> int | None:
    """Return the step after step `at`; None when there is none."""
    return at + 1 if at + 1 < len(operation.steps) else None


def rollback(operation: Operation, at: int) -> tuple[Step, ...] | None:
    """Return the steps that take back an operation cancelled at step `at`; None where it can only go on, or is at its
    end.

    Empty at step 0: nothing has happened yet, the job is `cancelled`; after any others it is `rollback_done`."""
    return operation.back[at] if at <= operation.revertible and next_step(operation, at) is not None else None


MULTI_SCHEMA_CHANGE: Final = 61


def interleave(parts: Sequence[Operation]) -> tuple[tuple[int, ...], ...]:
    """For each version of the job the step that each of `parts` is at; the first is the schema before."""
    at = [0] * len(parts)
    found = [tuple(at)]
    for index, part in enumerate(parts):
        for step in range(1, part.revertible + 1):
            at[index] = step
            found.append(tuple(at))
    ends = [len(part.steps) - 1 for part in parts]
    at = [min(step + 1, end) for step, end in zip(at, ends, strict=True)]
    found.append(tuple(at))
    keepers = [index for index, part in enumerate(parts) if part.keeps and at[index] < ends[index]]
    for index in sorted(range(len(parts)), key=lambda index: index in keepers):
        for step in range(at[index] + 1, ends[index] + (index not in keepers)):
            at[index] = step
            found.append(tuple(at))
    return (*found, tuple(ends)) if keepers else tuple(found)


def combine(name: str, parts: Sequence[Operation]) -> Operation:
    """Return the multi-schema change of `parts` as one operation; role `x` of the n-th part (from 1) is called `n
    x`."""
    places = interleave(parts)
    revertible = sum(part.revertible for part in parts)
    roles = tuple(
        Role(f"{number} {role.name}", role.kind) for number, part in enumerate(parts, 1) for role in part.roles
    )
    steps = [_joined(parts, place, before) for place, before in zip(places, (None, *places), strict=False)]
    ranges = tuple(role for step in steps if step.work is Work.DELETE_RANGE for role in step.on)
    steps = [Step(step.job, step.states) if step.work is Work.DELETE_RANGE else step for step in steps]
    if ranges:
        steps[-1] = Step(steps[-1].job, steps[-1].states, Work.DELETE_RANGE, ranges)
    back = tuple(_way_back(parts, place) for place in places[: revertible + 1])
    return Operation(name, (MULTI_SCHEMA_CHANGE,), roles, tuple(steps), revertible, back)


def _joined(parts: Sequence[Operation], place: tuple[int, ...], before: tuple[int, ...] | None) -> Step:
    """The step where the parts are at `place`, with the work of the parts that moved."""
    current = [part.steps[at] for part, at in zip(parts, place, strict=True)]
    moved = [index for index, at in enumerate(place) if before is not None and at != before[index]]
    busy = [index for index in moved if current[index].work is not Work.NOTHING]
    work = current[busy[0]].work if busy else Work.NOTHING
    assert all(current[index].work is work for index in busy), "two kinds of work in one version"
    on = tuple(f"{index + 1} {role}" for index in busy for role in current[index].on)
    return Step(ElementState.NONE, tuple(state for step in current for state in step.states), work, on)


def _way_back(parts: Sequence[Operation], place: tuple[int, ...]) -> tuple[Step, ...]:
    """The steps that take back the parts at `place`, the last begun first."""
    states = [part.steps[at].states for part, at in zip(parts, place, strict=True)]
    found: list[Step] = []
    ranges: tuple[str, ...] = ()
    for index in reversed(range(len(parts))):
        for step in parts[index].back[place[index]]:
            states[index] = step.states
            found.append(Step(ElementState.NONE, tuple(state for part in states for state in part)))
            ranges += tuple(f"{index + 1} {role}" for role in step.on)
    if ranges:
        found[-1] = Step(ElementState.NONE, found[-1].states, Work.DELETE_RANGE, ranges)
    return tuple(found)
