"""Capture from a local TiKV: EventFeedV2 to rows, against the same stream parsed by the generated classes.

    python benchmarks/capture.py [--json] [--repeat 3] [--times 4] [--only dense]

Another process sends messages over gRPC, made of the rows that were recorded of a real TiKV (tests/data/tikv), either
as they were recorded, some 20 rows a message, or dense, 1,024 rows a message.  Two clients read them in turns, the best
of some rounds counts; what counts is the CPU time of the client's process:

    generated   gRPC, ChangeDataEvent.FromString, every field of every row read once
    feed        `EventFeed`: matched rows as record batches, and the resolved ts behind them

ratio = generated ÷ feed; at least 0.5 is the bar.
"""

import argparse
import asyncio
import base64
import gzip
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.tikv.scripted import serving
from tests.tikv.test_feed_rim import REGION, REQUEST, Store

from tidegate.model.tso import Tso
from tidegate.tikv import rpc
from tidegate.tikv.feed import EventFeed
from tidegate.tikv.registrations import SpanRows
from tidegate.tikv.stubs import cdcpb_pb2 as cdcpb

DATA = Path(__file__).parent.parent / "tests" / "data" / "tikv" / "01-v2-all-from-ts0.jsonl.gz"
END_TS = 1 << 60
SHAPES = ("recorded", "dense")


def recorded() -> Iterator[cdcpb.ChangeDataEvent]:
    """Yield the recorded messages as those of one region, without a COMMIT whose PREWRITE is missing."""
    prewritten = set()
    with gzip.open(DATA, "rt") as file:
        for line in map(json.loads, file):
            if line["dir"] != "recv":
                continue
            message = cdcpb.ChangeDataEvent()
            for event in cdcpb.ChangeDataEvent.FromString(base64.b64decode(line["b64"])).events:
                rows = []
                for row in event.entries.entries:
                    mark = (row.start_ts, row.key)
                    if row.type == cdcpb.Event.PREWRITE:
                        prewritten.add(mark)
                    if row.type == cdcpb.Event.COMMIT and mark not in prewritten:
                        continue
                    if row.type in {cdcpb.Event.COMMIT, cdcpb.Event.ROLLBACK}:
                        prewritten.discard(mark)
                    if row.type != cdcpb.Event.INITIALIZED:
                        rows.append(row)
                if rows:
                    entries = cdcpb.Event.Entries(entries=rows)
                    message.events.append(cdcpb.Event(region_id=REGION, request_id=REQUEST, entries=entries))
            if message.events:
                yield message


def messages(shape: str) -> list[bytes]:
    """Return the messages of a shape."""
    if shape == "recorded":
        return [message.SerializeToString() for message in recorded()]
    rows = [row for message in recorded() for event in message.events for row in event.entries.entries]
    dense = []
    for start in range(0, len(rows), 1024):
        parts = [rows[index : index + 64] for index in range(start, min(start + 1024, len(rows)), 64)]
        events = [
            cdcpb.Event(region_id=REGION, request_id=REQUEST, entries=cdcpb.Event.Entries(entries=part))
            for part in parts
        ]
        dense.append(cdcpb.ChangeDataEvent(events=events).SerializeToString())
    return dense


async def serve(shape: str, times: int) -> None:
    """Send the messages to each stream after its first request; print the port."""
    begin = cdcpb.Event(region_id=REGION, request_id=REQUEST)
    begin.entries.entries.add(type=cdcpb.Event.INITIALIZED)
    end = cdcpb.ResolvedTs(regions=[REGION], ts=END_TS, request_id=REQUEST)
    stream = [cdcpb.ChangeDataEvent(events=[begin]).SerializeToString(), *messages(shape) * times]
    stream.append(cdcpb.ChangeDataEvent(resolved_ts=end).SerializeToString())

    async def feed(requests: Any, _context: Any) -> AsyncIterator[bytes]:
        await anext(requests)
        for message in stream:
            yield message
        await asyncio.sleep(60)

    handlers: Any = {"EventFeedV2": grpc.stream_stream_rpc_method_handler(feed)}
    async with serving(grpc.method_handlers_generic_handler("cdcpb.ChangeData", handlers)) as target:
        print(target.rpartition(":")[2], flush=True)
        await asyncio.Event().wait()


async def generated(target: str) -> int:
    """Return how many rows come, each read field by field."""
    count = 0
    async with grpc.aio.insecure_channel(target, rpc.CHANNEL_OPTIONS) as channel:
        call = rpc.EVENT_FEED_V2.stream(channel)()
        await call.write(cdcpb.ChangeDataRequest(region_id=REGION))
        async for message in call:
            if message.HasField("resolved_ts"):
                break
            for event in message.events:
                for row in event.entries.entries:
                    _ = row.start_ts, row.commit_ts, row.type, row.op_type, row.key, row.value, row.old_value
                    _ = row.txn_source, row.generation
                    count += 1
        call.cancel()
    return count


async def fed(target: str) -> int:
    """Return how many committed rows come."""
    count = 0
    channel = grpc.aio.insecure_channel(target, rpc.CHANNEL_OPTIONS)
    cluster = Store()
    cluster.target, cluster.channel, cluster.now = target, channel, Tso(0)  # a timestamp at which nothing lags
    async with channel, EventFeed(cluster) as feed:
        feed.add(1, b"", b"", 1)
        async for event in feed.events():
            if not isinstance(event, SpanRows):
                break
            count += event.rows.num_rows
    return count


def measure(shape: str, times: int, repeat: int) -> dict[str, Any]:
    """Return the rates of a shape."""
    server = subprocess.Popen(
        [sys.executable, __file__, "--serve", shape, "--times", str(times)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout
        target = f"127.0.0.1:{int(server.stdout.readline())}"
        best = {"generated": 1e9, "feed": 1e9}
        counts = {}
        asyncio.run(fed(target))
        for _ in range(repeat):
            for name, client in (("generated", generated), ("feed", fed)):
                begun = time.process_time()
                counts[name] = asyncio.run(client(target))
                best[name] = min(best[name], time.process_time() - begun)
    finally:
        server.kill()
        server.wait(60)
    rows = counts["generated"]
    return {
        "shape": shape,
        "rows": rows,
        "committed_rows": counts["feed"],
        "generated_us_per_row": round(best["generated"] / rows * 1e6, 3),
        "feed_us_per_row": round(best["feed"] / rows * 1e6, 3),
        "feed_rows_per_s": round(rows / best["feed"]),
        "ratio": round(best["generated"] / best["feed"], 2),
    }


def main() -> None:
    """Measure, or serve."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--times", type=int, default=4)
    parser.add_argument("--only", choices=SHAPES)
    parser.add_argument("--serve", choices=SHAPES)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(options.serve, options.times))
        return
    results = [measure(shape, options.times, options.repeat) for shape in SHAPES if options.only in {None, shape}]
    if options.json:
        print(json.dumps(results))
        return
    for result in results:
        print("  ".join(f"{name} {value}" for name, value in result.items()))


if __name__ == "__main__":
    main()
