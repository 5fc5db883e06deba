"""A scenario: an operation, the table that it works on, and what the cluster is careful about.

run(scenario)   Result: so many states and all is well, or the shortest way to an anomaly
"""

from dataclasses import dataclass, field, replace

from tests.upstream.model_checker.checker.anomaly import AnomalyKind
from tests.upstream.model_checker.checker.cluster import Cluster, World
from tests.upstream.model_checker.checker.layout import Layout
from tests.upstream.model_checker.checker.rows import Rows
from tests.upstream.model_checker.checker.rules import Rules
from tests.upstream.model_checker.checker.search import Result, search
from tests.upstream.model_checker.checker.spaces import Binding, Spaces
from tests.upstream.model_checker.checker.track import track
from tidegate.schema.stored.definition import ElementState
from tidegate_upstream.f1 import ElementKind, Operation, Work, operation

__all__ = ["Ranges", "Scenario", "Shortcut", "along", "run", "run_mixed", "under"]


@dataclass(frozen=True, slots=True)
class Ranges:
    """Where tables and partitions keep their rows; `limit`: the role of the rule that lets only fitting rows in."""

    bindings: tuple[Binding, ...]
    limit: str | None = None


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is checked; `name` is unique among the correct ones."""

    name: str
    operation: Operation
    data: Layout | Ranges
    rules: Rules = field(default_factory=Rules)


def _cluster(scenario: Scenario) -> Cluster:
    operation, rules = scenario.operation, scenario.rules
    way = track(operation, ranges=rules.ranges)
    data = scenario.data
    world: World
    if isinstance(data, Layout):
        world = Rows(data, operation, way)
    else:
        world = Spaces(data.bindings, operation, way, data.limit)
    return Cluster(world, way, rules)


def run(scenario: Scenario) -> Result:
    """Search all states of the scenario, from all nodes at version 0."""
    cluster = _cluster(scenario)
    return search(cluster, cluster.start())


def run_mixed(scenario: Scenario) -> Result:
    """Search all states from versions 0 and 1 alive side by side: whether the two get on with each other."""
    cluster = _cluster(scenario)
    return search(cluster, cluster.mixed())


def under(scenario: Scenario, rules: Rules, note: str) -> Scenario:
    """The same with other rules, and a note in the name."""
    return replace(scenario, name=f"{scenario.name}, {note}", rules=rules)


@dataclass(frozen=True, slots=True)
class Shortcut:
    """A scenario that must fail with an anomaly of `kind`; `why` says in a sentence what goes wrong."""

    scenario: Scenario
    kind: AnomalyKind
    why: str

    @property
    def name(self) -> str:
        """The scenario's name, the heading in the document."""
        return self.scenario.name


def along(
    role: str, kind: ElementKind, states: tuple[ElementState, ...], work: Work = Work.NOTHING, at: int | None = None
) -> Operation:
    """One element along `states`, with `work` at the step `at`."""
    todo = {} if at is None else {at: (work, (role,))}
    return operation(
        f"{kind.value}: {' > '.join(state.label for state in states)}",
        (),
        [(role, kind)],
        [(state, state) for state in states],
        work=todo,
    )
