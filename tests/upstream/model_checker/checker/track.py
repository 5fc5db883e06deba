"""The versions of one operation in a row, with a way back behind each step that can be taken back.

    v0 none -> v1 delete-only -> v2 write-only -> v3 write-reorg -> v4 public
                  |                 `-> v2 back 1 delete-only -> v2 back 2 delete-reorg -> v2 back 3 none
                  `-> v1 back 1 delete-only -> ..

Source: `f1.Operation`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.schema.stored.definition import ElementState
from tidegate_upstream.f1 import Operation, Step, Work, rollback

__all__ = ["Track", "track"]


@dataclass(frozen=True, slots=True)
class Track:
    """The versions of one operation, ways back included: `after[i]` are the versions that can follow version i."""

    steps: tuple[Step, ...]
    labels: tuple[str, ...]
    after: tuple[tuple[int, ...], ...]
    back: tuple[int | None, ...]
    gone: tuple[frozenset[str], ...]
    """Roles that were there before and are not any more."""
    doomed: tuple[frozenset[str], ...]
    """Those of them whose range is still to be deleted."""
    decodes: tuple[int, ...]
    """For each version the one whose definitions a reader of the change log goes by."""


def track(operation: Operation, *, ranges: bool = True) -> Track:
    """The versions of `operation`, with a way back behind each step that can be taken back."""
    steps = list(operation.steps)
    labels = [_label(operation, step, f"v{at}") for at, step in enumerate(steps)]
    after: list[tuple[int, ...]] = [(at + 1,) for at in range(len(steps) - 1)] + [()]
    paths = [steps[: at + 1] for at in range(len(steps))]
    back: list[int | None] = [None] * len(steps)
    for at in range(len(operation.steps)):
        way = rollback(operation, at) or ()
        back[at] = len(steps) if way else None
        for number, step in enumerate(way, 1):
            after.append((len(steps) + 1,) if number < len(way) else ())
            paths.append([*operation.steps[: at + 1], *way[:number]])
            labels.append(_label(operation, step, f"v{at} back {number}"))
            back.append(None)
            steps.append(step)
    on = {role for step in steps if step.work is Work.DELETE_RANGE for role in step.on}
    gone = tuple(_gone(operation, path) for path in paths)
    doomed = tuple(roles & on if ranges else frozenset() for roles in gone)
    done = operation.done % len(operation.steps)
    decodes = tuple(done if done <= at < len(operation.steps) else 0 for at in range(len(steps)))
    return Track(tuple(steps), tuple(labels), tuple(after), tuple(back), gone, doomed, decodes)


def _label(operation: Operation, step: Step, name: str) -> str:
    return f"{name} {step.states[0].label}" if len(operation.roles) == 1 else name


def _gone(operation: Operation, path: Sequence[Step]) -> frozenset[str]:
    """The roles that were there on `path` and are not at its end."""
    return frozenset(
        role.name
        for place, role in enumerate(operation.roles)
        if path[-1].states[place] is ElementState.NONE
        and any(step.states[place] is not ElementState.NONE for step in path)
    )
