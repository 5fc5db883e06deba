"""Lakes played from the recorded shop: how far it has landed and how far it is merged are chosen apart.

messages up to moment n of the recording --land--> changelog (frontier = that moment's ts) --round(ts)--> snapshots
"""

from functools import cache
from pathlib import Path
from typing import Any

from tests.recorded import partitions_of, upto
from tests.replay.stage import Stage
from tidegate.codec.options import DecodeOptions
from tidegate.source.kafka_messages import TopicMessage
from tidegate.verify.local import Truth, compare_tables, load_truth

WORKLOAD = Path(__file__).parents[1] / "data" / "workload"
PROTOCOLS = {"open": "open-protocol", "open_table": "open-protocol", "canal": "canal-json", "canal_table": "canal-json"}


@cache
def truths() -> tuple[Truth, ...]:
    """The moments of the recording."""
    return tuple(load_truth(WORKLOAD))


def cut(recording: str, ts: int) -> dict[int, list[TopicMessage]]:
    """A recorded topic up to the messages that resolve `ts`."""
    return upto(WORKLOAD / recording, DecodeOptions(protocol=PROTOCOLS[recording]), ts)


class Play:
    """A recording on its way into a lake."""

    def __init__(self, root: Path, recording: str = "open", seed: int = 1, **delta: Any) -> None:
        self.recording = recording
        self.stage = Stage(root, PROTOCOLS[recording], partitions_of(WORKLOAD / recording), seed=seed, **delta)

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
