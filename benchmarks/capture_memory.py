"""The memory of a capture that catches up: its peak with a backlog, and with one ten times as large.

    python benchmarks/capture_memory.py [--mib 400] [--times 10] [--uncommitted] [--json]

    store over gRPC, one region  ──  feed, rows above the frontier  ──►  segments of a change log

All rows of the first scan lie above the frontier until it has ended, so that the whole backlog waits.  With
`--uncommitted` they are PREWRITEs of transactions of 1,000 rows, all open at once, whose COMMITs follow.  Each backlog
is captured by a process of its own, with rows of 1 KiB.

    anonymous   memory of its own, without pages of files, which the system takes back
    resident    with them

ratio = anonymous of the large backlog ÷ that of the small one.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.tikv.scripted import serving
from tests.tikv.test_feed_rim import REGION, Store

from tidegate.kv.keys import IntHandle, record_key
from tidegate.model.tso import compose
from tidegate.source.tidb_segment import SegmentWriter
from tidegate.source.tikv_capture import Capture, CaptureOptions, KnownTables, Spans, Waiting
from tidegate.tikv import rpc
from tidegate.tikv.address import ClusterAddress
from tidegate.tikv.feed import EventFeed
from tidegate.tikv.stubs import cdcpb_pb2 as cdcpb

TABLE, BEGIN = 45, compose(1_700_000_000_000)
END_TS = BEGIN + (1 << 40)
PART = 1000
Row, Event = cdcpb.Event.Row, cdcpb.Event


class Tables(KnownTables):
    """One table."""

    def names(self) -> dict[int, str]:
        return {TABLE: "test.t"}


def backlog(request: Any, mib: int, *, uncommitted: bool) -> Any:
    """Yield the messages of a region, one row for each KiB, if the request is for the table's rows."""
    rows = mib * 1024 if request.start_key[:1] == b"t" and request.request_id == 3 else 0
    value = bytes(range(200, 240)) * 24

    def event(rows: list[Any]) -> bytes:
        entries = Event.Entries(entries=rows)
        one = Event(region_id=REGION, request_id=request.request_id, entries=entries)
        return bytes(cdcpb.ChangeDataEvent(events=[one]).SerializeToString())

    def part(first: int, kind: Any, **more: Any) -> bytes:
        """Rows of a transaction, or each of one of its own."""
        at = [first if uncommitted else number for number in range(first, first + PART)]
        commits = [0 if kind == Event.PREWRITE else BEGIN + 2 * ts + 1 for ts in at]
        return event(
            [
                Row(
                    type=kind,
                    op_type=Row.PUT,
                    start_ts=BEGIN + 2 * ts,
                    commit_ts=commit_ts,
                    key=record_key(TABLE, IntHandle(first + index)),
                    **more,
                )
                for index, (ts, commit_ts) in enumerate(zip(at, commits, strict=True))
            ]
        )

    initialized = event([Row(type=Event.INITIALIZED)])
    if uncommitted:
        yield initialized
    for first in range(0, rows, PART):
        yield part(first, Event.PREWRITE if uncommitted else Event.COMMITTED, value=value)
    for first in range(0, rows if uncommitted else 0, PART):
        yield part(first, Event.COMMIT)
    if not uncommitted:
        yield initialized
    end = cdcpb.ResolvedTs(regions=[REGION], ts=END_TS, request_id=request.request_id)
    yield cdcpb.ChangeDataEvent(resolved_ts=end).SerializeToString()


async def serve(mib: int, *, uncommitted: bool) -> None:
    """Answer each registration with its backlog; print the port."""

    async def feed(requests: Any, _context: Any) -> AsyncIterator[bytes]:
        async for request in requests:
            for message in backlog(cdcpb.ChangeDataRequest.FromString(request), mib, uncommitted=uncommitted):
                yield message

    handlers: Any = {"EventFeedV2": grpc.stream_stream_rpc_method_handler(feed)}
    async with serving(grpc.method_handlers_generic_handler("cdcpb.ChangeData", handlers)) as target:
        print(target.rpartition(":")[2], flush=True)
        await asyncio.Event().wait()


def memory_mib(name: str) -> int:
    """Return a line of this process's memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) >> 10


class Peak(threading.Thread):
    """The largest memory of its own that this process has had, looked at every 20 ms."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.mib = 0

    def run(self) -> None:
        while True:
            self.mib = max(self.mib, memory_mib("RssAnon"))
            time.sleep(0.02)


class Pd:
    """A PD that keeps what it is asked to."""

    async def hold(self, *_hold: Any) -> None: ...

    async def check_kept(self, _ts: int) -> None: ...


async def capture(target: str, directory: Path) -> dict[str, Any]:
    """Capture until the log has the backlog; return the peaks."""
    peak, begun = Peak(), time.monotonic()
    peak.start()
    options = CaptureOptions(address=ClusterAddress((target,)), directory=directory, feed="bench")
    own, channel, pd = Capture(options, lambda *_: True), grpc.aio.insecure_channel(target, rpc.CHANNEL_OPTIONS), Pd()
    cluster: Any = Store()
    cluster.target, cluster.channel, cluster.now = target, channel, END_TS
    writer = SegmentWriter(directory, BEGIN - 1)
    async with channel, EventFeed(cluster, spill=directory) as feed:
        spans = Spans(feed, Tables(lambda *_: True), BEGIN - 1)
        work = own._work(pd, feed, writer, Waiting(directory), spans)  # type: ignore[arg-type]  # noqa: SLF001
        working = asyncio.create_task(work)
        while writer.low < END_TS and not working.done():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        working.cancel()
        with suppress(asyncio.CancelledError):
            await working
    took_s = time.monotonic() - begun
    return {"anonymous_mib": peak.mib, "resident_mib": memory_mib("VmHWM"), "took_s": round(took_s, 1)}


def measure(mib: int, *, uncommitted: bool) -> dict[str, Any]:
    """Return the peaks of a process that captures a backlog."""
    with tempfile.TemporaryDirectory() as home:
        command = [sys.executable, __file__, "--mib", str(mib), *(["--uncommitted"] if uncommitted else [])]
        server = subprocess.Popen([*command, "--serve"], stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout
            target = f"127.0.0.1:{int(server.stdout.readline())}"
            output = subprocess.check_output([*command, "--capture", target, "--home", home], text=True, timeout=400)
        finally:
            server.kill()
            server.wait(60)
    return {"backlog_mib": mib, **json.loads(output)}


def main() -> None:
    """Measure, serve, or capture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--mib", type=int, default=400)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--uncommitted", action="store_true")
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--capture")
    parser.add_argument("--home", type=Path)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(options.mib, uncommitted=options.uncommitted))
        return
    if options.capture:
        print(json.dumps(asyncio.run(capture(options.capture, options.home))))
        return
    sizes = options.mib, options.mib * options.times
    small, large = (measure(mib, uncommitted=options.uncommitted) for mib in sizes)
    result = {"small": small, "large": large, "ratio": round(large["anonymous_mib"] / small["anonymous_mib"], 2)}
    if options.json:
        print(json.dumps(result))
        return
    for each in (small, large):
        print("  ".join(f"{name} {value}" for name, value in each.items()))
    print(f"ratio {result['ratio']}")


if __name__ == "__main__":
    main()
