"""The topics that a changefeed has written to since its start, and resolved timestamps for those without a table.

    table made        table dropped, renamed out of the filter, dispatched elsewhere
    ────┬─────────────────────────┬──────────────────────────────────────┬──────────────────►
        │ active: Control, Relay  │ retired: resolved all the same       │ deleted by an operator: forgotten

A consumer of several topics waits for all of their partitions, so a topic that is resolved no more would hold up the
others for ever.  The names are kept with the checkpoint; whoever starts again resolves them too.

Nobody makes a retired topic anew: each time the broker is asked first which of them are there, and the producer that
writes to them makes no topics, nor lets a broker make them.  One that stays missing is forgotten, with a line in the
log.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, Protocol

from tidegate.codec.batch import BatchEncoder, Message
from tidegate.model.errors import SinkError, SinkRefused
from tidegate.model.event import Resolved
from tidegate.sink.kafka.producer import Producer

LOG: Final = logging.getLogger(__name__)
FORGET_S: Final = 30.0
"""How long a topic is missing before it is forgotten: a broker that has just started may not know all of them yet."""


class Keeper(Producer, Protocol):
    """What writes to topics and makes none: a TopicWriter without `create`."""

    def existing(self, topics: Collection[str]) -> Mapping[str, int]:
        """Return those that exist, with how many partitions."""


class KnownTopics:
    """Remembers topics; `partition_num` bounds the partitions that are used, and `open_keeper` connects."""

    def __init__(
        self, open_keeper: Callable[[], Keeper], encoder: BatchEncoder, *, partition_num: int | None = None
    ) -> None:
        self._open, self._encoder, self._partition_num = open_keeper, encoder, partition_num
        self._names: dict[str, None] = {}
        self._missing_since_s: dict[str, float] = {}
        self._keeper: Keeper | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """All of them, in the order in which they came."""
        return tuple(self._names)

    def note(self, topics: Iterable[str]) -> None:
        """These are written to."""
        self._names.update(dict.fromkeys(topics))

    def retired(self, active: Collection[str]) -> list[str]:
        """Return those that are none of the active ones."""
        return [name for name in self._names if name not in active]

    def resolved(self, ts: int, active: Collection[str]) -> None:
        """Tell every partition of the retired topics that nothing at or below `ts` is still to come.

        What was sent to them is acknowledged already. Raises SinkError, never SinkRefused: a topic that is taken away
        this very moment is found missing by the next try."""
        retired = self.retired(active)
        messages = self._encoder.append(Resolved(ts)) if retired else ()
        if not messages:
            return
        try:
            if self._keeper is None:
                self._keeper = self._open()
            self._tell(self._keeper, retired, messages)
        except SinkError as error:
            if self._keeper is not None:
                self._keeper.abandon()
                self._keeper = None
            if isinstance(error, SinkRefused):
                raise SinkError(str(error)) from error
            raise

    def _tell(self, keeper: Keeper, retired: Collection[str], messages: Iterable[Message]) -> None:
        counts = keeper.existing(retired)
        self._forget([topic for topic in retired if topic not in counts])
        for topic, found in counts.items():
            for partition in range(found if self._partition_num is None else min(found, self._partition_num)):
                for message in messages:
                    keeper.send(topic, partition, message.key, message.value)
        keeper.flush()

    def _forget(self, missing: Iterable[str]) -> None:
        """Those that are missing long enough."""
        now_s = time.monotonic()
        self._missing_since_s = {topic: self._missing_since_s.get(topic, now_s) for topic in missing}
        for topic in [topic for topic, since_s in self._missing_since_s.items() if now_s - since_s >= FORGET_S]:
            LOG.warning("topic %s has no table any more and is gone from the broker: it is forgotten", topic)
            del self._names[topic], self._missing_since_s[topic]
