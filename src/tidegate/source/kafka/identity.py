"""Which topic it is: a name says nothing once a topic was deleted and made again, for its offsets begin anew.

    stored id    the broker's    a topic that was read before
    A            A               goes on
    A            B               MadeAnew, unless the address says made-anew=TOPIC:B
    none         B               goes on, and B is kept from now on           state of an earlier release; said once
    none         none            goes on: nothing tells                       said once
    A            none            goes on with A, as a broker that gives none says nothing

Offsets are compared with the id of the moment before they are read and of the moment behind it, so messages of another
topic never land.
"""

from collections.abc import Mapping, Sequence

import msgspec

from tidegate.changelog.report import State
from tidegate.engine.frontier import Positions
from tidegate.model.feed_errors import MadeAnew
from tidegate.source.kafka.client import Described

SAME_OFFSETS = "same-offsets"


def recognised(
    state: State, found: Mapping[str, Described], made_anew: Sequence[tuple[str, str, bool]] = ()
) -> tuple[State, tuple[str, ...]]:
    """Return `state` with the ids of the topics that are there, without the positions of those that are read anew, and
    what a user has to hear.

    `made_anew` has (topic, id, whether its offsets are those of the one before). Raises MadeAnew for another id."""
    accepted = {(topic, topic_id): same for topic, topic_id, same in made_anew}
    identities, positions, told = dict(state.identities), dict(state.positions), []
    for topic, (_, topic_id) in found.items():
        known = state.identities.get(topic)
        if known and topic_id not in {"", known}:
            same = accepted.get((topic, topic_id))
            if same is None:
                raise made_again(topic, known, topic_id, state)
            if not same:
                positions.pop(topic, None)
        elif known is None and not topic_id:
            told.append(
                f"topic {topic}: the broker gives no id of it, so nobody would notice that it was deleted and made "
                "again"
            )
        elif known is None and topic in positions:
            told.append(
                f"topic {topic} was read without its id up to now; its id {topic_id} is kept from here on, and was not "
                "compared with the one that it had before"
            )
        identities[topic] = topic_id or known or ""
    halted = tuple(halt for halt in state.halted if halt.topic in positions)
    return msgspec.structs.replace(state, identities=identities, positions=positions, halted=halted), tuple(told)


def check_same(state: State, found: Mapping[str, Described]) -> None:
    """Raise MadeAnew for a topic that has another id now than in `state`."""
    recognised(state, found)


def made_again(topic: str, known: str, topic_id: str, state: State) -> MadeAnew:
    """Return the error for a topic that has another id than the one that was read."""
    read = _read_up_to(topic, state.positions)
    since = f"ts {state.frontier}" if state.frontier else "the begin"
    resend = f" (`cdc cli changefeed resume --overwrite-checkpoint-ts={state.frontier}`)" if state.frontier else ""
    first = min(state.positions.get(topic, {}), default=0)
    return MadeAnew(
        f"topic {topic} was deleted and made again: its id is {topic_id} now, and {known} is the one that was "
        f"read{read}. What the topic before had behind that is gone. Ways out: let its changefeed send everything "
        f"since {since} again{resend}, then read the new topic from its first message, with "
        f"made-anew={topic}:{topic_id} in the source's address; if it has the same messages at the same offsets "
        f"(another cluster that took over), go on with made-anew={topic}:{topic_id}:{SAME_OFFSETS}; or start a fresh "
        "feed into a fresh target"
    ).at(topic=topic, partition=first, offset=_offset(topic, first, state.positions))


def _read_up_to(topic: str, positions: Positions) -> str:
    parts = [
        f"partition {number} up to offset {one.offset}" for number, one in sorted(positions.get(topic, {}).items())
    ]
    more = f" and {len(parts) - 8} more partitions" if parts[8:] else ""
    return f", {', '.join(parts[:8])}{more}" if parts else ""


def _offset(topic: str, partition: int, positions: Positions) -> int:
    reached = positions.get(topic, {}).get(partition)
    return 0 if reached is None else reached.offset
