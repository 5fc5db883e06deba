"""A sink of one's own, as a user writes it: batches and DDLs into files, and read back as a topic."""

import pickle
import uuid
from dataclasses import dataclass
from pathlib import Path

from tidegate.codec import BatchEncoder, encode_options
from tidegate.codec.columnar import ColumnarEncoder
from tidegate.codec.columnar.rows import Batch
from tidegate.codec.wire_table import wire_table
from tidegate.model.event import Ddl, Resolved
from tidegate.sinks import callback
from tidegate.source.kafka_messages import TopicMessage

OPTIONS = encode_options({"protocol": "open-protocol"})


@dataclass(frozen=True)
class Collect:
    """Keeps what it is called with in files of `home`. Each says up to which ts it goes."""

    home: str

    def __call__(self, batch: Batch) -> None:
        """Keep rows."""
        self._keep(batch.commit_ts[-1].as_py(), 0, batch)

    def ddl(self, ddl: Ddl) -> None:
        """Keep a DDL."""
        self._keep(ddl.commit_ts or 0, 1, ddl)

    def resolved(self, ts: int) -> None:
        """Keep a resolved ts."""
        self._keep(ts, 2, Resolved(ts))

    def _keep(self, ts: int, kind: int, what: object) -> None:
        place = Path(self.home)
        place.mkdir(parents=True, exist_ok=True)
        aside = place / f".{uuid.uuid4().hex}"
        aside.write_bytes(pickle.dumps(what))
        aside.rename(place / f"{ts:020d}-{kind}-{len(list(place.iterdir())):06d}-{uuid.uuid4().hex[:8]}")


def into(home: str) -> callback:
    """The sink that `callback://tests.e2e.collected/into?home=DIR` names."""
    collect = Collect(home)
    return callback(collect, ddl=collect.ddl, resolved=collect.resolved)


def messages(home: str) -> list[TopicMessage]:
    """What was collected, as messages of one partition in Open Protocol."""
    found: list[TopicMessage] = []
    rows, control = ColumnarEncoder(OPTIONS), BatchEncoder(OPTIONS)
    for path in sorted(Path(home).glob("[0-9]*")):
        match pickle.loads(path.read_bytes()):
            case Batch() as batch:
                table = None if batch.definition is None else wire_table(batch.definition)
                pairs = [*rows.append(batch, table).pairs(), *rows.flush().pairs()]
            case event:
                pairs = [(message.key, message.value) for message in control.append(event)]
        found += [TopicMessage(len(found) + at, key, value) for at, (key, value) in enumerate(pairs)]
    return found
