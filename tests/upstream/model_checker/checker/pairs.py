"""Two states of one element alive side by side, for each kind of element and each pair of states that differ in effect.

    node A at one state, node B at the other, no data yet      run_mixed(pair.scenario)

Which pairs are fine is `coexist`; every step of an operation without delete ranges has to be such a pair.
"""

from collections.abc import Mapping
from itertools import permutations
from typing import Final, NamedTuple

from tests.upstream.model_checker.checker.correct import ADDED, COPIES, INDEXED, forbidding
from tests.upstream.model_checker.checker.rules import Rules
from tests.upstream.model_checker.checker.scenario import Scenario, along
from tidegate.schema.stored.definition import ElementState
from tidegate_upstream.f1 import ElementKind, operation

__all__ = ["KINDS", "PAIRS", "STATES", "Pair", "coexist"]

STRICT: Final = Rules(ranges=False)
KINDS: Final = (ElementKind.COLUMN, ElementKind.INDEX, ElementKind.COPY, ElementKind.CONSTRAINT)
STATES: Final = (ElementState.NONE, ElementState.DELETE_ONLY, ElementState.WRITE_ONLY, ElementState.PUBLIC)


_ALIKE: Final = {ElementState.WRITE_REORG: ElementState.WRITE_ONLY, ElementState.DELETE_REORG: ElementState.DELETE_ONLY}
_STEP_BY_STEP: Final = frozenset(
    {
        frozenset({ElementState.NONE, ElementState.DELETE_ONLY}),
        frozenset({ElementState.DELETE_ONLY, ElementState.WRITE_ONLY}),
        frozenset({ElementState.WRITE_ONLY, ElementState.PUBLIC}),
    }
)
_ROW_WIDE: Final = _STEP_BY_STEP | {frozenset({ElementState.NONE, ElementState.WRITE_ONLY})}
_TOGETHER: Final[Mapping[ElementKind, frozenset[frozenset[ElementState]]]] = {
    ElementKind.INDEX: _STEP_BY_STEP,
    ElementKind.COPY: _STEP_BY_STEP,
    ElementKind.COLUMN: _ROW_WIDE,
    ElementKind.CONSTRAINT: _ROW_WIDE,
}


def coexist(kind: ElementKind, one: ElementState, other: ElementState) -> bool:
    """Return whether nodes at either state can write at once and break nothing for the other, from data that is fine
    for both.

    Says nothing of delete ranges, which let an index or copy on its way out be unknown to some and written by others.
    The checker confirms each answer for columns, indexes, copies and constraints.  Tables, partitions and attributes
    always can: nothing else refers to them."""
    pair = frozenset({_ALIKE.get(one, one), _ALIKE.get(other, other)})
    return kind not in _TOGETHER or len(pair) == 1 or pair in _TOGETHER[kind]


class Pair(NamedTuple):
    """`kind` at `old` on one node and at `new` on the other."""

    kind: ElementKind
    old: ElementState
    new: ElementState
    scenario: Scenario


def _scenario(kind: ElementKind, old: ElementState, new: ElementState) -> Scenario:
    name = f"{kind.value} at {old.label} and {new.label}"
    if kind is ElementKind.COPY:
        lines = [(state, state, _others(state)) for state in (old, new)]
        path = operation(name, (), [("new rows", kind), ("old rows", kind)], lines)
        return Scenario(name, path, COPIES, STRICT)
    data = {ElementKind.COLUMN: ADDED, ElementKind.INDEX: INDEXED, ElementKind.CONSTRAINT: forbidding("constraint")}
    return Scenario(name, along(kind.value, kind, (old, new)), data[kind], STRICT)


def _others(state: ElementState) -> ElementState:
    """The state of the other copy: one of them has to be read."""
    return ElementState.WRITE_ONLY if state is ElementState.PUBLIC else ElementState.PUBLIC


PAIRS: Final = tuple(Pair(kind, *pair, _scenario(kind, *pair)) for kind in KINDS for pair in permutations(STATES, 2))
