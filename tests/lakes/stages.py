"""Lakes played from the recorded shop: how far it has landed and how far it is merged are chosen apart.

messages up to moment n of the recording --land--> changelog (frontier = that moment's ts) --round(ts)--> snapshots
"""

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tests.replay.stage import Stage, partitions_of
from tidegate.app.verify import Truth, compare_tables, load_truth
from tidegate.codec import decode
from tidegate.codec.options import DecodeOptions
from tidegate.model.event import Resolved
from tidegate.source.kafka.message import TopicMessage

WORKLOAD = Path(__file__).parents[1] / "data" / "workload"
PROTOCOLS = {"open": "open-protocol", "open_table": "open-protocol", "canal": "canal-json", "canal_table": "canal-json"}


@cache
def truths() -> tuple[Truth, ...]:
    """The moments of the recording."""
    return tuple(load_truth(WORKLOAD))


def cut(recording: str, ts: int) -> dict[int, list[TopicMessage]]:
    """A recorded topic up to the messages that resolve `ts`."""
    options = DecodeOptions(protocol=PROTOCOLS[recording])
    return {number: list(_up_to(some, options, ts)) for number, some in partitions_of(WORKLOAD / recording).items()}


def _up_to(messages: Sequence[TopicMessage], options: DecodeOptions, ts: int) -> Iterator[TopicMessage]:
    for message in messages:
        yield message
        if any(isinstance(event, Resolved) and event.ts >= ts for event in decode(message.key, message.value, options)):
            return


class Play:
    """A recording on its way into a lake."""

    def __init__(self, root: Path, recording: str = "open", seed: int = 1) -> None:
        self.recording = recording
        self.stage = Stage(root, PROTOCOLS[recording], partitions_of(WORKLOAD / recording), seed=seed)

    def land(self, ts: int, at_most: int = 3000) -> None:
        """Land until the frontier stands at `ts`, in random batches."""
        self.stage.messages = cut(self.recording, ts)
        while self.stage.land(at_most):
            pass

    def merge(self, ts: int) -> int:
        """Merge up to `ts`; the checkpoint."""
        return self.stage.round(ts)


def differences(view: Any, truth: Truth) -> list[str]:
    """In which tables a snapshot or live view differs from the database, and how."""
    reports = compare_tables(truth, view.tables(), view.arrow)
    return [f"{report.name}: {report.differences[:2]}" for report in reports if not report.equal]
