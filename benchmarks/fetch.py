"""What a message of Kafka costs until it is decoded, without a Python object each and with one.

    python benchmarks/fetch.py [--rows 300000] [--json]

    topic (1 partition)  ──  fetch_range, as a landing's task runs it       ──►  columns       packed
                         ──  the same by confluent-kafka's consumer alone   ──►  objects       plain

Each reads the whole topic in turns, with and without `decode_chunk` behind it; the least CPU of
the last turns counts, with that of the client library's threads.  Ratios of one run:

    fetch     CPU of a message, plain ÷ packed                                                 goal 2.5
    decoded   the same with decoding                                                           goal 1.7
"""

import json
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from unittest.mock import patch

from rig import arguments, send
from traffic import PROTOCOLS, messages, mixture

from tidegate.codec.columnar import Pairs, decode_chunk
from tidegate.config.kafka import kafka_topics
from tidegate.engine.change import EventPosition
from tidegate.source import kafka_fetch
from tidegate.source.kafka_batch import batch_consumer
from tidegate_upstream.broker import running_broker
from tidegate_upstream.demo.recorded import create_topic

TURNS: Final = 4
WAYS: Final = {"packed": batch_consumer, "plain": lambda _: None}


def measured(bootstrap: str, protocol: str, rows: int) -> dict[str, float]:
    """Microseconds of CPU a message in each way, and the ratios."""
    create_topic(bootstrap, protocol, 1)
    count, _ = send(bootstrap, protocol, messages(mixture(rows), protocol, partitions=1))
    extension = "&enable-tidb-extension=true" if protocol == "canal-json" else ""
    source = kafka_topics(f"kafka://{bootstrap}/{protocol}?protocol={protocol}{extension}")
    options, costs = source.decode_options(), dict[str, float]()
    for turn in range(TURNS):
        for way in WAYS:
            for decodes in (False, True):
                begun_s = time.process_time()
                with patch.object(kafka_fetch, "batch_consumer", WAYS[way]):
                    for chunk in kafka_fetch.fetch_range(source, EventPosition(protocol, 0, 0), count):
                        if decodes:
                            decode_chunk(Pairs(chunk.keys, chunk.values), options, as_texts=True)
                name = f"{way}_{'decoded' if decodes else 'fetch'}_us"
                cost_us = 1e6 * (time.process_time() - begun_s) / count
                costs[name] = min(costs.get(name, cost_us), cost_us) if turn > 1 else cost_us
    ratios = {part: costs[f"plain_{part}_us"] / costs[f"packed_{part}_us"] for part in ("fetch", "decoded")}
    return costs | ratios


def main() -> None:
    """Print what each protocol's messages cost."""
    asked = arguments(__doc__, 300_000).parse_args()
    with TemporaryDirectory() as scratch, running_broker(Path(scratch)) as broker:
        results = {protocol: measured(broker.bootstrap, protocol, asked.rows) for protocol in PROTOCOLS}
    if asked.json:
        print(json.dumps(results, indent=2))
        return
    for protocol, result in results.items():
        print(f"{protocol}: " + ", ".join(f"{name} {value:.2f}" for name, value in result.items()))


if __name__ == "__main__":
    main()
