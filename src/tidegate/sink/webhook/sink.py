"""A webhook as a sink: rows and DDLs as CloudEvents, posted to an HTTP address.

    table ─► task ─► events ─► lanes by key ─► batches ─► POST, one after the other in a lane
                               └ a row that gets another key waits for all lanes, and they for it

Guarantee: at least once; events of one key in commit order, rows up to a DDL before it.  What follows the checkpoint
comes again after a crash, under the ids that it had.
"""

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Final

from tidegate.codec.columnar.encode.encoder import events_of
from tidegate.engine.change import PlacedDdl
from tidegate.engine.plan import Barrier, Round, Rows, Unit, row_steps
from tidegate.engine.ports import Changes, Checkpoints, Rhythm, Saved, Sink, Standing, Tasks, Written, standing_of
from tidegate.sink.webhook.cloud_event import CloudEvent, EventMaker, batches, in_lanes
from tidegate.sink.webhook.options import WebhookOptions
from tidegate.sink.webhook.sender import WebhookSender

LOGGER: Final = logging.getLogger(__name__)


@dataclass(slots=True)
class Posted(Written):
    """What a task posted, `dead` events that were kept aside among it."""

    dead: int = 0


class WebhookSink(Sink[Posted]):
    """Posts to the address of `options`."""

    barrier, rhythm = Barrier.ALL, Rhythm()

    def __init__(self, options: WebhookOptions, checkpoints: Checkpoints) -> None:
        self._options, self._checkpoints = options, checkpoints
        self._events = EventMaker(options.feed)
        self._sender = WebhookSender(options)

    def held(self) -> AbstractContextManager[None]:
        """Keep other runs of the feed out."""
        return self._checkpoints.held()

    def recover(self) -> Standing:
        """Return the checkpoint that was saved last."""
        return standing_of(self._checkpoints.load())

    def run(self, tasks: Tasks, units: Sequence[Unit], changes: Changes) -> list[Posted]:
        """Post the rows of each table in a task of its own."""
        steps = row_steps(units)
        side_by_side = max(1, min(tasks.slots, len(steps), self._options.concurrency))
        lanes = self._options.concurrency // side_by_side
        groups = [steps[number::side_by_side] for number in range(side_by_side)] if steps else []
        done = list(chain(*tasks.run(partial(_post, self._options, changes, lanes), groups)))
        if dead := sum(one.dead for one in done):
            LOGGER.warning("%d events were refused; they are kept in %s", dead, self._options.dead_letters)
        return done

    def ddl(self, placed: PlacedDdl) -> None:
        """Post a DDL."""
        self._sender.send([self._events.ddl(placed.ddl)])

    def advance(self, planned: Round, results: Sequence[Posted]) -> Standing:  # noqa: ARG002  their rows are posted
        """Save the checkpoint, then post the resolved ts, if that is wanted."""
        self._checkpoints.save(Saved(standing := Standing(planned.checkpoint, planned.state), {}))
        if self._options.resolved:
            self._sender.send([self._events.resolved(planned.checkpoint.ts)])
        return standing

    def close(self) -> None:
        """End the connection."""
        self._sender.close()


def _post(options: WebhookOptions, changes: Changes, lanes: int, steps: Sequence[Rows]) -> list[Posted]:
    """Post the rows of some tables, one after the other."""
    senders = [WebhookSender(options) for _ in range(lanes)]
    try:
        with ThreadPoolExecutor(lanes, "webhook") as pool:
            return [_post_table(options, changes, senders, pool, step) for step in steps]
    finally:
        for sender in senders:
            sender.close()


def _post_table(
    options: WebhookOptions, changes: Changes, senders: Sequence[WebhookSender], pool: ThreadPoolExecutor, step: Rows
) -> Posted:
    done, maker = Posted(step.table.name), EventMaker(options.feed)

    def post(sender: WebhookSender, events: Sequence[CloudEvent]) -> int:
        return sum(sender.send(batch) for batch in batches(events, options.batch_events, options.batch_bytes))

    for chunk in done.coming(changes.batches(step.table.name, step.after, step.upto)):
        rows = chain.from_iterable(map(events_of, chunk.runs()))
        for stretch in in_lanes(maker.rows(rows), len(senders)):
            done.dead += sum(pool.map(post, senders, stretch))
            done.messages += sum(map(len, stretch))
            done.size_bytes += sum(len(event.body) for lane in stretch for event in lane)
        done.rows += len(chunk)
    return done
