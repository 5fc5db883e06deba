"""A multi-schema change: the steps of several operations as one job.

    add column c, drop column d, add index i
      c  none  DO  WO  WR  WR  WR  WR | public  public  ..      1 each to its last revertible step, in turn
      d  public        ..             | WO      DO  DR  none    2 all together, in one version, past it
      i  none          DO  WO  WR     | public  ..              3 each to its end, in turn

Before the bar all can be taken back, the last begun first; after it none can.  Ranges are deleted when the job is over.

A lossy MODIFY COLUMN (`keeps`) writes its old column until the job is done, since readers of the definition before find
their values there: it goes on after the others, and several of them end in one version.  TiDB has it end in its turn.
Source: TiDB pkg/ddl/multi_schema_change.go, and the sub-jobs of recorded jobs.
"""

from collections.abc import Sequence
from typing import Final

from tidegate.schema.f1 import ElementState, Operation, Role, Step, Work

__all__ = ["MULTI_SCHEMA_CHANGE", "combine", "interleave"]

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
